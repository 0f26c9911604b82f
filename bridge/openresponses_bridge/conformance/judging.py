"""Validates a whole stream at once, and responses and WebSocket errors outside a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from openresponses_bridge.conformance.advance import call_id_of
from openresponses_bridge.conformance.published import AUTO, OPENRESPONSES, WireName, wire_of, wire_of_item
from openresponses_bridge.conformance.registry import ENVELOPE, RULES, TERMINALS, Violation
from openresponses_bridge.conformance.tracks import EventContext, ItemTrack, StreamTrack
from openresponses_bridge.conformance.validator import StreamValidator
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.lenient import Repair
from openresponses_bridge.sse import Frame, SSEDecoder
from openresponses_bridge.state import STATUSES

# A response and a WebSocket error are checked by those rules of streams that apply to them: a response as in
# the event of its status, each of its items as in the item's done event.

# status of a response → the event with such a response
_EVENT_OF: Final = {status: event for event, statuses in STATUSES.items() for status in sorted(statuses)} | {
    "in_progress": "response.in_progress"
}
_ENDED: Final = frozenset({"completed", "incomplete", "cancelled"})
# rules for a response, for each of its items, and for the items of a response that has ended
_OF_RESPONSE: Final = (
    "schema",
    "status.event_matches",
    "response.completed_at",
    "response.completed_after_created",
    "response.error_iff_failed",
    "response.incomplete_details_iff",
    "usage.sum",
    "usage.negative",
    "usage.part_of_whole",
)
_OF_ITEM: Final = ("item.has_status", "item.id_unique", "message.role_assistant", "call.id_unique")
_OF_DONE_ITEM: Final = ("item.closed_status",)
_OF_COMPLETED: Final = ("item.incomplete_response",)


def validate_response(value: Mapping[str, Any], wire: WireName = AUTO) -> list[Violation]:
    """Return the violations in a response that was received as one JSON object. Paths start at it
    (``$.usage``)."""
    response = dict(value)
    status = response.get("status")
    kind = _EVENT_OF.get(status if isinstance(status, str) else "", "response.in_progress")
    output = response.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    stream = StreamTrack()
    context = _context_of(stream, wire, {"type": kind, "sequence_number": 0, "response": response})
    if context.wire == AUTO:
        decided = (only for item in items if (only := wire_of_item(item)) is not None)
        context.wire = wire_of(context) or next(decided, "any")
    violations = _findings(_OF_RESPONSE, context, "$.response", "$")
    for index, item in enumerate(items):
        violations += _judge_item(stream, context.wire, index, item, ended=status in _ENDED)
    if kind == "response.completed":
        violations += _findings(_OF_COMPLETED, context, "$.response", "$")
    return violations


def validate_envelope(value: Mapping[str, Any]) -> list[Violation]:
    """Return the violations in a WebSocket error: `{type, status, error: {code, message}}`."""
    context = EventContext(StreamTrack(), OPENRESPONSES, dict(value))
    rules = [each.id for each in RULES.values() if ENVELOPE in each.on]
    return _findings(rules, context, "$", "$")


def _context_of(stream: StreamTrack, wire: str, raw: dict[str, Any]) -> EventContext:
    repairs: list[Repair] = []
    try:
        codec.decode_event(codec.encode(raw), repairs)
    except (WireError, TypeError, ValueError, NotImplementedError, RecursionError) as error:
        repairs.append(Repair("$.response", f"it can't be read: {error}"))
    return EventContext(stream, wire, raw, repairs)


def _judge_item(
    stream: StreamTrack, wire: str, index: int, item: dict[str, Any], *, ended: bool
) -> list[Violation]:
    context = EventContext(
        stream, wire, {"type": "response.output_item.done", "output_index": index, "item": item}
    )
    rules = _OF_ITEM + _OF_DONE_ITEM if ended else _OF_ITEM
    violations = _findings(rules, context, "$.item", f"$.output[{index}]")
    track = ItemTrack(index, item)
    stream.begin(track)
    if track.id is not None:
        stream.by_id.setdefault(track.id, track)
    if (call_id := call_id_of(item)) is not None:
        stream.call_ids.add(call_id)
    if item.get("status") == "incomplete" and stream.cut is None:
        stream.cut = track
    return violations


def _findings(rules: Iterable[str], context: EventContext, inside: str, place: str) -> list[Violation]:
    return [
        Violation(name, 0, _NAMES.get(inside, context.type), _moved(path, inside, place), message)
        for name in rules
        for message, path in _checked(name, context)
    ]


def _checked(name: str, context: EventContext) -> Iterator[tuple[str, str]]:
    yield from RULES[name].check(context)


def _moved(path: str, inside: str, place: str) -> str:
    return place + path.removeprefix(inside) if path.startswith(inside) else path or place


# path in the event → the name of what is checked
_NAMES: Final = {"$.response": "response", "$.item": "response"}


_ENDS = tuple(kind.encode() for kind in TERMINALS)
Piece = bytes | str | Event | Mapping[str, Any]


def validate_capture(
    stream: bytes | str | Iterable[Piece], wire: WireName
) -> tuple[list[Violation], dict[str, Any]]:
    """Return the violations, and the response of the last terminal event as a JSON object, empty if there is
    none.

    `stream` is one response's stream: text of server-sent events, whole or in pieces of any size, or events.
    Raises TypeError for anything else, and for text among events.
    """
    if isinstance(stream, Mapping):
        raise TypeError("expected the events of a stream, got a single object")
    pieces = [stream] if isinstance(stream, bytes | str) else stream
    stream_of = _CaptureReader(wire)
    for piece in pieces:
        if isinstance(piece, bytes | bytearray | str):
            stream_of.text(piece.encode() if isinstance(piece, str) else bytes(piece))
        else:
            stream_of.event(piece)
    return stream_of.close()


class _CaptureReader:
    def __init__(self, wire: WireName) -> None:
        self._validator = StreamValidator(wire)
        self._decoder: SSEDecoder | None = None
        self._events = 0
        self._response: Any = None

    def text(self, data: bytes) -> None:
        if self._events:
            raise TypeError("expected an event as those before, got text")
        self._decoder = self._decoder or SSEDecoder()
        self._frames(self._decoder.feed(data))

    def event(self, event: Any) -> None:
        if self._decoder is not None:
            raise TypeError(f"expected text as before, got {type(event).__name__}")
        self._events += 1
        self._validator.feed(event)
        kind = event.get("type") if isinstance(event, Mapping) else event.type
        if kind in TERMINALS:
            self._response = codec.decode_json(codec.encode(event)).get("response")

    def close(self) -> tuple[list[Violation], dict[str, Any]]:
        if self._decoder is not None:
            self._frames(self._decoder.close())
        self._validator.close()
        response = self._response if isinstance(self._response, dict) else {}
        return self._validator.violations, response

    def _frames(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self._validator.feed_frame(frame)
            if (event := _terminal(frame.data)) is not None:
                self._response = event.get("response")


def _terminal(data: bytes) -> dict[str, Any] | None:
    """Return the event if it is a terminal one."""
    if not any(kind in data for kind in _ENDS):
        return None
    try:
        event = codec.decode_json(data)
    except WireError:
        return None
    return event if isinstance(event, dict) and event.get("type") in TERMINALS else None
