"""Feeds the items of another server's stream to the machine, with one track per item.

If a done event has more than its deltas, the missing rest is sent, once (field case 7); one that contradicts
its deltas is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import UNSET, Struct, structs

from openresponses_bridge.calls.argument_names import name_of_arguments, without_function
from openresponses_bridge.calls.json_text import decodes
from openresponses_bridge.calls.streamed_arguments import is_placeholder
from openresponses_bridge.dialects.responses.agents import AgentTurns
from openresponses_bridge.dialects.responses.text import TextFeeder, kind_of, text_of
from openresponses_bridge.dialects.responses.tracks import CALLS, MANY, Track, Tracks
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.ids import prefix_of
from openresponses_bridge.protocol.unknown import UnknownEvent, UnknownItem

AnyCall = it.FunctionCall | it.CustomToolCall
_NO_BEGINNING: Final = re.compile(r"\s*[\w\"',:}\]]")
"""Matches a text with which no function's arguments begin."""


class CallNamed(Struct):
    """A call with the name that came in the event of its whole arguments or input, beside them."""

    type: str
    output_index: int
    call: AnyCall

    @property
    def item_id(self) -> str:
        return self.call.id


class CallFeeder:
    """Opens, feeds and ends calls; announcing a call ends the open text (law E5)."""

    def __init__(self, machine: ResponseStream, texts: TextFeeder) -> None:
        self._machine = machine
        self._diagnostics = machine.diagnostics
        self._texts = texts
        self._headless: dict[int, tuple[Track, list[str]]] = {}  # waiting deltas, by slot

    def open(self, track: Track, item: AnyCall, out: list[Event]) -> None:
        """Open the call as in its `added` event. A payload in that event waits, since deltas may repeat
        it."""
        track.pending = self._payload(item)
        self._identify(track, item, out)

    def _identify(self, track: Track, item: AnyCall, out: list[Event]) -> None:
        if track.named or not (item.name or track.beside):
            return
        if track.beside is not None and not item.name:
            self._diagnostics.repair("tool_call.name", "came beside its arguments")
            item = structs.replace(item, name=track.beside.name)
        track.named, track.item = True, item
        if not item.call_id:
            self._diagnostics.repair("call_id", "missing, generated")
        self._texts.mark_closed()
        kind = "custom" if isinstance(item, it.CustomToolCall) else "function"
        self._machine.expect_item(track.item_id, explicit_end=True, extra=item.extra)
        track.reported = item.extra
        out += self._machine.tool_call(
            track.slot, item.call_id, item.name, None, kind, item.namespace or None
        )

    def name(self, track: Track, call: AnyCall, out: list[Event]) -> None:
        """Handle a name that came beside the payload. If no event has brought the item, it waits for it,
        which has the call's id."""
        track.beside = call
        if not isinstance(track.item, CALLS) or track.closed:
            return
        if track.named and track.item.name != call.name:
            self._diagnostics.warning("call done", "has another name, the first is kept")
        self._identify(track, track.item, out)

    def feed(self, track: Track, delta: str, out: list[Event]) -> None:
        """Feed a delta of the payload."""
        if not delta:
            return
        if track.pending:
            pending, track.pending = track.pending, ""
            if delta.lstrip().startswith("{") and is_placeholder(pending):
                self._diagnostics.repair(
                    "call added", "an empty object in the place of its arguments, dropped"
                )
            elif not pending.startswith(delta):
                delta = pending + delta
        if (payload := track.payload) is None:
            if isinstance(track.item, it.FunctionCall) and self._waits(track, delta):
                return
            payload = track.begin_payload()
        payload.recent.append(delta)
        if len(payload.recent) >= MANY:
            payload.count()
        out += self._machine.tool_call(track.slot, None, None, delta)

    def _waits(self, track: Track, delta: str) -> bool:
        """Buffer a delta with which no arguments can begin, and those after it: the whole arguments may have
        the beginning."""
        _, waiting = self._headless.get(track.slot, (track, []))
        if not waiting and not _NO_BEGINNING.match(delta):
            return False
        waiting.append(delta)
        self._headless[track.slot] = track, waiting
        return True

    def _let_go(self, track: Track, whole: str, out: list[Event]) -> None:
        """Send the waiting deltas, unless they are the end of the whole arguments."""
        _, waiting = self._headless.pop(track.slot, (track, []))
        text = "".join(waiting)
        if text and (text == whole or not (whole.endswith(text) and decodes(whole))):
            track.begin_payload()
            self.feed(track, text, out)

    def let_all_go(self, out: list[Event]) -> None:
        """Send the waiting deltas of calls that did not end."""
        for track, _ in list(self._headless.values()):
            self._let_go(track, "", out)

    def payload_done(self, track: Track, whole: str, out: list[Event]) -> None:
        """Feed the whole payload and seal the call at once, since clients run calls on this event."""
        self._missing(track, whole, out)
        if track.named and track.sent:
            out += self._machine.tool_call_done(track.slot)

    def reconcile(self, track: Track, item: AnyCall, out: list[Event]) -> None:
        """Compare the call with its done event or the terminal response, and send what is missing."""
        begun = track.item
        if track.named and isinstance(begun, it.FunctionCall | it.CustomToolCall):
            for field in ("name", "call_id", "namespace"):
                if getattr(item, field) not in ("", UNSET, getattr(begun, field)):
                    self._diagnostics.warning("call done", f"has another {field}, the first is kept")
        self._identify(track, item, out)
        self._missing(track, self._payload(item) or track.pending, out)
        if track.named and item.extra and item.extra != track.reported:
            track.reported = item.extra
            out += self._machine.item_extra(item.extra, track.slot)

    def end(self, track: Track, cut: bool, out: list[Event]) -> None:
        """End the call. `cut` is True if the response ended before it, whether or not its payload looks
        whole."""
        self._let_go(track, "", out)
        if not track.named:
            out += self._machine.tool_call(track.slot)
        out += self._machine.tool_call_done(track.slot, cut=cut or not track.named)

    def differs(self, track: Track, item: AnyCall) -> bool:
        """Return True if the call is not the one that was sent."""
        if isinstance(track.item, CALLS) and item.name not in ("", track.item.name):
            return True
        return track.differs("call", [self._payload(item)])

    def _payload(self, item: AnyCall) -> str:
        own = "input" if isinstance(item, it.CustomToolCall) else "arguments"
        payload: str = getattr(item, own)
        if payload or not item.extra:
            return payload
        arguments = item.extra.get(name_of_arguments(item.extra, own, self._diagnostics), "")
        return arguments if isinstance(arguments, str) else encode(arguments).decode()

    def _missing(self, track: Track, whole: str, out: list[Event]) -> None:
        self._let_go(track, whole, out)
        sent_text = track.sent.get(("call", 0))
        rest = whole if sent_text is None else sent_text.rest(whole)
        if rest:
            self._diagnostics.repair("call done", "had more than its deltas, the rest was sent")
            track.pending = ""
            track.begin_payload()
            self.feed(track, rest, out)
        elif rest is None and whole:
            self._diagnostics.warning("call done", "differs from its deltas, which are kept")


