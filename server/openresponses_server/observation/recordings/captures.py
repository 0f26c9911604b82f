"""Splits a capture into its payloads, which are server-sent events, or JSON objects in lines or arrays, as
the first line shows.

Each payload is yielded when it is complete, so that a capture can be read while it is written. The cost is
linear, however the capture is divided into lines and frames.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from openresponses_bridge.errors import InvalidRequestError, WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.sse import Frame, SSEDecoder

Numbered = Iterable[tuple[int, bytes]]

_SSE_LINE: Final = re.compile(rb"(data|event|id|retry)?:|(data|event|id|retry)\s*\Z")
_FIELD: Final = re.compile(rb"(data|event):")
_STATUS_LINE: Final = b"HTTP/"
_BOM: Final = b"\xef\xbb\xbf"
_DONE: Final = b"[DONE]"
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_LINE_ENDS: Final = frozenset({b"\n", b"\r\n"})
_STRINGS: Final = re.compile(rb'"[^"]*"?')
_LINES_AT_ONCE: Final = 4096
_BYTES_AT_ONCE: Final = 256 * 1024

_HEAD: Final = 512  # bytes that show whether the capture is text
_SHOWN: Final = 40  # bytes that are shown in a message
_LOOKS: Final = tuple(
    (re.compile(begins, re.IGNORECASE), what)
    for begins, what in (
        (
            rb"\s*<(!doctype|html|head|body|\?xml)",
            "it looks like HTML: the address answered with a page; the API is below a path such as /v1",
        ),
        (rb"\x1f\x8b", "it is compressed with gzip: `gunzip` unpacks it"),
        (rb"\x28\xb5\x2f\xfd", "it is compressed with zstd: `zstd -d` unpacks it"),
        (rb"PK\x03\x04", "it is a zip file: unpack it first"),
        (rb"\xff\xfe|\xfe\xff", "it is UTF-16, as PowerShell writes: `iconv -f UTF-16 -t UTF-8` rewrites it"),
        (rb"[*<>] ", "it looks like the report of `curl -v`: leave out -v, or save only standard output"),
        (rb"curl: \(", "it is an error message of curl"),
    )
)

Check = Callable[[bytes], None]
"""A check of a payload. Raises InvalidRequestError for one that must not be decoded."""


def accept_all(_data: bytes) -> None:
    """A `Check` that refuses nothing."""


class UnreadableCapture(Exception):
    """The capture can't be read; the message names the line, which is 0 for the file as a whole."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.line = line


class Payload(NamedTuple):
    """One payload: `line` is where it begins, `event` the name of its frame (None for a JSON line), `data`
    its bytes and `value` the JSON object that they are; None for `[DONE]`."""

    line: int
    event: str | None
    data: bytes
    value: dict[str, Any] | None


def read_capture(lines: Iterable[bytes]) -> Iterator[Payload]:
    """Yield the payloads of a capture. Heads of HTTP responses before them (`curl -i`) are skipped. Raises
    UnreadableCapture."""
    return (each for each in payloads_and_pauses(lines) if each is not None)


def payloads_and_pauses(lines: Iterable[bytes], check: Check = accept_all) -> Iterator[Payload | None]:
    """Yield the payloads as `read_capture` does, with None for each pause among the lines (`with_pauses`), so
    that no step takes long. `check` is called with each payload before it is decoded."""
    numbered = _numbered(lines)
    for number, line in numbered:
        line = line.removeprefix(_BOM) if number == 1 else line
        if not line:
            yield None
        elif line.startswith(_STATUS_LINE):
            _pass_over_head(numbered)
        elif line.strip():
            yield from _payloads(number, line)(chain([(number, line)], numbered), number, check)
            return
    raise UnreadableCapture(1, "it is empty")


