"""Law S8: the limits of one request: the size of its body, the depth and number of values of its
JSON, its items and its tools, on every surface."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, Final

from msgspec import UNSET

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.input_items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    MessageParam,
    ReasoningParam,
)
from openresponses_bridge.protocol.request import CreateResponse, ForeignFields, conversation_of
from openresponses_bridge.protocol.tools import FunctionToolParam
from openresponses_bridge.protocol.unknown import Unknown
from openresponses_server.errors import HttpError
from openresponses_server.settings import Limits

_LONGEST_NAME: Final = 1024
"""Characters of the name of a model or tool, or of an id."""
_NONE: Final[list[Any]] = []
_CONVERSATION: Final = "conversation"
_MESSAGES: Final = "messages"
_NAME_FIELDS: Final = ("id", "call_id", "name")
# the types of almost all items and tools, none of which contain tools
_HAVE_NO_TOOLS: Final = frozenset(
    {MessageParam, ReasoningParam, FunctionCallParam, FunctionCallOutputParam, FunctionToolParam}
)


def _check_beyond(beyond: list[ForeignFields]) -> None:
    """Raises InvalidRequestError for a conversation in the field of another API, which would be ignored."""
    if any(not place and _MESSAGES in fields for place, fields, _ in beyond):
        what = "this API reads the conversation from `input`; `messages` is read at /v1/chat/completions"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=_MESSAGES)


def check_request(request: CreateResponse, limits: Limits, *, param: str = "input") -> None:
    """Raises InvalidRequestError with `param` if a request exceeds the limits of items, tools or the length
    of names. `param` is the surface's name of the input."""
    own = request.input if isinstance(request.input, list) else []
    for field in ("model", "previous_response_id"):
        value = getattr(request, field)
        if value and len(value) > _LONGEST_NAME:
            check_name(value, field)
    for where, named in ((param, own), ("tools", request.tools or _NONE)):
        for index, each in enumerate(named):
            for field in _NAME_FIELDS:
                name = getattr(each, field, None)
                if isinstance(name, str) and len(name) > _LONGEST_NAME:
                    check_name(name, f"{where}[{index}].{field}")
    if request.beyond is not UNSET:
        _check_beyond(request.beyond)
    if request.conversation is not None:
        _check_conversation_field(request)
    if len(own) > limits.items:
        raise _refused(f"The request has {len(own)} items; the limit is {limits.items}.", param)
    declared = _count(request.tools) if request.tools else 0
    declared += sum(map(_count, filter(None, map(_nested, own))))
    if declared > limits.tools:
        raise _refused(f"The request declares {declared} tools; the limit is {limits.tools}.", "tools")


def _check_conversation_field(request: CreateResponse) -> None:
    """Raises InvalidRequestError for a conversation that is not named by an id, or that is given together
    with fields that exclude it."""
    check_name(conversation_of(request) or "", _CONVERSATION)
    if request.previous_response_id is not None:
        what = "conversation and previous_response_id are mutually exclusive: both name what came before"
        raise _refused(what, _CONVERSATION)
    if request.store is False:
        what = "a response in a conversation must be stored, since its items are appended to the conversation"
        raise _refused(what, "store")


def check_choices(n: int, owner: str, limits: Limits, per_key: int) -> None:
    """Raises InvalidRequestError (`n`) for more choices than the limit, or than this owner can have
    concurrent runs, `per_key`."""
    at_once = min(limits.concurrent, per_key) if owner else limits.concurrent
    most = min(limits.choices, at_once)
    if n > most:
        raise _refused(f"n: {n} choices were asked for; the limit is {most}.", "n")


def check_conversation(request: CreateResponse, earlier: int, limits: Limits) -> None:
    """Raises InvalidRequestError if the request's items, together with the `earlier` items of the
    conversation that it continues, exceed the limit."""
    items = earlier + (len(request.input) if isinstance(request.input, list) else 1)
    if earlier and items > limits.items:
        what = f"The conversation has {items} items with this request; the limit is {limits.items}."
        raise _refused(what, _CONVERSATION if request.conversation is not None else "previous_response_id")


def check_name(name: str, param: str) -> None:
    """Raises InvalidRequestError if the name of a model or tool, or an id, is too long: names are searched,
    compared, logged and stored in many places."""
    if len(name) > _LONGEST_NAME:
        what = f"{param} has {len(name)} characters; the limit is {_LONGEST_NAME}."
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=param)


def _count(tools: Iterable[Any]) -> int:
    """The number of tools: a namespace, and each tool in it."""
    return sum(1 + len(_nested(tool)) for tool in tools)


