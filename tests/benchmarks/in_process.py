"""Times each half in ns per event, beside the floor: decode one chat chunk and encode one event."""

from __future__ import annotations

from typing import Any

import msgspec

from openresponses_bridge import encode_sse
from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.decoder import PartDecoder, ResponseAccumulator
from openresponses_bridge.dialects.chat_completions import Inbound as ChatInbound
from openresponses_bridge.dialects.chat_completions.types import ChatChunk
from openresponses_bridge.protocol.codec import decode_event, encode
from openresponses_bridge.protocol.events import OutputTextDelta
from tests.benchmarks import streams
from tests.benchmarks.harness import Case, Measured, measure

_DELTA = OutputTextDelta(7, "msg_0123456789abcdef0123456789abcdef", 0, 0, streams.TOKEN, [])


def floor() -> Case:
    """The work that nothing can avoid: one typed JSON decode and one JSON encode."""
    decoder = msgspec.json.Decoder(ChatChunk)
    encoder = msgspec.json.Encoder()
    chunk = streams.chat_chunk()

    def work(n: int) -> None:
        for _ in range(n):
            decoder.decode(chunk)
            encoder.encode(_DELTA)

    return Case("floor: decode one chunk, encode one event", work)


def emit_structs(n: int) -> None:
    text = streams.machine().text
    for _ in range(n):
        text(streams.TOKEN)


def emit_bytes(n: int) -> None:
    text = streams.machine().text
    for _ in range(n):
        encode_sse(text(streams.TOKEN))


def emit_arguments(n: int) -> None:
    machine = streams.machine()
    machine.tool_call(0, "call_1", "lookup")
    for _ in range(n):
        machine.tool_call(0, arguments=streams.TOKEN)


def decode_events(n: int) -> None:
    data = encode(_DELTA)
    for _ in range(n):
        decode_event(data)


def _fed(consumer: Any, n: int) -> None:
    feed = consumer.feed
    for event in streams.text_stream(0):
        if event.type not in ("response.completed",):
            feed(event)
    machine = streams.machine()
    for event in machine.text("first"):
        feed(event)
    events = [machine.text(streams.TOKEN)[0] for _ in range(n)]
    for event in events:
        feed(event)


def emit_only(n: int) -> None:
    """The share of `_fed` before its consumer gets the events, which is to be subtracted."""
    machine = streams.machine()
    machine.text("first")
    events = [machine.text(streams.TOKEN)[0] for _ in range(n)]
    for _ in events:
        pass


def accumulate(n: int) -> None:
    _fed(ResponseAccumulator(), n)


def to_parts(n: int) -> None:
    _fed(PartDecoder(), n)


def validate(n: int) -> None:
    _fed(StreamValidator(), n)


def chat_to_bytes(n: int) -> None:
    feed = ChatInbound(streams.ResponseStreamStateMachine(model="m")).feed
    chunk = streams.chat_chunk()
    for _ in range(n):
        encode_sse(feed(chunk))


def chat_tools_to_bytes(n: int) -> None:
    feed = ChatInbound(streams.ResponseStreamStateMachine(model="m")).feed
    feed(streams.chat_tool_chunk("", call_id="call_1", name="lookup"))
    chunk = streams.chat_tool_chunk(streams.TOKEN)
    for _ in range(n):
        encode_sse(feed(chunk))


CASES = [
    Case("machine.text → struct", emit_structs),
    Case("machine.text → SSE bytes", emit_bytes),
    Case("machine.tool_call → struct", emit_arguments),
    Case("event bytes → struct", decode_events),
    Case("emit only (included in the next three)", emit_only),
    Case("emit and accumulate", accumulate),
    Case("emit and decode to parts", to_parts),
    Case("emit and validate", validate),
    Case("chat text chunk → SSE bytes", chat_to_bytes, "token"),
    Case("chat tool chunk → SSE bytes", chat_tools_to_bytes, "token"),
]


def run(n: int, rounds: int) -> list[Measured]:
    """Time every case beside the floor."""
    return measure(floor(), CASES, n, rounds)