def with_pauses(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines, with a pause, b"", after every few thousand of them. A pause among `lines` counts as a
    line, since reading it took time."""
    count = size = 0
    for line in lines:
        if line:
            yield line
        count, size = count + 1, size + len(line)
        if count >= _LINES_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield b""
            count = size = 0


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    for line in lines:
        number += line != b""
        yield number, line


def _payloads(number: int, line: bytes) -> Callable[[Numbered, int, Check], Iterator[Payload | None]]:
    if _SSE_LINE.match(line):
        return _frames
    if line.lstrip()[:1] not in (b"{", b"["):
        raise UnreadableCapture(number, f"neither server-sent events nor JSON objects: {looks_like(line)}")
    return _json_lines


def looks_like(data: bytes) -> str:
    """Return what kind of file begins like this, of those that people take for a capture, and what to do
    about it."""
    for begins, what in _LOOKS:
        if begins.match(data):
            return what
    text = data[:_SHOWN].decode("utf-8", "replace").strip()
    if b"\0" in data[:_HEAD] or "\ufffd" in text:
        return "it is not a text in UTF-8"
    return f"it begins with {text!r}"


def _pass_over_head(lines: Numbered) -> None:
    for _number, line in lines:
        if line and not line.strip():
            return


def _json_lines(lines: Numbered, _first: int, check: Check) -> Iterator[Payload | None]:
    value, begins = _Data(), 0
    for number, line in lines:
        if not line:
            yield None
            continue
        if not value.begun:
            begins = number
            data = line.strip()
            if data.startswith(b"{") and data.endswith(b"}"):  # which is true of almost every line
                yield payload_of(number, None, data, check)
                continue
        value.add(line)
        if value.begun and value.is_closed:
            yield from _values(begins, value.whole, check)
            value = _Data()
    if value.begun:
        yield from _values(begins, value.whole, check)


def _values(line: int, data: bytes, check: Check) -> Iterator[Payload]:
    """Yield the payload that begins at this line, or those of an array, as Google's APIs send a stream."""
    if not data.startswith(b"[") or data == _DONE:
        yield payload_of(line, None, data, check)
        return
    try:
        check(data)
        elements = _ELEMENTS.decode(data)
    except InvalidRequestError as error:
        raise UnreadableCapture(line, error.message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        yield payload_of(line, None, data)  # it raises the error with the reason
        return
    end = 0
    for element in elements:
        at = data.index(piece := bytes(element), end)
        line += data.count(b"\n", end, at)
        yield payload_of(line, None, piece)
        line += piece.count(b"\n")
        end = at + len(piece)


def _frames(lines: Numbered, first: int, check: Check) -> Iterator[Payload | None]:
    decoder = SSEDecoder()
    begins = number = first
    seen = False
    pending = _Data()  # of the current frame
    for number, line in lines:
        if not line:
            yield None
            continue
        if (line in _LINE_ENDS and decoder.is_between) or (line[:1] == b":" and b"\r" not in line):
            continue  # a comment, or the end of a frame without fields
        feed = [line]
        if pending.begun and _FIELD.match(line) and pending.is_whole():
            feed = [b"\n", line]  # captures without blank lines: each line is a frame
        for piece in feed:
            for frame in _located(number, partial(decoder.feed, piece)):
                seen = True
                pending = _Data()
                yield payload_of(begins, frame.event, frame.data, check)
        if line.startswith(b"data:"):
            begins = begins if pending.begun else number
            pending.add(line[5:])
    for frame in _located(number, decoder.close):
        seen = True
        yield payload_of(begins, frame.event, frame.data, check)
    if not seen:
        raise UnreadableCapture(number, "the stream ends before its first event")


class _Data:
    """The data lines of one frame, or the lines of one JSON value. JSON is complete when its last bracket is
    closed, so that it is decoded only once, however many lines it has."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._open = 0
        self._found: bool | None = None

    @property
    def begun(self) -> bool:
        return bool(self._lines)

    @property
    def whole(self) -> bytes:
        """All lines."""
        return b"\n".join(self._lines).strip()

    @property
    def is_closed(self) -> bool:
        """True if each bracket outside strings is closed."""
        return self._open <= 0

    def add(self, line: bytes) -> None:
        if not (self._lines or line.strip()):
            return
        self._lines.append(line.rstrip(b"\r\n"))
        marks = _STRINGS.sub(b"", line.replace(rb"\\", b"").replace(rb"\"", b""))
        self._open += marks.count(b"{") + marks.count(b"[") - marks.count(b"}") - marks.count(b"]")

    def is_whole(self) -> bool:
        """Return True if the lines are a whole payload. Further lines do not change that once they are one,
        or can't become one."""
        if self._found is None and self.is_closed:
            self._found = _is_whole(self.whole)
        return bool(self._found)


def _is_whole(data: bytes) -> bool:
    try:
        return data == _DONE or decode_json(data) is not None
    except WireError:
        return False


def _located(number: int, read: Callable[[], list[Frame]]) -> list[Frame]:
    try:
        return read()
    except WireError as error:
        raise UnreadableCapture(number, error.message) from error


def payload_of(line: int, event: str | None, data: bytes, check: Check = accept_all) -> Payload:
    """Return the payload that begins at this line. Raises UnreadableCapture if it is not a JSON object, or if
    `check` refuses it."""
    if data.strip() == _DONE:
        return Payload(line, event, data, None)
    try:
        check(data)
        value = decode_json(data)
    except (WireError, InvalidRequestError) as error:
        raise UnreadableCapture(line, error.message) from error
    if not isinstance(value, dict):
        raise UnreadableCapture(line, f"expected a JSON object, got {type(value).__name__}")
    return Payload(line, event, data, value)
