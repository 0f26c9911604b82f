"""Converts the stream of `invoke-with-response-stream` in a capture to calls of the machine, and so to
events."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from openresponses_bridge.dialects.anthropic_messages.upstream.inbound import Inbound as MessagesInbound
from openresponses_bridge.dialects.base import object_in
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame
from openresponses_bridge.protocol.events import Event

CHUNK: Final = "chunk"
"""The name of the event that has an event of Messages in its `bytes`."""


def event_in(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event of Messages in a frame; {} if it has none."""
    try:
        event = decode_frame(_bytes_in(value))
    except WireError:
        return {}
    return event if isinstance(event, dict) else {}


def _bytes_in(value: Mapping[str, Any]) -> bytes:
    """Return the bytes of a chunk; b"" if it has none that can be read."""
    encoded = object_in(value, CHUNK).get("bytes")
    try:
        return b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except ValueError:
        return b""


class Inbound(MessagesInbound):
    """Reads one message, whose events come in chunks; a whole message, and errors, have no envelope."""

    __slots__ = ()

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one frame's payload: an object with the chunk or the error; or a chunk, with its name."""
        return super().feed(_unwrapped(data, event), event if event != CHUNK else "")


def _unwrapped(data: bytes, event: str) -> bytes:
    """Return the event of Messages in this payload; the payload itself if it has none."""
    try:
        value = decode_frame(data)
    except WireError:
        return data
    if not isinstance(value, dict):
        return data
    return _bytes_in({CHUNK: value} if event == CHUNK and CHUNK not in value else value) or data