def _nested(value: Any) -> list[Any]:
    """The tools within an item or a tool, of a type that is known or not."""
    if type(value) in _HAVE_NO_TOOLS:
        return _NONE
    if isinstance(value, Unknown):
        value = value.raw
    tools = value.get("tools") if isinstance(value, dict) else getattr(value, "tools", None)
    return tools if isinstance(tools, list) else []


def _refused(message: str, param: str | None = None) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, message, param=param)


# How deep a JSON text is nested and how many values it has, counted before it is decoded. A decoder creates
# an object for each value and holds the interpreter meanwhile, so its input is limited first. The scan takes
# a few passes of C code over each piece of the text and keeps only its position: linear time and constant
# memory for any text.

_PIECE: Final = 64 * 1024  # bytes; the interpreter can serve other threads between two pieces
_STRUCTURE: Final = b'"[]{},'
_OTHERS: Final = bytes(set(range(256)) - set(_STRUCTURE))
# a quote and what follows up to the next, or up to the end: there is one way to match, so it never backtracks
_STRINGS: Final = re.compile(rb'"[^"]*"?')
_OPENED, _CLOSED = 1, 0xFF  # 0xFF is -1 as a signed byte
_STEPS: Final = bytes.maketrans(b"[{]}", bytes([_OPENED, _OPENED, _CLOSED, _CLOSED]))


def check_json(body: bytes, limits: Limits) -> None:
    """Raises InvalidRequestError if a JSON text exceeds the limits of depth or values. A text that is not
    JSON may pass: decoders report the error more precisely and stop at it.
    """
    opened = body.count(b"[") + body.count(b"{")
    if opened <= limits.depth and opened + body.count(b",") + body.count(b'"') < limits.json_values:
        return
    scan = _Scan(limits)
    start = 0
    while start < len(body):
        end = _end_of_piece(body, start)
        scan.feed(body[start:end])
        start = end
    scan.close()


class _Scan:
    """The state of the scan: whether it is within a string, how deep, and the number of values so far."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._in_string = False
        self._depth = 0
        self._too_deep = False
        self._values = 1

    def feed(self, piece: bytes) -> None:
        """Scan the next piece, which must not end within an escape."""
        if b"\\" in piece:
            piece = piece.replace(rb"\\", b"").replace(rb"\"", b"")
        marks = piece.translate(None, _OTHERS)
        quotes = marks.count(b'"')
        if self._in_string:
            marks = b'"' + marks
        self._in_string ^= quotes % 2 == 1
        marks, strings = _STRINGS.subn(b"", marks)
        opened = marks.count(b"[") + marks.count(b"{")
        self._count(opened + max(marks.count(b","), strings // 2))
        self._descend(marks.replace(b",", b""), opened)

    def close(self) -> None:
        """The text has ended. One with open brackets passes: the decoder reports that it is not JSON."""
        if self._too_deep and self._depth == 0:
            raise _refused(f"The JSON is nested deeper than the limit of {self._limits.depth}.")

    def _count(self, more: int) -> None:
        """Count values: by the comma before each but the first of its container, which is counted with the
        container's bracket. Strings without commas between them are not JSON; two count as one value."""
        self._values += more
        if self._values > (most := self._limits.json_values):
            raise _refused(f"The JSON has more values than the limit of {most}.")

    def _descend(self, brackets: bytes, opened: int) -> None:
        if not self._too_deep and self._depth + opened > self._limits.depth:
            steps = memoryview(brackets.translate(_STEPS)).cast("b")
            self._too_deep = max(accumulate(steps, initial=self._depth)) > self._limits.depth
        self._depth += 2 * opened - len(brackets)


def _end_of_piece(body: bytes, start: int) -> int:
    """Return the end of the piece that begins here: never between a backslash and what it escapes."""
    piece = body[start : start + _PIECE]
    backslashes = len(piece) - len(piece.rstrip(b"\\"))
    return start + len(piece) + backslashes % 2


# The headers of a request are checked before its body is read.

_JSON = "application/json"
_DIGITS = 20  # more than any length has


def check_type(content_type: str) -> None:
    """Raises HttpError 415 for a content type that is not JSON: a web page may send others to any server."""
    if content_type == _JSON:
        return
    kind = content_type.partition(";")[0].strip().lower()
    if kind != _JSON and not kind.endswith("+json"):
        named = f"not {kind[:80]}" if kind else "and must be given"
        raise HttpError(415, f"The content type must be application/json, {named}.")


def check_length(content_length: str, limit: int) -> None:
    """Raises HttpError 413 if `content-length` is more than `limit` bytes."""
    if content_length.isdecimal() and len(content_length) < _DIGITS and int(content_length) > limit:
        raise too_large(limit)


def too_large(limit: int) -> HttpError:
    """A body of more than `limit` bytes."""
    return HttpError(413, f"The body is larger than the limit of {limit} bytes.")
