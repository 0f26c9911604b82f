"""A capture, line by line: server-sent events or JSON lines, as the first line shows.

Payloads come out as they are read, so that a capture which is still being written can be followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from bridge.dialects.base import type_of
from bridge.dialects.responses import DIALECT
from bridge.errors import WireError
from bridge.protocol.codec import decode_json
from bridge.sse import Frame, SSEDecoder
from bridge.state import TERMINAL_EVENT

Numbered = Iterable[tuple[int, bytes]]

_SSE_LINE: Final = re.compile(rb"(data|event|id|retry)?:|(data|event|id|retry)\s*\Z")
_FIELD: Final = re.compile(rb"(data|event):")
_STATUS_LINE: Final = b"HTTP/"
_OPENS: Final = {b"{": b"}", b"[": b"]"}
_BOM: Final = b"\xef\xbb\xbf"
_DONE: Final = b"[DONE]"


class Unreadable(Exception):
    """The capture can't be read; the message names the line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line


class Payload(NamedTuple):
    """One payload: `line` is where it begins, `event` the name of its frame (None for a JSON line), `data`
    its bytes and `value` the JSON object that they are; None for `[DONE]`."""

    line: int
    event: str | None
    data: bytes
    value: dict[str, Any] | None


_TERMINAL: Final = frozenset(event.type for event in TERMINAL_EVENT.values())


def begins_response(payload: Payload) -> bool:
    """Whether a Responses stream begins here."""
    return payload.value is not None and DIALECT.recording.begins(payload.value, None)


def ends_response(payload: Payload) -> bool:
    """Whether a Responses stream ends here."""
    return payload.value is not None and type_of(payload.value) in _TERMINAL


def read_capture(lines: Iterable[bytes]) -> Iterator[Payload]:
    """The payloads of a capture; heads of HTTP answers before them (`curl -i`) are passed over. Raises
    Unreadable."""
    numbered = enumerate(lines, 1)
    for number, line in numbered:
        line = line.removeprefix(_BOM) if number == 1 else line
        if line.startswith(_STATUS_LINE):
            _pass_over_head(numbered)
        elif line.strip():
            yield from _payloads(line)(chain([(number, line)], numbered), number)
            return
    raise Unreadable(1, "there is nothing in it")


def _payloads(line: bytes) -> Callable[[Numbered, int], Iterator[Payload]]:
    if _SSE_LINE.match(line):
        return _frames
    return _json_lines


def _pass_over_head(lines: Numbered) -> None:
    for _number, line in lines:
        if not line.strip():
            return


def _json_lines(lines: Numbered, _first: int) -> Iterator[Payload]:
    for number, line in lines:
        if line.strip():
            data = line.strip()
            yield payload_of(number, None, _indented(data, lines) if data in _OPENS else data)


def _indented(first: bytes, lines: Numbered) -> bytes:
    """A JSON value over several lines, as formatters write it: its last line begins with its bracket."""
    closing = _OPENS[first]
    pieces = [first]
    for _number, line in lines:
        pieces.append(line)
        if line.startswith(closing):
            break
    return b"".join(pieces).strip()


def _frames(lines: Numbered, first: int) -> Iterator[Payload]:
    decoder = SSEDecoder()
    begins = number = first
    seen = False
    waiting = b""  # the data lines of the frame that is not closed yet
    for number, line in lines:
        feed = [line]
        if waiting and _FIELD.match(line) and _is_whole(waiting):
            feed = [b"\n", line]  # captures without blank lines: each line is a frame
        for piece in feed:
            for frame in _located(number, partial(decoder.feed, piece)):
                seen, waiting = True, b""
                yield payload_of(begins, frame.event, frame.data)
        if line.startswith(b"data:"):
            begins = begins if waiting else number
            waiting += line[5:]
    for frame in _located(number, decoder.close):
        seen = True
        yield payload_of(begins, frame.event, frame.data)
    if not seen:
        raise Unreadable(number, "the stream ends before its first event")


def _is_whole(data: bytes) -> bool:
    try:
        return data.strip() == _DONE or decode_json(data) is not None
    except WireError:
        return False


def _located(number: int, read: Callable[[], list[Frame]]) -> list[Frame]:
    try:
        return read()
    except WireError as error:
        raise Unreadable(number, error.message) from error


def payload_of(line: int, event: str | None, data: bytes) -> Payload:
    """What stands at this line. Raises Unreadable for what is not a JSON object."""
    if data.strip() == _DONE:
        return Payload(line, event, data, None)
    try:
        value = decode_json(data)
    except WireError as error:
        raise Unreadable(line, error.message) from error
    if not isinstance(value, dict):
        raise Unreadable(line, f"expected a JSON object, got {type(value).__name__}")
    return Payload(line, event, data, value)
