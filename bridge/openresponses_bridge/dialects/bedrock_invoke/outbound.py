"""Converts events to those of `invoke-with-response-stream`: a Messages stream in which every event is the
`bytes` of a `chunk`, and a failure is an exception."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import astuple

import openresponses_bridge.dialects.anthropic_messages.types as t
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.anthropic_messages.client.ending import Reported
from openresponses_bridge.dialects.anthropic_messages.client.outbound import Outbound as MessagesOutbound
from openresponses_bridge.dialects.bedrock_converse.client.ending import latency
from openresponses_bridge.dialects.bedrock_converse.client.errors import exception
from openresponses_bridge.dialects.bedrock_converse.event_stream import (
    FramesOfMessages,
    encode_event,
)
from openresponses_bridge.dialects.bedrock_invoke.inbound import CHUNK
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.seal import Sealer

Json = dict[str, Any]
_METRICS: Final = "amazon-bedrock-invocationMetrics"
_COUNTS: Final = {
    "input_tokens": "inputTokenCount",
    "output_tokens": "outputTokenCount",
    "cache_read_input_tokens": "cacheReadInputTokenCount",
    "cache_creation_input_tokens": "cacheWriteInputTokenCount",
}
"""The counts of Messages → those of the metrics."""
_LONGEST_EVENT: Final = 8 * 1024 * 1024
"""The most bytes of one event before base64: SDKs refuse messages of little more than twice that."""


class Outbound:
    """Converts one response to one message, as `Outbound` of Messages does, which explains the arguments."""

    def __init__(
        self,
        sealer: Sealer | None = None,
        tool_identities: ToolIdentityMap | None = None,
        input_tokens: int = 0,
        reported: Reported = lambda: None,
    ) -> None:
        self._messages = MessagesOutbound(sealer, tool_identities, input_tokens, reported)
        self.diagnostics = self._messages.diagnostics
        self._usage: Json = {}

    def feed(self, event: Event) -> list[Json]:
        """Return the events that this event causes."""
        return [self._event(chunk, event) for chunk in self._messages.feed(event)]

    def close(self) -> list[Json]:
        """Handle the end of the events, which is an exception without a terminal event before."""
        return [self._event(chunk) for chunk in self._messages.close()]

    def _event(self, chunk: t.Chunk, cause: Event | None = None) -> Json:
        if isinstance(chunk, t.ErrorFrame):
            error = dict(chunk.error or {})
            return exception(error.pop("type", None), error.pop("message", ""), native=error)
        if isinstance(chunk, t.MessageDelta):
            self._usage = chunk.usage or {}
        elif isinstance(chunk, t.MessageStop):
            return {CHUNK: {"type": "message_stop", _METRICS: self._metrics(cause)}}
        return {CHUNK: chunk}

    def _metrics(self, cause: Event | None) -> Json:
        counts = {theirs: self._usage[ours] for ours, theirs in _COUNTS.items() if ours in self._usage}
        # also the event of a failure, if the other server's response has no status that says so
        assert isinstance(cause, ev.ResponseCompleted | ev.ResponseIncomplete | ev.ResponseFailed)
        return {**counts, "invocationLatency": latency(cause.response)}


def encode_events(events: Iterable[Json]) -> bytes:
    """Encode events as messages of an event stream, as clients of InvokeModel require."""
    return b"".join(map(_message, events))


def encode_sse(events: Iterable[Json]) -> bytes:
    """Encode events as server-sent events, as in a capture."""
    return FramesOfMessages().feed(encode_events(events))


def _message(event: Json) -> bytes:
    ((kind, fields),) = event.items()
    payload = encode(fields)
    if kind != CHUNK:
        return encode_event(kind, payload, message="exception")
    if len(payload) > _LONGEST_EVENT and (halves := _halves(fields)):
        return encode_events(halves)
    return encode_event(CHUNK, b'{"bytes":"%b"}' % b64encode(payload))


def _halves(chunk: Any) -> list[Json]:
    """Return a delta as two deltas with half of its text each; [] for a delta without text."""
    delta = chunk.delta if isinstance(chunk, t.ContentBlockDelta) else None
    if not isinstance(delta, t.TextDelta | t.InputJsonDelta | t.ThinkingDelta):
        return []
    (text,) = astuple(delta)
    half, kind = len(text) // 2, type(delta)
    return [{CHUNK: t.ContentBlockDelta(chunk.index, kind(each))} for each in (text[:half], text[half:])]