OF_OBJECTS: Final = (
    ev.OutputItemAdded,
    ev.OutputItemDone,
    ev.ContentPartDone,
    ev.ReasoningSummaryPartDone,
    ev.OutputTextAnnotationAdded,
)
"""The events whose handlers read the unknown fields of the objects in them."""
_EMPTY: Final[tuple[Any, ...]] = (None, UNSET, "", [], {})


class ItemFeeder:
    """Calls the machine for the events of items, and keeps their tracks. `agents` has waiting items."""

    def __init__(self, machine: ResponseStream) -> None:
        self._machine = machine
        self._diagnostics = machine.diagnostics
        self._tracks = Tracks(machine.diagnostics)
        self._texts = TextFeeder(machine)
        self._calls = CallFeeder(machine, self._texts)
        self._announced: set[str] = set()
        self.agents = AgentTurns()

    @property
    def cut(self) -> bool:
        """True if an item ended as incomplete."""
        return self._texts.cut

    def _skip(self, event: Event, out: list[Event]) -> None:
        """Ignore an event that the machine itself emits."""

    def _text(self, event: ev.OutputTextDelta, out: list[Event]) -> None:
        texts, delta = self._texts, event.delta
        index, within = event.output_index, event.content_index
        if texts.place != (event.item_id, index, within):
            if not delta and not event.logprobs:
                return
            track = self._tracks.of_text(event.type, index, event.item_id, "text")
            if track.closed:
                track = self._tracks.implied(index, event.item_id)
            if track is not texts.open or texts.place != (track.item_id, index, within):
                texts.open_part(track, "text", within, out, index)
        sent_text = texts.sent
        if event.logprobs:
            sent_text.logprobs = True
        sent_text.recent.append(delta)
        if len(sent_text.recent) >= MANY:
            sent_text.count()
        out += self._machine.text(delta, event.logprobs or None)

    def _delta(self, event: Any, out: list[Event], kind: str) -> None:
        self._texts.feed(self._open_track(kind, event), kind, _part_index(event), event.delta, out)

    def _open_track(self, kind: str, event: Any) -> Track:
        """Return the item of a delta; a delta after the end of an item begins another one."""
        track = self._track(kind, event)
        return self._tracks.implied(event.output_index, event.item_id) if track.closed else track

    def _track(self, kind: str, event: Any) -> Track:
        return self._tracks.of_text(event.type, event.output_index, event.item_id, kind)

    def _rest(self, kind: str, event: Any, whole: str, out: list[Event]) -> None:
        track = self._track(kind, event)
        index = track.place(kind, _part_index(event), whole, track.ended_texts)
        self._texts.whole(track, kind, index, whole, out)

    def _text_done(self, event: ev.OutputTextDone, out: list[Event]) -> None:
        track = self._track("text", event)
        index = track.place("text", event.content_index, event.text, track.ended_texts)
        self._texts.whole(track, "text", index, event.text, out, event.logprobs or None)

    def _part_done(self, event: ev.ContentPartDone | ev.ReasoningSummaryPartDone, out: list[Event]) -> None:
        kind = kind_of(event.part)
        if kind:
            track = self._track(kind, event)
            index = track.place(kind, _part_index(event), text_of(event.part), track.ended_parts)
            self._texts.part(track, index, event.part, out)
            self._texts.part_done(track, kind, index, out)
        else:
            self._diagnostics.loss("output_item.content", f"a part of type {event.part.type}")

    def _annotation(self, event: ev.OutputTextAnnotationAdded, out: list[Event]) -> None:
        if event.annotation is None:
            self._diagnostics.ignored(event.type, "null annotation")
            return
        self._texts.annotate(self._open_track("text", event), event.content_index, event.annotation, out)

    def with_name(self, event: ev.OutputItemAdded | ev.OutputItemDone, name: str) -> Event:
        """Return the event with this name, which came beside its item, for a call that has none."""
        item = self._without_function(event.item)
        if not isinstance(item, CALLS) or item.name:
            return event
        self._diagnostics.repair("tool_call.name", "came beside its item")
        return structs.replace(event, item=structs.replace(item, name=name))

    def _named(self, event: CallNamed, out: list[Event]) -> None:
        self._calls.name(self._track("call", event), event.call, out)

    def _call_delta(self, event: Any, out: list[Event]) -> None:
        track = self._tracks.by_index.get(event.output_index)
        if track is None or track.payload is None or track.item_id != event.item_id:
            track = self._track("call", event)
        self._calls.feed(track, event.delta, out)

    def _arguments_done(self, event: ev.FunctionCallArgumentsDone, out: list[Event]) -> None:
        self._calls.payload_done(self._track("call", event), event.arguments, out)

    def _input_done(self, event: ev.CustomToolCallInputDone, out: list[Event]) -> None:
        self._calls.payload_done(self._track("call", event), event.input, out)

    def _added(self, event: ev.OutputItemAdded, out: list[Event]) -> None:
        item = self._without_function(event.item)
        if item is None or not self._is_valid(item):
            return
        if self.agents.waits(event, event.output_index, item):
            return
        track = self._tracks.added(event.output_index, item)
        if track is None or isinstance(item, it.Message):
            return  # a message is opened with its text, since servers announce some that get none
        if isinstance(item, it.ReasoningItem):
            if track.is_unsent:
                self._texts.announce(track, item, out)
            return
        if isinstance(item, CALLS):
            self._calls.open(track, item, out)
            return
        self._texts.mark_closed()
        self._announce(track, item, out)

    def _announce(self, track: Track, item: it.Item, out: list[Event]) -> None:
        # servers leave ids out, use one twice, and change them within a stream
        track.item_id = track.item_id or f"{prefix_of(item.type)}_{track.slot}"
        while track.item_id in self._announced:
            track.item_id += f"_{track.slot}"
        self._announced.add(track.item_id)
        track.announced = True
        out += self._machine.item_added(it.with_id(item, track.item_id))

    def _done(self, event: ev.OutputItemDone, out: list[Event]) -> None:
        item = self._without_function(event.item)
        if item is None or not self._is_valid(item):
            return
        self.agents.end(event.output_index)
        begun = self._tracks.retyped(event.output_index, item)
        if begun is not None:
            self._replace_type(event.type, begun, item, out)
            return
        track = self._tracks.done(event.output_index, item)
        if isinstance(item, CALLS) and item.status == "in_progress" and not track.closed:
            # it contradicts itself; the end of the response will decide
            self._diagnostics.repair(event.type, "of a call in progress, which stays open")
            self._calls.reconcile(track, item, out)
        else:
            self._whole(track, item, out)

    def _replace_type(self, event: str, begun: Track, item: it.Item, out: list[Event]) -> None:
        """End an item with another type than it began with: what was sent is kept, and a call is not
        whole."""
        self._diagnostics.loss(event, f"a {begun.kind} ends as another type, which is left out")
        begun.closed = True
        if isinstance(begun.item, CALLS):
            self._calls.end(begun, True, out)
        elif self._texts.open is begun:
            self._texts.mark_closed()
            out += self._machine.block_done()

    def finish(self, output: list[it.Item], status: str, out: list[Event]) -> None:
        """Send what only the terminal response has. `status` is its status: when it failed, open items stay
        open; when it is incomplete, unfinished items are cut."""
        items = map(self._without_function, output)
        listed = [item for item in items if item is not None and self._is_valid(item)]
        sane = [item for at, item in enumerate(listed) if not self._tracks.is_another_kind(at, item)]
        if len(sane) < len(listed):
            self._diagnostics.loss("response.output", "an item has another type than it was sent with")
        for track, item in self._tracks.of_output(sane):
            if track.closed:
                self._compare(track, item)
            elif status == "failed":
                if track.is_unsent and getattr(item, "status", None) == "completed":
                    self._whole(track, item, out)
            elif status == "incomplete" and getattr(item, "status", "completed") != "completed":
                self._whole(track, it.with_status(item, "incomplete"), out)
            else:
                self._whole(track, item, out)
        if output:
            for track in self._tracks.left_out():
                self._diagnostics.warning("response.output", f"leaves out a {track.kind} that was streamed")
        self._calls.let_all_go(out)
        if status != "failed":
            self._texts.finish(out)
            for track in self._tracks.named_calls():
                assert track.beside is not None
                track.item, track.kind = track.beside, track.beside.type
                self._calls.open(track, structs.replace(track.beside, name=""), out)
            for track in self._tracks.unfinished_calls():
                if not track.named:
                    out += self._machine.tool_call(track.slot)
            out += self._machine.end_nameless()
        if status == "incomplete":
            for track in self._tracks.unfinished_calls():
                self._calls.end(track, True, out)

    def _compare(self, track: Track, item: it.Item) -> None:
        """Report how the terminal response differs from an item that has ended, which can't be changed any
        more."""
        if isinstance(item, CALLS):
            differs = self._calls.differs(track, item)
        elif isinstance(item, it.Message | it.ReasoningItem):
            differs = self._texts.differs(track, item)
        else:
            differs = track.item is not None and _differ(track.item, item)
        if differs:
            what = f"its {item.type} differs from the streamed one, which is kept"
            self._diagnostics.warning("response.output", what)

    def _without_function(self, item: it.Item | None) -> it.Item | None:
        """Return a call that has its name within `function` with a name of its own; any other item
        unchanged."""
        if not isinstance(item, it.FunctionCall) or item.name or not item.extra:
            return item
        fields = {**item.extra, "name": item.name, "arguments": item.arguments}
        call = without_function(fields, self._diagnostics)
        if call is fields:
            return item
        arguments = call.get(name_of_arguments(call, "arguments", self._diagnostics), "")
        extra = {name: value for name, value in item.extra.items() if name != "function"}
        return structs.replace(
            item,
            name=call["name"],
            arguments=arguments if isinstance(arguments, str) else encode(arguments).decode(),
            extra=extra or UNSET,
        )

    def _is_valid(self, item: it.Item) -> bool:
        """Return True if a response can have such an item."""
        if isinstance(item, it.Message) and item.role != "assistant":
            self._diagnostics.ignored("output_item", f"a message of the {item.role}'s")
            return False
        if not item.type:
            self._diagnostics.ignored("output_item", "without a type")
        return bool(item.type)

    def _whole(self, track: Track, item: it.Item, out: list[Event]) -> None:
        """Feed the item in its done event or in the terminal response, once."""
        if track.closed:
            return
        track.closed = True
        if isinstance(item, CALLS):
            self._calls.reconcile(track, item, out)
            self._calls.end(track, item.status == "incomplete", out)
        elif isinstance(item, it.Message | it.ReasoningItem):
            self._texts.item(track, item, out)
        else:
            self._texts.mark_closed()
            out += self._machine.item(it.with_id(item, track.item_id) if track.announced else item)
            track.item, track.announced = item, True

    def progress(self, event: UnknownEvent, out: list[Event]) -> bool:
        """Handle progress of an announced item. Returns whether the event is that."""
        raw = event.raw
        track = self._tracks.of_progress(raw.get("output_index"), raw.get("item_id"))
        if track is None:
            return False
        out += self._machine.item_event(track.item_id, event.type, raw)
        return True


