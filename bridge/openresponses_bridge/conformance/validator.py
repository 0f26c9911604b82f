"""`StreamValidator`: checks every event of one response's stream against every rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import UNSET

from openresponses_bridge.conformance.advance import advance
from openresponses_bridge.conformance.published import AUTO, EVENTS, OPENAI, OPENRESPONSES, WireName, wire_of
from openresponses_bridge.conformance.registry import (
    END,
    EVERY,
    FRAME,
    MARKER,
    UNREADABLE,
    WITHIN,
    Violation,
    rules_on,
)
from openresponses_bridge.conformance.tracks import EventContext, StreamTrack
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol import codec, vocabulary
from openresponses_bridge.protocol.events import Event, OutputTextDelta
from openresponses_bridge.protocol.lenient import Repair
from openresponses_bridge.sse import Frame, is_done
from openresponses_bridge.state import INDEX_OF_SUBJECT, LIFECYCLE_EVENTS, ROLES, StreamState

_KNOWN = frozenset(ROLES) | LIFECYCLE_EVENTS
_TEXT = (bytes, str)
_NOT_JSON = (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError)


def _fields(struct: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads a delta's number, text, output index, index within the item and padding at
    once."""
    index = INDEX_OF_SUBJECT.get(ROLES[struct.type].subject, "output_index")
    return attrgetter("sequence_number", "delta", "output_index", index, "obfuscation")


_DELTAS = {
    struct: _fields(struct)
    for kind, struct in vocabulary.EVENTS.structs.items()
    if kind in ROLES and ROLES[kind].verb == "delta"
}


class _OpenText(NamedTuple):
    """The item and part of the last valid delta, and the buffer of its text."""

    struct: type[Any]
    output_index: int
    within: int
    write: Callable[[str], int]


