"""The open items of a response (messages, reasoning items, items that a server completes itself) and their
open parts (text, refusal, raw reasoning, summary).

One class, `OpenPart`, serves all kinds of parts: a `PartKind` has the structs in which they differ.
"""

from __future__ import annotations

from io import StringIO
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from openresponses_bridge.emitter.output import Closing, Number
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.content import Annotation, ContentPart, LogProb
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import (
    Item,
    ItemStatus,
    Message,
    MessagePhase,
    ReasoningItem,
    call_id_of,
    with_status,
)
from openresponses_bridge.protocol.unknown import Extra
from openresponses_bridge.state import PART, WIRES, BlockState
from openresponses_bridge.text import SurrogateJoiner


class PartKind(NamedTuple):
    """A kind of part: its content struct and the structs of its four events."""

    name: str
    content: type[Any]
    added: type[Any]
    delta: type[Any]
    done: type[Any]
    closed: type[Any]


TEXT = PartKind(
    "text",
    ct.OutputTextContent,
    ev.ContentPartAdded,
    ev.OutputTextDelta,
    ev.OutputTextDone,
    ev.ContentPartDone,
)
REFUSAL = PartKind(
    "refusal", ct.RefusalContent, ev.ContentPartAdded, ev.RefusalDelta, ev.RefusalDone, ev.ContentPartDone
)
SUMMARY = PartKind(
    "reasoning_summary",
    ct.SummaryTextContent,
    ev.ReasoningSummaryPartAdded,
    ev.ReasoningSummaryTextDelta,
    ev.ReasoningSummaryTextDone,
    ev.ReasoningSummaryPartDone,
)
REASONING = {
    name: PartKind(
        "reasoning",
        ct.ReasoningTextContent,
        ev.ContentPartAdded,
        wire.reasoning_delta,
        wire.reasoning_done,
        ev.ContentPartDone,
    )
    for name, wire in WIRES.items()
}


class OpenPart:
    """A part that still receives deltas. `index` is its place in the item's content or summary. `state`
    follows `state.PART`; only the machine writes plain deltas without looking it up.

    `extra`, its unknown fields, appears in its done event. The text is in a StringIO, since `+=` copies a
    whole string that has another reference (law E12).
    """

    __slots__ = (
        "_number",
        "annotations",
        "extra",
        "index",
        "item_id",
        "joiner",
        "kind",
        "logprobs",
        "output_index",
        "state",
        "text",
        "write",
    )

    def __init__(self, kind: PartKind, number: Number, item_id: str, output_index: int, index: int) -> None:
        self.kind = kind
        self.item_id = item_id
        self.output_index = output_index
        self.index = index
        self.joiner = SurrogateJoiner()
        self.text = StringIO()
        self.write = self.text.write
        self.annotations: list[Annotation] = []
        self.logprobs: list[LogProb] = []
        self.extra: Extra = UNSET
        self.state = BlockState.ABSENT
        self._number = number

    def added(self) -> Event:
        self.state = PART[self.state]["added"]
        added: Event = self.kind.added(
            self._number(), self.item_id, self.output_index, self.index, self.content("")
        )
        return added

    def delta(self, delta: str, logprobs: list[LogProb] | None = None) -> list[Event]:
        """Append the next piece. Returns no event if all of it is held back and it has no log
        probabilities."""
        if self.joiner.pending or not delta.isascii():
            delta = self.joiner.feed(delta)
        if not delta and not logprobs:
            return []
        self.state = PART[self.state]["delta"]
        self.write(delta)
        extra: tuple[list[LogProb], ...] = ()
        if self.kind is TEXT:
            extra = (list(logprobs or ()),)
            self.logprobs += extra[0]
        return [self.kind.delta(self._number(), self.item_id, self.output_index, self.index, delta, *extra)]

    def whole(self, text: str, logprobs: list[LogProb] | None = None) -> list[Event]:
        """Append all of the part's text at once."""
        return self.delta(text, logprobs) if text else []

    def annotate(self, annotation: Annotation) -> Event:
        self.state = PART[self.state]["annotation"]
        self.annotations.append(annotation)
        number, index = self._number(), len(self.annotations) - 1
        return ev.OutputTextAnnotationAdded(
            number, self.item_id, self.output_index, self.index, index, annotation
        )

    def close(self) -> tuple[list[Event], ContentPart]:
        """End the part. Returns its done events and the finished part."""
        events = self.delta(self.joiner.flush()) if self.joiner.pending else []
        number, place = self._number, (self.item_id, self.output_index, self.index)
        text = self.text.getvalue()
        part = self.content(text)
        if self.extra:
            part = replace(part, extra=self.extra)  # type: ignore[type-var]
        extra = (list(self.logprobs),) if self.kind is TEXT else ()
        self.state = PART[self.state]["done"]
        events.append(self.kind.done(number(), *place, text, *extra))
        self.state = PART[self.state]["closed"]
        events.append(self.kind.closed(number(), *place, part))
        return events, part

    def content(self, text: str | None = None) -> ContentPart:
        """Return the part with its text so far, or with this text instead."""
        text = self.text.getvalue() if text is None else text
        if self.kind is TEXT:
            return ct.OutputTextContent(text, list(self.annotations), list(self.logprobs))
        part: ContentPart = self.kind.content(text)
        return part


