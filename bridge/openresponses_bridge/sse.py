"""Server-sent events: bytes to frames, incrementally, and frames to bytes.

Follows the WHATWG "event stream" grammar (HTML, section 9.2), with four differences, as real servers send
that: a last frame that lacks its blank line is delivered at the end and not dropped; a block without data
that begins as a JSON object is the data itself; one whose field is `error` is an event of that name; and
where each line of data is an object or the end of the stream, each is a frame.
Google reports an error in the second way, after the frames before it, llama.cpp's server in the third.

A frame ends at a blank line, so with every line end turned to LF a frame is what lies between two
``b"\\n\\n"``. That makes `bytes.split` the parser of the usual stream; only frames with more than
``event`` and one ``data`` line are read line by line.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from openresponses_bridge.errors import LocalError, WireError

DONE: Final = b"data: [DONE]\n\n"
"""The frame that ends a stream of OpenAI's APIs."""

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024

# As integers: `in` takes these five times as fast as one byte of bytes.
_LF: Final = 10
_CR: Final = 13
_BOM: Final = b"\xef\xbb\xbf"
_OBJECT: Final = b"{"
_ERROR: Final = b"error"
_WHOLE: Final = re.compile(rb"\{\s*\".*\}\s*|\[DONE\]")  # a line that is data by itself
# More digits than any clock needs, and few enough for `int` to take without its own limit.
_MAX_RETRY_DIGITS: Final = 18


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event.

    `event` is its name, "" when it had none; `data` its lines joined by LF, not decoded; `id` and
    `retry` (milliseconds) are what this very frame carried, None when it carried none.
    """

    event: str = ""
    data: bytes = b""
    id: str | None = None
    retry: int | None = None

    @property
    def name(self) -> str:
        """The event's name, with the default that the standard gives to a frame without one."""
        return self.event or "message"


