"""Server-sent events: bytes to frames, incrementally, and frames to bytes.

The grammar is that of the WHATWG "event stream" (HTML, section 9.2), with four differences for the sake of
real servers:

- A last frame that lacks its blank line is returned at the end, not dropped.
- A block without a ``data`` line that begins like a JSON object is itself the data. Google reports an error
  in this way after other frames.
- A block with an ``error`` line instead of a ``data`` line is an event of the name `error`, with that line as
  its data. llama.cpp's server reports errors in this way.
- If a frame has several ``data`` lines and each of them is a JSON object or ``[DONE]``, each is a frame.

Every line end is converted to LF first, so that each frame ends with ``b"\\n\\n"`` and `bytes.split` finds
the frames. Only a frame with more than ``event`` and one ``data`` line is read line by line.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from openresponses_bridge.errors import LocalError, WireError

DONE: Final = b"data: [DONE]\n\n"
"""The frame that ends a stream of OpenAI's APIs."""

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024

# Integers, since `in` finds these in bytes five times as fast as a bytes object of length 1.
_LF: Final = 10
_CR: Final = 13
_BOM: Final = b"\xef\xbb\xbf"
_OBJECT: Final = b"{"
_ERROR: Final = b"error"
_WHOLE: Final = re.compile(rb"\{\s*\".*\}\s*|\[DONE\]")  # a data line that is a frame
# More digits than any clock needs, and few enough for `int` to take without its own limit.
_MAX_RETRY_DIGITS: Final = 18


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event.

    `event` is its name, "" if it has none; `data` are its data lines joined by LF, not decoded; `id` and
    `retry` (milliseconds) are those of this frame alone, None if it has none.
    """

    event: str = ""
    data: bytes = b""
    id: str | None = None
    retry: int | None = None

    @property
    def name(self) -> str:
        """The event's name; for a frame without one `message`, the standard's default."""
        return self.event or "message"


class SSEDecoder:
    """Decodes the bytes of one event stream into frames. The chunks may begin and end anywhere.

    `max_frame_bytes` is the limit of one frame, with its comments and field names but without its blank line.
    A larger frame raises `WireError` ``bridge.sse.frame_too_large``. If there are frames before it, they are
    returned first; the next call and every later one raise.
    """

    __slots__ = ("_after_cr", "_at_start", "_buffer", "_error", "_max", "last_event_id", "retry", "skipped")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.last_event_id = ""
        """The id to resume from: as the standard requires, the last one received, in whichever frame."""
        self.retry: int | None = None
        """Milliseconds to wait before a new connection, as the server last sent them; None if it sent
        none."""
        self.skipped = 0
        """The number of blocks without data, such as comments, which give no frame."""
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._at_start = True
        self._after_cr = False
        self._error: WireError | None = None

    @property
    def is_between(self) -> bool:
        """True if nothing is buffered and the next byte begins a frame, so that the caller may read that
        frame without this decoder."""
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
        """End the stream. Return its last frame if that lacks a blank line, otherwise nothing.

        The decoder can then read another stream; it keeps `last_event_id`. Raises `WireError`
        ``bridge.sse.frame_too_large`` if a frame was too large.
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
        """Return `frames` if the bytes that are buffered after them can still become a frame within the
        limit; otherwise refuse the frame that they begin."""
        # A last LF may be the first half of a blank line, which is not counted.
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
        """Read one frame line by line, or several that have no blank line between them. Without data there is
        no frame, as the standard requires."""
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
        """Convert CRLF and CR to LF. A CR at the end of a chunk is converted at once, and an LF at the
        beginning of the next chunk is then skipped."""
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
    """Return one named frame. Each line of `data` becomes a ``data`` line.

    Raises `LocalError` ``bridge.sse.invalid_event_name`` for a name with a line end, which would add fields
    to the frame.
    """
    name = event if isinstance(event, bytes) else event.encode()
    if _LF in name or _CR in name:
        raise LocalError("bridge.sse.invalid_event_name", f"the event name {name!r} contains a line end")
    return b"event: " + name + b"\n" + encode_data(data)


def encode_data(data: bytes) -> bytes:
    """Return one frame without a name, as Chat Completions sends it. Each line of `data` becomes a ``data``
    line."""
    if _LF in data or _CR in data:
        data = b"\ndata: ".join(_lines(data))
    return b"data: " + data + b"\n\n"


def encode_comment(text: str) -> bytes:
    """Return a comment, which clients ignore: it keeps a connection alive."""
    return b": " + b"\n: ".join(_lines(text.encode())) + b"\n\n"


def _lines(data: bytes) -> list[bytes]:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