class OpenItem:
    """An item that has not ended. `output_index` is -1 until it is announced; `state` follows `state.ITEM`.
    `cut` is True if the item ended before it was whole: it is then closed at the end of the response, since
    no item may follow an incomplete one (specification, Items). `extra` are the unknown fields with which it
    is announced, `extra_at_end` those of its done event."""

    __slots__ = ("_number", "cut", "extra", "extra_at_end", "item_id", "output_index", "state")

    def __init__(self, number: Number, item_id: str, extra: Extra = UNSET) -> None:
        self.extra = extra
        self.extra_at_end: Extra = UNSET
        self._number = number
        self.item_id = item_id
        self.output_index = -1
        self.state = BlockState.ABSENT
        self.cut = False

    def item(self, status: ItemStatus) -> Item:
        """Return the item as it is now, with this status."""
        raise NotImplementedError

    def close_part(self) -> list[Event]:
        """Close the open parts. Returns their events."""
        return []

    def close(self, stopped: bool, abandoned: bool = False) -> Closing:
        """End the item, see `output.Block.close`."""
        raise NotImplementedError


class MessageBlock(OpenItem):
    """An assistant message. Its parts are texts and refusals; one is open at a time."""

    __slots__ = ("part", "parts", "phase")

    def __init__(
        self,
        number: Number,
        item_id: str,
        phase: MessagePhase | UnsetType = UNSET,
        extra: Extra = UNSET,
    ) -> None:
        super().__init__(number, item_id, extra)
        self.phase = phase
        self.parts: list[ContentPart] = []
        self.part: OpenPart | None = None

    def open_part(self, kind: PartKind) -> tuple[list[Event], OpenPart]:
        """Close the open part, then begin one of this kind."""
        events = [] if self.part is None else self.close_part()
        part = self.part = OpenPart(kind, self._number, self.item_id, self.output_index, len(self.parts))
        events.append(part.added())
        return events, part

    def close_part(self) -> list[Event]:
        if self.part is None:
            return []
        events, part = self.part.close()
        self.parts.append(part)
        self.part = None
        return events

    def close(self, stopped: bool, abandoned: bool = False) -> Closing:
        cut = self.cut or abandoned or not stopped
        events = self.close_part()
        return Closing(events, self.item("incomplete" if cut else "completed"), cut)

    def item(self, status: ItemStatus) -> Message:
        """Return the message as it is now, with the open text."""
        live = [] if self.part is None else [self.part.content()]
        extra = self.extra if status == "in_progress" else self.extra_at_end or self.extra
        return Message(self.item_id, status, "assistant", [*self.parts, *live], self.phase, extra=extra)


