"""The items of another server's stream → machine calls, one track per output_index.

Ids rotate on some servers, indexes do not: an item is its output_index. A done event that holds more
than the deltas did gives the missing rest, once (field case 7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.diagnostics import Diagnostics
from bridge.dialects.responses.types import Track
from bridge.emitter import ResponseStreamStateMachine
from bridge.protocol import content as ct
from bridge.protocol import events as ev
from bridge.protocol import items as it
from bridge.protocol.events import Event
from bridge.protocol.unknown import UnknownEvent

_CALLS = (it.FunctionCall, it.CustomToolCall)
_SUMMARY_DELTAS = frozenset({"response.reasoning_summary.delta"})
_KINDS = {
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "summary",
}
# which items can hold what
_HOLDERS = {
    "text": frozenset({"message"}),
    "refusal": frozenset({"message"}),
    "reasoning": frozenset({"reasoning"}),
    "summary": frozenset({"reasoning"}),
    "call": frozenset({"function_call", "custom_tool_call"}),
}


class ItemFeeder:
    """Keeps the tracks. `handlers` maps each event struct to the call it makes."""

    def __init__(self, machine: ResponseStreamStateMachine, diagnostics: Diagnostics) -> None:
        self._machine = machine
        self._diagnostics = diagnostics
        self._tracks: dict[int, Track] = {}
        self._at: tuple[int, str, int] | None = None
        self.handlers: dict[type[Any], Callable[[Any], list[Event]]] = {
            ev.OutputItemAdded: self._added,
            ev.OutputItemDone: self._done,
            ev.ContentPartAdded: self._nothing,
            ev.ContentPartDone: self._part_done,
            ev.OutputTextDelta: self._text,
            ev.OutputTextDone: lambda event: self._rest(event, "text", event.text),
            ev.OutputTextAnnotationAdded: self._annotation,
            ev.RefusalDelta: lambda event: self._delta(event, "refusal"),
            ev.RefusalDone: lambda event: self._rest(event, "refusal", event.refusal),
            ev.ReasoningDelta: lambda event: self._delta(event, "reasoning"),
            ev.ReasoningDone: lambda event: self._rest(event, "reasoning", event.text),
            ev.ReasoningTextDelta: lambda event: self._delta(event, "reasoning"),
            ev.ReasoningTextDone: lambda event: self._rest(event, "reasoning", event.text),
            ev.ReasoningSummaryPartAdded: self._nothing,
            ev.ReasoningSummaryPartDone: self._summary_part_done,
            ev.ReasoningSummaryTextDelta: lambda event: self._delta(event, "summary"),
            ev.ReasoningSummaryTextDone: lambda event: self._rest(event, "summary", event.text),
            ev.FunctionCallArgumentsDelta: lambda event: self._delta(event, "call"),
            ev.FunctionCallArgumentsDone: lambda event: self._rest(event, "call", event.arguments),
            ev.CustomToolCallInputDelta: lambda event: self._delta(event, "call"),
            ev.CustomToolCallInputDone: lambda event: self._rest(event, "call", event.input),
        }

    def _nothing(self, event: Event) -> list[Event]:
        return []

    # ── words ──────────────────────────────────────────────────────────────────────────────────────
    def _text(self, event: ev.OutputTextDelta) -> list[Event]:
        output_index = self._locate(event, "text")
        events = self._reach(output_index, "text", event.content_index)
        self._count(output_index, "text", event.content_index, event.delta)
        return events + self._machine.text(event.delta, event.logprobs or None)

    def _delta(self, event: Any, kind: str) -> list[Event]:
        output_index, index = self._locate(event, kind), _part_index(event)
        events = self._reach(output_index, kind, index)
        self._count(output_index, kind, index, event.delta)
        return events + self._say(output_index, kind, index, event.delta)

    def _say(self, output_index: int, kind: str, index: int, delta: str) -> list[Event]:
        machine = self._machine
        if kind == "summary":
            return machine.reasoning_summary(delta, index)
        if kind == "call":
            return machine.tool_call(output_index, arguments=delta) if delta else []
        say = {"text": machine.text, "refusal": machine.refusal, "reasoning": machine.reasoning}[kind]
        return say(delta)

    def _rest(self, event: Any, kind: str, whole: str) -> list[Event]:
        return self._missing(self._locate(event, kind), kind, _part_index(event), whole)

    def _missing(self, output_index: int, kind: str, index: int, whole: str) -> list[Event]:
        """What the whole text has beyond its deltas. An empty whole after deltas keeps the deltas."""
        told = self._track(output_index).told.get((kind, index), 0)
        if len(whole) <= told:
            if whole and len(whole) < told:
                self._diagnostics.warning(f"{kind} done", "shorter than its deltas, which stand")
            return []
        self._diagnostics.repair(f"{kind} done", "held more than its deltas, the rest was sent")
        events = self._reach(output_index, kind, index)
        self._count(output_index, kind, index, whole[told:])
        return events + self._say(output_index, kind, index, whole[told:])

    def _part_done(self, event: ev.ContentPartDone) -> list[Event]:
        kind, text = _told(event.part)
        return self._rest(event, kind, text) if kind else []

    def _summary_part_done(self, event: ev.ReasoningSummaryPartDone) -> list[Event]:
        return self._rest(event, "summary", _told(event.part)[1])

    def _annotation(self, event: ev.OutputTextAnnotationAdded) -> list[Event]:
        if event.annotation is None:
            self._diagnostics.ignored(event.type, "null annotation")
            return []
        events = self._reach(self._locate(event, "text"), "text", event.content_index)
        return events + self._machine.annotation(event.annotation)

    def _locate(self, event: Any, kind: str) -> int:
        """The event's item. One that can't hold such content is a wrong index: then the id decides."""
        index: int = event.output_index
        track = self._track(index, event.item_id)
        if track.item is None or track.kind in _HOLDERS[kind]:
            return index
        named = (at for at, other in self._tracks.items() if other.item_id == event.item_id)
        self._diagnostics.repair(f"{event.type} output_index", "names another item, found by its id")
        return next(named, index)

    def _count(self, output_index: int, kind: str, index: int, delta: str) -> None:
        told = self._track(output_index).told
        told[kind, index] = told.get((kind, index), 0) + len(delta)

    def _reach(self, output_index: int, kind: str, index: int) -> list[Event]:
        """Make the upstream's part the machine's open one."""
        here = (output_index, kind, index)
        before, self._at = self._at, here
        if kind == "call":
            return self._open_call(output_index)
        if before == here or before is None:
            return [] if before == here else self._expect(output_index)
        if before[0] != output_index:
            return self._machine.block_done() + self._expect(output_index)
        return self._machine.part_done() if before[1] == kind == "text" else []

    def _expect(self, output_index: int) -> list[Event]:
        item = self._track(output_index).item
        if item is None:
            self._diagnostics.repair("response.output_item.added", "missing, begun here")
        phase = item.phase or None if isinstance(item, it.Message) else None
        return self._machine.expect_item(self._track(output_index).item_id, phase)

    # ── items ──────────────────────────────────────────────────────────────────────────────────────
    def _track(self, output_index: int, item_id: str = "") -> Track:
        track = self._tracks.get(output_index)
        if track is None:
            track = self._tracks[output_index] = Track(None, item_id)
        return track

    def _added(self, event: ev.OutputItemAdded) -> list[Event]:
        if event.item is None:
            return []
        track = self._tracks[event.output_index] = Track(event.item, event.item.id)
        if isinstance(event.item, _CALLS):
            return self._open_call(event.output_index)
        if isinstance(event.item, it.Message | it.ReasoningItem):
            return []
        track.announced = True
        return self._machine.item_added(event.item)

    def _open_call(self, output_index: int) -> list[Event]:
        track = self._track(output_index)
        item = track.item
        if track.call_open or not isinstance(item, _CALLS):
            return []
        track.call_open = True
        self._machine.expect_item(item.id)
        kind = "custom" if isinstance(item, it.CustomToolCall) else "function"
        payload = _payload(item)
        if payload:
            self._count(output_index, "call", 0, payload)
        return self._machine.tool_call(
            output_index, item.call_id, item.name, payload, kind, item.namespace or None
        )

    def _done(self, event: ev.OutputItemDone) -> list[Event]:
        return [] if event.item is None else self.whole(event.output_index, event.item)

    def whole(self, output_index: int, item: it.Item) -> list[Event]:
        """The item as its done event or the terminal response tells it. Told once."""
        track = self._track(output_index)
        if track.closed:
            return []
        if track.item is None:
            track.item = item
            self._diagnostics.repair("response.output_item.added", "missing, begun here")
        track.closed = True
        if isinstance(item, _CALLS):
            return self._whole_call(output_index, item)
        if track.announced:
            # some servers change the id on the way
            return self._machine.item(it.with_id(item, track.item.id))
        if track.silent:
            self._at = None
            return self._machine.block_done() + self._machine.item(item)
        if isinstance(item, it.Message | it.ReasoningItem):
            return self._whole_words(output_index, item)
        self._diagnostics.warning(f"output_item.done {item.type}", "is not what its deltas were")
        return []

    def _whole_call(self, output_index: int, item: it.FunctionCall | it.CustomToolCall) -> list[Event]:
        track = self._track(output_index)
        if not isinstance(track.item, _CALLS):
            track.item = item
        events = self._open_call(output_index)
        events += self._missing(output_index, "call", 0, _payload(item))
        if item.status == "incomplete":
            return events
        return events + self._machine.tool_call_done(output_index)

    def _whole_words(self, output_index: int, item: it.Message | it.ReasoningItem) -> list[Event]:
        events: list[Event] = []
        summary = item.summary if isinstance(item, it.ReasoningItem) else []
        for index, part in [*enumerate(item.content or ()), *enumerate(summary)]:
            kind, text = _told(part)
            events += self._missing(output_index, kind, index, text) if kind else []
        if isinstance(item, it.ReasoningItem) and item.encrypted_content:
            events += self._machine.reasoning_encrypted(item.encrypted_content)
        if getattr(item, "status", None) == "incomplete":
            return events
        self._at = None
        return events + self._machine.block_done()

    def unknown(self, event: UnknownEvent) -> list[Event] | None:
        """Progress of an announced item, or a spelling of a known event; None when it is neither."""
        index = event.raw.get("output_index")
        if event.type in _SUMMARY_DELTAS and isinstance(event.raw.get("delta"), str):
            output_index = index if isinstance(index, int) else 0
            return self._reach(output_index, "summary", 0) + self._machine.reasoning_summary(
                event.raw["delta"]
            )
        track = self._tracks.get(index) if isinstance(index, int) else None
        if track is None or not track.announced or track.closed or track.item is None:
            return None
        return self._machine.item_event(track.item.id, event.type, event.raw)


def _told(part: ct.ContentPart) -> tuple[str, str]:
    """(kind, text) of a part; an unknown part has none."""
    kind = _KINDS.get(part.type, "")
    return kind, str(getattr(part, "refusal" if kind == "refusal" else "text", "")) if kind else ""


def _part_index(event: Any) -> int:
    index = getattr(event, "content_index", getattr(event, "summary_index", 0))
    return index if isinstance(index, int) else 0


def _payload(item: it.FunctionCall | it.CustomToolCall) -> str:
    return item.input if isinstance(item, it.CustomToolCall) else item.arguments
