"""Invariant: a Responses stream from any source can be decoded, folded, validated and sent on in linear time,
whatever its content, and only a BridgeError is ever raised."""

from __future__ import annotations

from openresponses_bridge import PartDecoder, ResponseAccumulator, SSEDecoder, StreamValidator, decode_event
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import check_event, decode_item, decode_response, encode
from openresponses_bridge.protocol.events import Event
from tests.fuzz.core import Target
from tests.fuzz.outward import sent_on
from tests.fuzz.targets.inbounds import RESPONSES as SEEDS


def any_events(data: bytes) -> None:
    decoder = SSEDecoder()
    fold, parts, events = ResponseAccumulator(), PartDecoder(), list[Event]()
    validators = [StreamValidator("any"), StreamValidator("openai"), StreamValidator()]
    for frame in decoder.feed(data) + decoder.close():
        for validator in validators:
            validator.feed_frame(frame)
        for strict in (check_event, decode_item, decode_response):
            try:
                encode(strict(frame.data))
            except BridgeError:
                continue
        try:
            event = decode_event(frame.data)
        except WireError:
            continue
        events.append(event)
        fold.feed(event)
        encode(fold.response)
        try:
            parts.feed(event)
        except BridgeError:
            break
    for validator in validators:
        validator.close()
    sent_on(events)


WORDS = (
    b"event: ",
    b"data: ",
    b'"output_index":',
    b'"item_id":',
    b'"sequence_number":',
    b"response.",
    b"slug:name",
)
TARGETS = [Target("events", any_events, SEEDS, WORDS)]
