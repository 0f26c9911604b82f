"""The items of another server's stream → machine calls, one track per item.

A done event that holds more than the deltas did gives the missing rest, once (field case 7); one that
says something else than they did is not believed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import UNSET, structs

from openresponses_bridge.dialects.responses.calls import CallFeeder
from openresponses_bridge.dialects.responses.quick import QuickDeltas
from openresponses_bridge.dialects.responses.text import TextFeeder, kind_of
from openresponses_bridge.dialects.responses.tracks import Tracks
from openresponses_bridge.dialects.responses.types import CALLS, Track
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.unknown import UnknownEvent, UnknownItem

Handler = Callable[[Any, list[Event]], None]
_EMPTY: Final[tuple[Any, ...]] = (None, UNSET, "", [], {})


class ItemFeeder:
    """Keeps the tracks. `handlers` maps each event struct to the calls it makes; what those give is
    appended to the list that the handler is given. `quick` are the readers that are asked before them."""

    def __init__(self, machine: ResponseStream) -> None:
        self._machine = machine
        self._diagnostics = machine.diagnostics
        self._tracks = Tracks(machine.diagnostics)
        self._texts = TextFeeder(machine)
        self._calls = CallFeeder(machine, self._texts)
        self.quick = QuickDeltas(machine, self._tracks, self._texts).readers
        self._announced: set[str] = set()
        self.handlers: dict[type[Any], Handler] = {
            ev.OutputItemAdded: self._added,
            ev.OutputItemDone: self._done,
            ev.ContentPartAdded: self._nothing,
            ev.ContentPartDone: self._part_done,
            ev.OutputTextDelta: self._text,
            ev.OutputTextDone: self._text_done,
            ev.OutputTextAnnotationAdded: self._annotation,
            ev.RefusalDelta: partial(self._delta, "refusal"),
            ev.RefusalDone: lambda event, out: self._rest("refusal", event, event.refusal, out),
            ev.ReasoningDelta: partial(self._delta, "reasoning"),
            ev.ReasoningDone: lambda event, out: self._rest("reasoning", event, event.text, out),
            ev.ReasoningTextDelta: partial(self._delta, "reasoning"),
            ev.ReasoningTextDone: lambda event, out: self._rest("reasoning", event, event.text, out),
            ev.ReasoningSummaryPartAdded: self._nothing,
            ev.ReasoningSummaryPartDone: self._part_done,
            ev.ReasoningSummaryTextDelta: partial(self._delta, "summary"),
            ev.ReasoningSummaryTextDone: lambda event, out: self._rest("summary", event, event.text, out),
            ev.FunctionCallArgumentsDelta: self._call_delta,
            ev.FunctionCallArgumentsDone: lambda event, out: self._payload_done(event, event.arguments, out),
            ev.CustomToolCallInputDelta: self._call_delta,
            ev.CustomToolCallInputDone: lambda event, out: self._payload_done(event, event.input, out),
        }

    @property
    def cut(self) -> bool:
        """Whether an item ended as incomplete."""
        return self._texts.cut

    def _nothing(self, event: Event, out: list[Event]) -> None:
        """What the machine says by itself."""

    # ── text ───────────────────────────────────────────────────────────────────────────────────────
    def _text(self, event: ev.OutputTextDelta, out: list[Event]) -> None:
        texts, index = self._texts, event.output_index
        if texts.place != (event.item_id, index, event.content_index):
            if not event.delta and not event.logprobs:
                return
            texts.reach(self._open_track("text", event), "text", event.content_index, out, index)
        texts.said.add(event.delta)
        out += self._machine.text(event.delta, event.logprobs or None)

    def _delta(self, kind: str, event: Any, out: list[Event]) -> None:
        self._texts.say(self._open_track(kind, event), kind, _part_index(event), event.delta, out)

    def _open_track(self, kind: str, event: Any) -> Track:
        """The item of a delta: what comes after an item's end begins another one."""
        track = self._track(kind, event)
        return self._tracks.implied(event.output_index, event.item_id) if track.closed else track

    def _track(self, kind: str, event: Any) -> Track:
        return self._tracks.of_text(event.type, event.output_index, event.item_id, kind)

    def _rest(self, kind: str, event: Any, whole: str, out: list[Event]) -> None:
        self._texts.whole(self._track(kind, event), kind, _part_index(event), whole, out)

    def _text_done(self, event: ev.OutputTextDone, out: list[Event]) -> None:
        track = self._track("text", event)
        self._texts.whole(track, "text", event.content_index, event.text, out, event.logprobs or None)

    def _part_done(self, event: ev.ContentPartDone | ev.ReasoningSummaryPartDone, out: list[Event]) -> None:
        kind = kind_of(event.part)
        if kind:
            track, index = self._track(kind, event), _part_index(event)
            self._texts.part(track, index, event.part, out)
            self._texts.part_done(track, kind, index, out)

    def _annotation(self, event: ev.OutputTextAnnotationAdded, out: list[Event]) -> None:
        if event.annotation is None:
            self._diagnostics.ignored(event.type, "null annotation")
            return
        self._texts.cite(self._open_track("text", event), event.content_index, event.annotation, out)

    # ── calls ──────────────────────────────────────────────────────────────────────────────────────
    def _call_delta(self, event: Any, out: list[Event]) -> None:
        self._calls.say(self._track("call", event), event.delta, out)

    def _payload_done(self, event: Any, whole: str, out: list[Event]) -> None:
        self._calls.payload_done(self._track("call", event), whole, out)

    # ── items ──────────────────────────────────────────────────────────────────────────────────────
    def _added(self, event: ev.OutputItemAdded, out: list[Event]) -> None:
        item = event.item
        if item is None or not self._sane(item):
            return
        track = self._tracks.added(event.output_index, item)
        if track is None or isinstance(item, it.Message):
            return  # a message opens with its text: servers announce some that get none
        if isinstance(item, it.ReasoningItem):
            if track.silent:
                self._texts.announce(track, item, out)
            return
        if isinstance(item, CALLS):
            self._calls.open(track, item, out)
            return
        self._texts.leave()
        self._announce(track, item, out)

    def _announce(self, track: Track, item: it.Item, out: list[Event]) -> None:
        # servers leave ids out, give one twice, and change them on the way
        track.item_id = track.item_id or f"{item.type}_{track.slot}"
        while track.item_id in self._announced:
            track.item_id += f"_{track.slot}"
        self._announced.add(track.item_id)
        track.announced = True
        out += self._machine.item_added(it.with_id(item, track.item_id))

    def _done(self, event: ev.OutputItemDone, out: list[Event]) -> None:
        item = event.item
        if item is None or not self._sane(item):
            return
        begun = self._tracks.contradicted(event.output_index, item)
        if begun is not None:
            self._contradict(event.type, begun, item, out)
            return
        track = self._tracks.done(event.output_index, item)
        if isinstance(item, CALLS) and item.status == "in_progress" and not track.closed:
            # it contradicts itself: the end of the response shows which
            self._diagnostics.repair(event.type, "of a call in progress, which stays open")
            self._calls.given(track, item, out)
        else:
            self._whole(track, item, out)

    def _contradict(self, event: str, begun: Track, item: it.Item, out: list[Event]) -> None:
        """An item ends as one of another type than it began with: what was sent of it stands, and a call is
        not whole."""
        self._diagnostics.loss(event, f"a {begun.kind} ends as another type, which is left out")
        begun.closed = True
        if isinstance(begun.item, CALLS):
            self._calls.end(begun, True, out)
        elif self._texts.open is begun:
            self._texts.leave()
            out += self._machine.block_done()

    def settle(self, output: list[it.Item], status: str, out: list[Event]) -> None:
        """What the terminal response, which has this status, holds that nothing before did. Of a failed one
        what is open stays open; of an incomplete one, what upstream had not finished is cut."""
        listed = [item for item in output if self._sane(item)]
        sane = [item for at, item in enumerate(listed) if not self._tracks.is_another_kind(at, item)]
        if len(sane) < len(listed):
            self._diagnostics.loss("response.output", "an item has another type than it was sent with")
        for track, item in self._tracks.of_output(sane):
            if track.closed:
                self._compare(track, item)
            elif status == "failed":
                if track.silent and getattr(item, "status", None) == "completed":
                    self._whole(track, item, out)
            elif status == "incomplete" and getattr(item, "status", "completed") != "completed":
                self._whole(track, it.with_status(item, "incomplete"), out)
            else:
                self._whole(track, item, out)
        if output:
            for track in self._tracks.left_out():
                self._diagnostics.warning("response.output", f"leaves out a {track.kind} that was streamed")
        if status != "failed":
            self._texts.settle(out)
        if status == "incomplete":
            for track in self._tracks.unfinished_calls():
                self._calls.end(track, True, out)

    def _compare(self, track: Track, item: it.Item) -> None:
        """What the terminal response says of an item that has ended can't be sent any more."""
        if isinstance(item, CALLS):
            differs = self._calls.differs(track, item)
        elif isinstance(item, it.Message | it.ReasoningItem):
            differs = self._texts.differs(track, item)
        else:
            differs = track.item is not None and _differ(track.item, item)
        if differs:
            what = f"its {item.type} differs from what was streamed, which stands"
            self._diagnostics.warning("response.output", what)

    def _sane(self, item: it.Item) -> bool:
        """Whether a response can hold such an item at all."""
        if isinstance(item, it.Message) and item.role != "assistant":
            self._diagnostics.ignored("output_item", f"a message of the {item.role}'s")
            return False
        if not item.type:
            self._diagnostics.ignored("output_item", "without a type")
        return bool(item.type)

    def _whole(self, track: Track, item: it.Item, out: list[Event]) -> None:
        """The item as its done event or the terminal response has it. Sent once."""
        if track.closed:
            return
        track.closed = True
        if isinstance(item, CALLS):
            self._calls.given(track, item, out)
            self._calls.end(track, item.status == "incomplete", out)
        elif isinstance(item, it.Message | it.ReasoningItem):
            self._texts.item(track, item, out)
        else:
            self._texts.leave()
            out += self._machine.item(it.with_id(item, track.item_id) if track.announced else item)
            track.item, track.announced = item, True

    def progress(self, event: UnknownEvent, out: list[Event]) -> bool:
        """Progress of an announced item: whether the event is that."""
        raw = event.raw
        track = self._tracks.of_progress(raw.get("output_index"), raw.get("item_id"))
        if track is None:
            return False
        out += self._machine.item_event(track.item_id, event.type, raw)
        return True


def _differ(sent: it.Item, said: it.Item) -> bool:
    """Whether an item that a server fills has other fields than what was sent of it, its id aside. A field
    that is left out or empty is not another: servers repeat large results in one place only."""
    before, after = _fields(sent), _fields(said)
    return any(
        name != "id" and value not in _EMPTY and value != before.get(name) for name, value in after.items()
    )


def _fields(item: it.Item) -> dict[str, Any]:
    return item.raw if isinstance(item, UnknownItem) else structs.asdict(item)


def _part_index(event: Any) -> int:
    index = getattr(event, "content_index", None)
    return event.summary_index if index is None else index  # type: ignore[no-any-return]
