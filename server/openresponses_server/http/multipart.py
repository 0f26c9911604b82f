"""Finds the fields `model` and `n` in a `multipart/form-data` body (RFC 7578) as the body arrives.

The body is passed on as it is, so it must mean the same to the server that reads it next. Whatever parsers
disagree about is refused: delimiters after a bare LF, a preamble, folded or repeated headers, escaped quotes,
parameters in other forms than `name="…"`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from openresponses_bridge.errors import InvalidRequestError

_TYPE: Final = re.compile(
    r"multipart/form-data[ \t]*;[ \t]*boundary=(\"?)([0-9A-Za-z'()+_,./:=?-]{1,70})\1", re.IGNORECASE
)
_TOKEN: Final = re.compile(r"[0-9A-Za-z'+_.-]{1,70}")
_HEADER: Final = re.compile(rb"([0-9A-Za-z-]{1,64}):([^\x00-\x08\x0a-\x1f\x7f]*)")
_PARAMETER: Final = re.compile(rb';[ \t]*([A-Za-z*]{1,16})=("[^"]*"|[^\s";,]+)')
_DISPOSITION: Final = b"content-disposition"
_FORM_DATA: Final = b"form-data"
_KNOWN: Final = frozenset({b"name", b"filename", b"filename*"})
_PLAIN_ENCODINGS: Final = frozenset({b"binary", b"8bit", b"7bit"})
_MODEL: Final = b"model"
_MOST_PARTS: Final = 256
_MOST_HEAD: Final = 8 * 1024  # bytes of a part's headers
_MOST_HEADERS: Final = 16
_MOST_KEPT: Final = {_MODEL: 4 * 1024, b"n": 32}  # bytes of the values that are kept


class _Stage(Enum):
    """The next part that is expected in a body."""

    DELIMITER = auto()
    HEADERS = auto()
    CONTENT = auto()
    END = auto()


class MultipartScanner:
    """Checks a body piece by piece. Costs are linear; at most a part's headers, a model's name, a number or
    a boundary are kept."""

    def __init__(self, boundary: str, check: Callable[[str], None] = lambda _name: None) -> None:
        """`check` is called with the name of each field and file, and may raise."""
        self._check = check
        self._delimiter = b"--" + boundary.encode()
        self._stage = _Stage.DELIMITER
        self._rest = b""
        self._parts = 0
        self._passed = 0
        self._field: bytes | None = None  # the name of the field whose value comes, if that is kept
        self.model: str | None = None
        """The value of the field, once it has arrived."""
        self.model_at = (0, 0)
        """Where it begins and ends among the bytes that were returned."""
        self.numbers: list[bytes] = []
        """The values of the fields `n` that have arrived, unchecked."""

    def feed(self, data: bytes) -> bytes:
        """The bytes that have become certain, in order. Raises InvalidRequestError for a body that is not
        well-formed, and for a second model."""
        self._rest += data
        passed: list[bytes] = []
        while (size := self._step()) is not None:
            if size:
                passed.append(self._rest[:size])
                self._rest = self._rest[size:]
                self._passed += size
        return b"".join(passed)

    def close(self) -> bytes:
        """The last bytes, at the end of the body. Raises InvalidRequestError if it ends too soon."""
        if self._stage is not _Stage.END or self._rest not in (b"", b"\r\n"):
            raise _broken("it ends too soon")
        last, self._rest = self._rest, b""
        return last

    def _step(self) -> int | None:
        """Take one step. Returns how many bytes it makes certain; None if it needs more."""
        if self._stage is _Stage.CONTENT:
            return self._content()
        if self._stage is _Stage.HEADERS:
            return self._headers()
        if self._stage is _Stage.DELIMITER:
            return self._begun_delimiter()
        if not b"\r\n".startswith(self._rest):
            raise _broken("it continues after its last boundary")
        return None

    def _begun_delimiter(self) -> int | None:
        """A delimiter at the beginning of what is left, with what follows it on its line."""
        size = len(self._delimiter)
        if not self._rest.startswith(self._delimiter[: len(self._rest)]):
            raise _broken("it does not begin with its boundary")
        ending = self._rest[size : size + 2]
        if len(ending) < 2:
            return None
        if ending == b"--":
            if self._parts == 0:
                raise _broken("it has no parts")
            self._stage = _Stage.END
        elif ending == b"\r\n":
            self._stage = _Stage.HEADERS
            self._parts += 1
            if self._parts > _MOST_PARTS:
                raise _broken(f"it has more than {_MOST_PARTS} parts")
        else:
            raise _broken("its boundary is within a part")
        return size + 2

    def _headers(self) -> int | None:
        end = self._rest.find(b"\r\n\r\n", 0, _MOST_HEAD)
        if end < 0:
            if len(self._rest) >= _MOST_HEAD:
                raise _broken(f"the headers of a part have more than {_MOST_HEAD} bytes")
            return None
        part_name, name = _field_name(self._rest[:end])
        self._field = name.lower() if name is not None and name.lower() in _MOST_KEPT else None
        if self._field == _MODEL and (name != _MODEL or self.model is not None):
            raise InvalidRequestError(
                InvalidRequestError.INVALID_VALUE, "model: it is given more than once", param="model"
            )
        self._check(part_name.decode("utf-8", "replace"))
        self._stage = _Stage.CONTENT
        return end + 4

    def _content(self) -> int | None:
        index = self._rest.find(self._delimiter)
        if index < 0:
            # it may go on with the rest of a delimiter, or be the line end before one
            certain = len(self._rest) - len(self._delimiter) - 1
            if self._field is not None:
                _check_size(self._field, certain)
                return None
            return certain if certain > 0 else None
        if self._rest[max(index - 2, 0) : index] != b"\r\n":
            raise _broken("its boundary is within a part")
        self._stage = _Stage.DELIMITER
        if self._field is not None:
            self._keep(self._field, self._rest[: index - 2])
        return index

    def _keep(self, name: bytes, value: bytes) -> None:
        _check_size(name, len(value))
        if name == _MODEL:
            self.model_at = (self._passed, self._passed + len(value))
            self.model = _text(value)
        else:
            self.numbers.append(value)
        self._field = None


def _check_size(name: bytes, size: int) -> None:
    if size > _MOST_KEPT[name]:
        raise _broken(f"{name.decode()} has more than {_MOST_KEPT[name]} bytes")


def boundary_of(content_type: str) -> str:
    """The boundary that a content type names. Raises InvalidRequestError for another form than one boundary
    alone."""
    match = _TYPE.fullmatch(content_type.strip())
    if match is None:
        raise _broken("its content type is not `multipart/form-data; boundary=…` alone")
    return match[2]


def content_type_of(boundary: str) -> str:
    """The content type that names this boundary."""
    shown = boundary if _TOKEN.fullmatch(boundary) else f'"{boundary}"'
    return f"multipart/form-data; boundary={shown}"


def model_part(boundary: str, model: str) -> bytes:
    """A part with a model, to be put before the others."""
    return f'--{boundary}\r\ncontent-disposition: form-data; name="model"\r\n\r\n{model}\r\n'.encode()


def _field_name(head: bytes) -> tuple[bytes, bytes | None]:
    """The name in these headers, and that of the field that they belong to: None for a file's."""
    lines = head.split(b"\r\n")
    if len(lines) > _MOST_HEADERS:
        raise _broken(f"a part has more than {_MOST_HEADERS} headers")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None or match[1].lower() in headers:
            raise _broken("a part has a header that is not well-formed, or has it twice")
        headers[match[1].lower()] = match[2].strip(b" \t")
    if headers.get(b"content-transfer-encoding", b"binary").lower() not in _PLAIN_ENCODINGS:
        raise _broken("a part has a transfer encoding")
    parameters = _parameters(headers.get(_DISPOSITION, b""))
    name = parameters[b"name"]
    if parameters.keys() == {b"name"}:
        return name, name
    if name.lower() == _MODEL:
        raise _broken("model is a file")
    return name, None


def _parameters(disposition: bytes) -> dict[bytes, bytes]:
    if disposition[: len(_FORM_DATA)].lower() != _FORM_DATA or b'\\"' in disposition:
        raise _broken("a part's disposition is not that of a form's field")
    parameters: dict[bytes, bytes] = {}
    at = len(_FORM_DATA)
    while at < len(disposition):
        match = _PARAMETER.match(disposition, at)
        if match is None or (name := match[1].lower()) not in _KNOWN or name in parameters:
            raise _broken("a part's disposition is not that of a form's field")
        parameters[name] = match[2].strip(b'"')
        at = match.end()
    if b"name" not in parameters:
        raise _broken("a part has no name")
    return parameters


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise _broken("model is not text in UTF-8") from None
    if not text.isprintable():
        raise _broken("model is not a name")
    return text


def _broken(why: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, f"The form is not well-formed: {why}.")
