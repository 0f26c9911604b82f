"""Amazon's event stream: bytes to messages, incrementally, and messages to bytes.

A message is a prelude (its whole length, that of its headers, and a CRC of both), its headers, a payload and
a CRC of all before. Whatever a server sends, no more than one message is kept, and a message that is longer
than `MAX_MESSAGE_BYTES` is refused at once.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode

MEDIA_TYPE: Final = "application/vnd.amazon.eventstream"
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
_MAX_HEADER_BYTES: Final = 128 * 1024
_PRELUDE: Final = struct.Struct(">III")
_UINT32: Final = struct.Struct(">I")
_OVERHEAD: Final = _PRELUDE.size + _UINT32.size
_STRING: Final = 7
_SIZED: Final = frozenset({6, _STRING})  # types of values that have their length before them
# type of a value → its bytes; the first two types are values themselves
_FIXED: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
# line ends are white space in JSON, and never within a string
_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")

MESSAGE_TYPE: Final = ":message-type"
EVENT_TYPE: Final = ":event-type"
EXCEPTION_TYPE: Final = ":exception-type"
_ERROR_CODE: Final = ":error-code"
_ERROR_MESSAGE: Final = ":error-message"


class Message(NamedTuple):
    """One message, with those of its headers that are texts."""

    headers: dict[str, str]
    payload: bytes


class EventStreamDecoder:
    """Converts the bytes of one stream to messages, however the bytes are divided.

    Bytes that can't be a message raise `WireError` (`INVALID_SHAPE`, `FRAME_TOO_LARGE`): a wrong CRC, a
    length that no message has, headers that can't be read. The whole messages before them are returned first;
    the next call raises, and so does each call after it.
    """

    __slots__ = ("_buffer", "_error", "_length")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length = 0  # of the message at the beginning of the buffer, once its prelude was read
        self._error: WireError | None = None

    def feed(self, data: bytes) -> list[Message]:
        """Feed the next bytes. Returns the messages that they complete. Raises WireError."""
        if self._error is not None:
            raise self._error
        self._buffer += data
        messages: list[Message] = []
        at = 0
        try:
            while (length := self._length or self._read_length(at)) and at + length <= len(self._buffer):
                self._length = 0
                messages.append(_message(bytes(memoryview(self._buffer)[at : at + length])))
                at += length
        except WireError as error:
            self._error = error
            self._buffer.clear()
            if messages:
                return messages
            raise
        if length:
            self._length = length
        del self._buffer[:at]
        return messages

    def close(self) -> None:
        """End the stream. Raises WireError within a message, or if an error was not raised yet."""
        if self._error is None and self._buffer:
            self._error = _wrong(
                f"the event stream was cut within a message, after {len(self._buffer)} bytes"
            )
        if self._error is not None:
            raise self._error

    def _read_length(self, at: int) -> int:
        """Return the length of the message that begins here; 0 if its prelude is not complete."""
        if len(self._buffer) - at < _PRELUDE.size:
            return 0
        length, headers, crc = _PRELUDE.unpack_from(self._buffer, at)
        if crc32(memoryview(self._buffer)[at : at + 8]) != crc:
            raise _wrong("the prelude of a message has a wrong checksum")
        if length > MAX_MESSAGE_BYTES:
            raise WireError(
                WireError.FRAME_TOO_LARGE,
                f"a message of {length} bytes is larger than the limit of {MAX_MESSAGE_BYTES}",
                limit=MAX_MESSAGE_BYTES,
            )
        if length < _OVERHEAD or headers > min(length - _OVERHEAD, _MAX_HEADER_BYTES):
            raise _wrong(f"a message of {length} bytes can't have {headers} bytes of headers")
        return int(length)


def _message(data: bytes) -> Message:
    _, headers, _ = _PRELUDE.unpack_from(data)
    if crc32(memoryview(data)[: -_UINT32.size]) != _UINT32.unpack_from(data, len(data) - _UINT32.size)[0]:
        raise _wrong("a message has a wrong checksum")
    end = _PRELUDE.size + headers
    return Message(_headers(data[_PRELUDE.size : end]), data[end : -_UINT32.size])


def _headers(data: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        name = data[at + 1 : name_end]
        kind = data[name_end] if name_end < len(data) else -1
        begin = name_end + 1
        if kind in _SIZED:
            size = int.from_bytes(data[begin : begin + 2])
            begin += 2
        else:
            size = _FIXED.get(kind, len(data))
        at = begin + size
        if not name or kind < 0 or begin > len(data) or at > len(data):
            raise _wrong("a message has headers that can't be read")
        if kind == _STRING:
            try:
                key, value = name.decode(), data[begin:at].decode()
            except UnicodeDecodeError:
                raise _wrong("a message has headers that are not UTF-8") from None
            if key in headers:
                raise _wrong("a message has two headers of one name")
            headers[key] = value
    return headers


def _wrong(what: str) -> WireError:
    return WireError(WireError.INVALID_SHAPE, what)


def encode_message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Encode one message with headers that are all texts."""
    named = b"".join(_header(name.encode(), value.encode()) for name, value in headers.items())
    lengths = struct.pack(">II", len(named) + len(payload) + _OVERHEAD, len(named))
    body = b"%b%b%b%b" % (lengths, _UINT32.pack(crc32(lengths)), named, payload)
    return body + _UINT32.pack(crc32(body))


def _header(name: bytes, value: bytes) -> bytes:
    return struct.pack(">B", len(name)) + name + struct.pack(">BH", _STRING, len(value)) + value


def encode_event(kind: str, payload: bytes, *, message: str = "event") -> bytes:
    """Encode an event, or with `message` an exception, of this type."""
    headers = {
        EXCEPTION_TYPE if message == "exception" else EVENT_TYPE: kind,
        ":content-type": "application/json",
        MESSAGE_TYPE: message,
    }
    return encode_message(headers, payload)


class FramesOfMessages:
    """Converts the bytes of an event stream to server-sent events, as in a capture: each has the name of the
    event, and one object with a field of that name. Exceptions and errors become `error`."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages = EventStreamDecoder()

    def feed(self, data: bytes) -> bytes:
        """Return the frames of the messages that these bytes complete. Raises WireError."""
        return b"".join(map(_frame, self._messages.feed(data)))

    def close(self) -> None:
        """End the stream. Raises WireError if it was cut off."""
        self._messages.close()


def _frame(message: Message) -> bytes:
    headers, payload = message
    kind = headers.get(EVENT_TYPE, "")
    match headers.get(MESSAGE_TYPE, "event"):
        case "event" if kind.isascii() and kind.isalnum():
            return b'event: %b\ndata: {"%b":%b}\n\n' % (
                kind.encode(),
                kind.encode(),
                payload.translate(_ONE_LINE) or b"{}",
            )
        case "exception":
            exception = {"type": headers.get(EXCEPTION_TYPE, "exception"), "error": _said(payload)}
            return b"event: error\ndata: %b\n\n" % encode({"error": exception})
        case "error":
            error = {"type": headers.get(_ERROR_CODE, "error"), "message": headers.get(_ERROR_MESSAGE, "")}
            return b"event: error\ndata: %b\n\n" % encode({"error": error})
        case _:
            return b""  # of a kind that clients must skip


def _said(payload: bytes) -> Any:
    """Return the fields of an exception, or its text if it is not JSON."""
    try:
        return decode_json(payload)
    except WireError:
        return {"message": payload.decode("utf-8", "replace")}