HANDLERS: Final[dict[type[Any], Callable[[ItemFeeder, Any, list[Event]], None]]] = {
    ev.OutputItemAdded: ItemFeeder._added,
    ev.OutputItemDone: ItemFeeder._done,
    ev.ContentPartAdded: ItemFeeder._skip,
    ev.ContentPartDone: ItemFeeder._part_done,
    ev.OutputTextDelta: ItemFeeder._text,
    ev.OutputTextDone: ItemFeeder._text_done,
    ev.OutputTextAnnotationAdded: ItemFeeder._annotation,
    ev.RefusalDelta: partial(ItemFeeder._delta, kind="refusal"),
    ev.RefusalDone: lambda feeder, event, out: feeder._rest("refusal", event, event.refusal, out),
    ev.ReasoningDelta: partial(ItemFeeder._delta, kind="reasoning"),
    ev.ReasoningDone: lambda feeder, event, out: feeder._rest("reasoning", event, event.text, out),
    ev.ReasoningTextDelta: partial(ItemFeeder._delta, kind="reasoning"),
    ev.ReasoningTextDone: lambda feeder, event, out: feeder._rest("reasoning", event, event.text, out),
    ev.ReasoningSummaryPartAdded: ItemFeeder._skip,
    ev.ReasoningSummaryPartDone: ItemFeeder._part_done,
    ev.ReasoningSummaryTextDelta: partial(ItemFeeder._delta, kind="summary"),
    ev.ReasoningSummaryTextDone: lambda feeder, event, out: feeder._rest("summary", event, event.text, out),
    ev.FunctionCallArgumentsDelta: ItemFeeder._call_delta,
    ev.FunctionCallArgumentsDone: ItemFeeder._arguments_done,
    ev.CustomToolCallInputDelta: ItemFeeder._call_delta,
    ev.CustomToolCallInputDone: ItemFeeder._input_done,
    CallNamed: ItemFeeder._named,
}
"""How each event of an item is fed. The resulting events are appended to a list."""


def _differ(sent: it.Item, item: it.Item) -> bool:
    """Return True if an item that a server fills differs from what was sent of it, except for its id. A
    missing or empty field is not a difference: servers repeat large results in one place only."""
    before, after = _fields(sent), _fields(item)
    return any(
        name != "id" and value not in _EMPTY and value != before.get(name) for name, value in after.items()
    )


def _fields(item: it.Item) -> dict[str, Any]:
    return item.raw if isinstance(item, UnknownItem) else structs.asdict(item)


def _part_index(event: Any) -> int:
    index = getattr(event, "content_index", None)
    return event.summary_index if index is None else index  # type: ignore[no-any-return]