class ReasoningBlock(OpenItem):
    """A reasoning item: raw content, summaries and encrypted content, in any combination.

    Encrypted content has no event of its own: it appears in the item's done event.
    """

    __slots__ = (
        "_kind",
        "_summarised",
        "content",
        "encrypted",
        "part",
        "summaries",
        "summary",
        "summary_key",
    )

    def __init__(
        self, number: Number, item_id: str, wire: str, summarised: set[str], extra: Extra = UNSET
    ) -> None:
        super().__init__(number, item_id, extra)
        self._summarised = summarised
        self._kind = REASONING[wire]
        self.content: list[ContentPart] = []
        self.summaries: list[ContentPart] = []
        self.part: OpenPart | None = None
        self.summary: OpenPart | None = None
        self.summary_key = 0
        self.encrypted: str | None = None

    def open_raw(self) -> tuple[list[Event], OpenPart]:
        """Return the open part of raw content; one is begun if there is none."""
        if self.part is not None:
            return [], self.part
        self.part = OpenPart(self._kind, self._number, self.item_id, self.output_index, len(self.content))
        if not self.content and (self.summaries or self.summary is not None):
            self._summarised.add(self.item_id)
        return [self.part.added()], self.part

    def open_summary(self, key: int) -> tuple[list[Event], OpenPart]:
        """Return the summary part with the upstream's number `key`. If the open one has another number, it is
        closed and one is begun."""
        if self.summary is not None and self.summary_key == key:
            return [], self.summary
        events = self.close_summary()
        self.summary_key = key
        self.summary = OpenPart(SUMMARY, self._number, self.item_id, self.output_index, len(self.summaries))
        events.append(self.summary.added())
        return events, self.summary

    def close_summary(self) -> list[Event]:
        if self.summary is None:
            return []
        events, part = self.summary.close()
        self.summaries.append(part)
        self.summary = None
        return events

    def close_part(self) -> list[Event]:
        """Close the open parts: raw content first, then the summary."""
        events: list[Event] = []
        if self.part is not None:
            events, part = self.part.close()
            self.content.append(part)
            self.part = None
        return events + self.close_summary()

    def close(self, stopped: bool, abandoned: bool = False) -> Closing:
        cut = self.cut or abandoned or not stopped
        events = self.close_part()
        return Closing(events, self.item("incomplete" if cut else "completed", done=True), cut)

    def item(self, status: ItemStatus, done: bool = False) -> ReasoningItem:
        """Return the item as it is now; `done`: with its encrypted content."""
        content = [*self.content, *([self.part.content()] if self.part else [])]
        summary = [*self.summaries, *([self.summary.content()] if self.summary else [])]
        encrypted = self.encrypted if done and self.encrypted is not None else UNSET
        extra = self.extra if status == "in_progress" else self.extra_at_end or self.extra
        return ReasoningItem(self.item_id, summary, content or UNSET, encrypted, status, extra=extra)


class WholeBlock(OpenItem):
    """An item that a server completes itself, such as that of a hosted tool: it is announced, then
    completed."""

    __slots__ = ("_finished", "_item")

    def __init__(self, number: Number, item: Item) -> None:
        super().__init__(number, item.id)
        self._item = item
        self._finished: Item | None = None

    @property
    def call_id(self) -> str | None:
        """The call_id with which the call was announced; None for other items."""
        return call_id_of(self._item)

    def complete(self, item: Item) -> None:
        """Keep the finished item. The snapshot shows it only after the item's done event, as the events
        do."""
        self._finished = item

    def close(self, stopped: bool, abandoned: bool = False) -> Closing:
        cut = self.cut or abandoned or not stopped or self._finished is None
        item = self._finished or self._item
        if cut or getattr(item, "status", None) != "failed":
            item = with_status(item, "incomplete" if cut else "completed")
        return Closing([], item, cut)

    def item(self, status: ItemStatus) -> Item:
        return with_status(self._item, status)