class SSEDecoder:
    """Turns the bytes of one event stream into frames, wherever the chunks begin and end.

    `max_frame_bytes` is the limit of one frame: comments and field names count, its blank line does not. A
    larger one raises `WireError` ``bridge.sse.frame_too_large``: the frames before it are returned first,
    and the next call and every later one raise.
    """

    __slots__ = ("_after_cr", "_at_start", "_buffer", "_error", "_max", "last_event_id", "retry", "skipped")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.last_event_id = ""
        """The id to resume from, by the standard's rules: it outlives the frame that set it."""
        self.retry: int | None = None
        """Milliseconds to wait before a new connection, as last sent by the server."""
        self.skipped = 0
        """How many blocks were comments or had no data, so that they gave no frame."""
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._at_start = True
        self._after_cr = False
        self._error: WireError | None = None

    @property
    def is_between(self) -> bool:
        """True if the next byte begins a frame: the caller may then read a frame by itself."""
        return not (self._buffer or self._after_cr or self._at_start or self._error)

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes; return the frames that they complete.

        Raises `WireError` ``bridge.sse.frame_too_large``.
        """
        if self._error is not None:
            raise self._error
        if self._at_start:
            if self._buffer or data[:1] in _BOM:
                data = self._skip_bom(data)
            else:
                self._at_start = False
        if self._after_cr or _CR in data:
            data = self._to_lf(data)
        buffer = self._buffer
        if buffer:
            seen = len(buffer)
            buffer += data
            if buffer.find(b"\n\n", seen - 1) < 0:
                return self._within_limit([])
            data = bytes(buffer)
            buffer.clear()
        pieces = data.split(b"\n\n")
        if tail := pieces.pop():
            buffer += tail
        return self._frames(pieces) if len(data) <= self._max else self._frames_up_to_limit(pieces)

    def close(self) -> list[Frame]:
        """End the stream: return its last frame if that lacks a blank line, else nothing.

        The decoder then stands at the start of another stream and still knows `last_event_id`.
        Raises `WireError` ``bridge.sse.frame_too_large`` when that was not raised yet.
        """
        if self._error is not None:
            raise self._error
        tail = bytes(self._buffer)
        self._buffer.clear()
        self._at_start = True
        self._after_cr = False
        return self._parse(tail) if tail else []

    def _frames(self, pieces: list[bytes]) -> list[Frame]:
        frames = []
        for piece in pieces:
            if piece[:6] == b"data: " and _LF not in piece:
                frames.append(Frame("", piece[6:]))
                continue
            if not piece or (piece[:1] == b":" and _LF not in piece):
                self.skipped += 1
                continue
            head, _, rest = piece.partition(b"\n")
            if rest[:6] == b"data: " and head[:7] == b"event: " and _LF not in rest:
                frames.append(Frame(head[7:].decode("utf-8", "replace"), rest[6:]))
            elif parsed := self._parse(piece):
                frames += parsed
            else:
                self.skipped += 1
        return frames

    def _frames_up_to_limit(self, pieces: list[bytes]) -> list[Frame]:
        for index, piece in enumerate(pieces):
            if len(piece) > self._max:
                return self._refuse(self._frames(pieces[:index]))
        return self._within_limit(self._frames(pieces))

    def _within_limit(self, frames: list[Frame]) -> list[Frame]:
        """Return `frames` if what is buffered behind them can still become a frame within the limit."""
        # The LF that ends a line may prove to be half of the blank line, which is not counted.
        size = len(self._buffer) - self._buffer.endswith(b"\n")
        return frames if size <= self._max else self._refuse(frames)

    def _refuse(self, frames: list[Frame]) -> list[Frame]:
        self._buffer = bytearray()
        self._error = WireError(
            WireError.FRAME_TOO_LARGE,
            f"a server-sent event is larger than the limit of {self._max} bytes",
            limit=self._max,
        )
        if frames:
            return frames
        raise self._error

    def _parse(self, piece: bytes) -> list[Frame]:
        """Read one frame line by line, or several that no blank line divides; none when it has no data and so
        is not dispatched."""
        event = b""
        lines: list[bytes] = []
        errors: list[bytes] = []
        id_: str | None = None
        retry: int | None = None
        for line in piece.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                lines.append(value)
            elif field == b"event":
                event = value
            elif field == _ERROR:
                errors.append(value)
            elif field == b"id" and 0 not in value:
                id_ = value.decode("utf-8", "replace")
            elif field == b"retry" and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
                retry = int(value)
        if id_ is not None:
            self.last_event_id = id_
        if retry is not None:
            self.retry = retry
        if not lines and errors:
            event, lines = event or _ERROR, errors
        elif not lines and piece.lstrip(b"\n")[:1] == _OBJECT:
            lines.append(piece.strip(b"\n"))
        if not lines:
            return []
        name = event.decode("utf-8", "replace")
        if len(lines) > 1 and all(map(_WHOLE.fullmatch, lines)):
            return [Frame(name, line, id_, retry) for line in lines]
        return [Frame(name, b"\n".join(lines), id_, retry)]

    def _skip_bom(self, data: bytes) -> bytes:
        data = bytes(self._buffer) + data
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._buffer[:] = data
            return b""
        self._buffer.clear()
        self._at_start = False
        return data.removeprefix(_BOM)

    def _to_lf(self, data: bytes) -> bytes:
        """Turn CRLF and CR to LF; a CR that ends the chunk counts at once, and its LF is then skipped."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def is_done(frame: Frame) -> bool:
    """Return True if the frame is the ``[DONE]`` that ends a stream of OpenAI's APIs."""
    return frame.data.strip() == b"[DONE]"


def encode_frame(event: str | bytes, data: bytes) -> bytes:
    """One named frame. Line ends in `data` become one ``data`` line each.

    Raises `LocalError` ``bridge.sse.invalid_event_name`` for a name with a line end: it would forge fields.
    """
    name = event if isinstance(event, bytes) else event.encode()
    if _LF in name or _CR in name:
        raise LocalError("bridge.sse.invalid_event_name", f"the event name {name!r} contains a line end")
    return b"event: " + name + b"\n" + encode_data(data)


def encode_data(data: bytes) -> bytes:
    """One frame without a name, as Chat Completions sends them."""
    if _LF in data or _CR in data:
        data = b"\ndata: ".join(_lines(data))
    return b"data: " + data + b"\n\n"


def encode_comment(text: str) -> bytes:
    """A comment, which clients skip: it keeps a connection alive."""
    return b": " + b"\n: ".join(_lines(text.encode())) + b"\n\n"


def _lines(data: bytes) -> list[bytes]:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