class StreamValidator:
    """Validates one response's stream; each WebSocket turn needs a new one.

    `wire` is the spelling that the stream must follow: `openresponses` (exactly the published schema,
    extensions as `slug:name`), `openai` (OpenAI's events and items), `any` (both, and unknown `response.*`
    events), or `auto`: the first event that only one of the first two allows decides between them. Until then
    `auto` reports what violates both; earlier violations of only the chosen wire are reported with the event
    that decides. The content of a stream never raises: anything wrong is a `Violation`.
    """

    def __init__(self, wire: WireName = "any") -> None:
        if wire not in EVENTS and wire != AUTO:
            raise ValueError(f"wire must be one of {AUTO}, {', '.join(EVENTS)}, not {wire!r}")
        self.wire: str = wire
        self.violations: list[Violation] = []
        """All violations so far, in order."""
        # violations of only one wire so far, while the wire is undecided
        self._doubtful: dict[str, list[Violation]] = {OPENRESPONSES: [], OPENAI: []}
        self._stream = StreamTrack()
        self._open: dict[str, _OpenText] = {}
        self._closed = False

    def feed(self, event: Event | bytes | str | Mapping[str, Any]) -> list[Violation]:
        """Check the next event: a struct, JSON text or a JSON object. Returns its violations.

        A struct that was decoded with repairs is checked as it was received. Raises TypeError for anything
        else.
        """
        value: Any = event
        if type(event) in codec.EVENT_STRUCTS:
            if (received := getattr(event, "repaired_from", None)) is not None:
                value = received
            elif type(event) in _DELTAS and self._is_clean_continuation(event):
                return []
        if isinstance(value, _TEXT):
            return self._read(value)
        if isinstance(value, Mapping):
            value = dict(value)
        if type(value) is not dict and type(value) not in codec.EVENT_STRUCTS:
            hint = ": feed_frame takes frames" if isinstance(value, Frame) else ""
            raise TypeError(f"expected an event, its JSON object or text, got {type(event).__name__}{hint}")
        try:
            data = codec.encode(value)
        except _NOT_JSON as error:
            return self._unreadable(f"it can't be encoded as JSON: {error}", None)
        return self._read(data)

    def feed_frame(self, frame: Frame) -> list[Violation]:
        """Check the next SSE frame: the event in it, its name, and the [DONE] that ends a stream. Raises
        TypeError for anything but a frame."""
        if not isinstance(frame, Frame):
            raise TypeError(f"expected a Frame, got {type(frame).__name__}")
        self._stream.framed = True
        if not is_done(frame):
            return self._read(frame.data, frame.event)
        violations = self._report((MARKER,), EventContext(self._stream, self.wire))
        self._stream.marked = True
        self._open.clear()
        return violations

    def close(self) -> list[Violation]:
        """End the stream. Returns the violations in its end; a second call returns none."""
        if self._closed:
            return []
        self._closed = True
        return self._report((END,), EventContext(self._stream, self.wire))

    def _read(self, data: bytes | str, frame: str | None = None) -> list[Violation]:
        repairs: list[Repair] = []
        try:
            event = codec.decode_event(data, repairs)
            named = frame is None or frame == event.type
            if named and not repairs and type(event) in _DELTAS and self._is_clean_continuation(event):
                return []
            raw = codec.decode_json(data)
        except WireError as error:
            return self._unreadable(error.message, frame)
        return self._judge(EventContext(self._stream, self.wire, raw, repairs, frame), type(event))

    def _judge(self, context: EventContext, struct: type[Any]) -> list[Violation]:
        violations = self._report(self._kinds(context), context)
        advance(context)
        if violations or struct not in _DELTAS or context.item is None or context.block is None:
            self._open.clear()
        elif context.item.id is not None:
            where = context.item.index
            index = context.block_index if struct in _INDEXED else where
            self._open[context.item.id] = _OpenText(struct, where, index, context.block.write)
        return violations

    def _kinds(self, context: EventContext) -> tuple[str, ...]:
        """Return the kinds of rules that apply to the event; after the terminal event only the general
        ones."""
        framed = () if context.frame is None else (FRAME,)
        if self._stream.state is StreamState.ENDED:
            return (EVERY, *framed)
        if context.type in _KNOWN:
            return (EVERY, context.type, *framed)
        return (EVERY, *framed) if context.role is None else (EVERY, WITHIN, *framed)

    def _is_clean_continuation(self, event: Any) -> bool:
        """Return True if a delta differs from the valid one before it only in its text and its number, which
        is the next."""
        struct, item_id = type(event), event.item_id
        if type(item_id) is not str or (before := self._open.get(item_id)) is None:
            return False
        number, delta, output_index, index, padding = _DELTAS[struct](event)
        stream = self._stream
        if (
            before.struct is not struct
            or type(delta) is not str
            or type(number) is not int
            or type(output_index) is not int
            or type(index) is not int
            or number - 1 != stream.number
            or output_index != before.output_index
            or index != before.within
            or not (padding is UNSET or type(padding) is str)
            or not (delta.isascii() or _is_unicode(delta))
        ):
            return False
        if struct is OutputTextDelta and event.logprobs is not UNSET and event.logprobs != []:
            return False
        stream.number = number
        stream.events += 1
        before.write(delta)
        return True

    def _unreadable(self, reason: str, frame: str | None) -> list[Violation]:
        stream = self._stream
        violations = self._report(
            (UNREADABLE,), EventContext(stream, self.wire, frame=frame, unreadable=reason)
        )
        stream.events += 1
        stream.number = None if stream.number is None else stream.number + 1
        return violations

    def _report(self, kinds: tuple[str, ...], context: EventContext) -> list[Violation]:
        violations = (
            self._undecided_findings(kinds, context) if self.wire == AUTO else self._findings(kinds, context)
        )
        self.violations += violations
        return violations

    def _undecided_findings(self, kinds: tuple[str, ...], context: EventContext) -> list[Violation]:
        """Return the findings, while the wire is undecided: those that both wires share, or those of the wire
        that this event decides for."""
        decided = wire_of(context)
        if decided is not None:
            self.wire = context.wire = decided
            earlier = self._doubtful.pop(decided)
            self._doubtful.clear()
            return earlier + self._findings(kinds, context)
        findings = {}
        for context.wire in self._doubtful:
            findings[context.wire] = self._findings(kinds, context)
        places = [{_place(each) for each in per_wire} for per_wire in findings.values()]
        shared = set.intersection(*places)
        for wire, per_wire in findings.items():
            self._doubtful[wire] += [each for each in per_wire if _place(each) not in shared]
        return [each for each in findings[OPENRESPONSES] if _place(each) in shared]

    def _findings(self, kinds: tuple[str, ...], context: EventContext) -> list[Violation]:
        return [
            Violation(rule.id, self._stream.events, context.type, finding.path, finding.message)
            for rule in rules_on(*kinds)
            for finding in rule.check(context)
        ]


_INDEXED = frozenset(struct for struct in _DELTAS if ROLES[struct.type].subject in INDEX_OF_SUBJECT)


def _place(violation: Violation) -> tuple[str, str]:
    return violation.rule, violation.path


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
