"""Items that are open (a message, a reasoning item, an item that a server fills), and their open parts: text,
refusal, raw reasoning or a summary.

A table says what each kind of part is made of on each wire, so that there is one part and four rows.
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
    """The spelling of a kind of part: its content struct and the four events of its life."""

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
    """A part that still receives deltas. `index` counts within the item's content, or within its summary. Its
    state follows `state.PART`; only the machine writes plain deltas without consulting the table.

    Its `extra` shows when it is done. A string with a reference elsewhere is copied whole at each `+=`, so
    the text sits in a StringIO (law E12).
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
        """The next piece; nothing while all of it is held back. Probabilities go with any text."""
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
        """All of the part's text at once."""
        return self.delta(text, logprobs) if text else []

    def annotate(self, annotation: Annotation) -> Event:
        self.state = PART[self.state]["annotation"]
        self.annotations.append(annotation)
        number, index = self._number(), len(self.annotations) - 1
        return ev.OutputTextAnnotationAdded(
            number, self.item_id, self.output_index, self.index, index, annotation
        )

    def close(self) -> tuple[list[Event], ContentPart]:
        """The done events and the finished part."""
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
        """The part as it stands, or with this text instead."""
        text = self.text.getvalue() if text is None else text
        if self.kind is TEXT:
            return ct.OutputTextContent(text, list(self.annotations), list(self.logprobs))
        part: ContentPart = self.kind.content(text)
        return part


class OpenItem:
    """An item from its announcement, when it gets its output index, to its end; `state` follows `state.ITEM`.
    `cut`: it ended before it was whole; it is then closed at the end of the response, since the specification
    lets no item follow an incomplete one. `extra` are the unknown fields that it was announced with,
    `extra_at_end` those that show when it is done."""

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
        """The item as it stands."""
        raise NotImplementedError

    def close_part(self) -> list[Event]:
        """Close what is open within."""
        return []

    def close(self, stopped: bool, abandoned: bool = False) -> Closing:
        """The end of the item, see `output.Block`."""
        raise NotImplementedError


class MessageBlock(OpenItem):
    """An assistant message. Text and refusal are successive parts of it; one is open at a time."""

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
        """Begin a part of this kind, closing the open one."""
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
        """The message as it stands, open text included."""
        live = [] if self.part is None else [self.part.content()]
        extra = self.extra if status == "in_progress" else self.extra_at_end or self.extra
        return Message(self.item_id, status, "assistant", [*self.parts, *live], self.phase, extra=extra)


class ReasoningBlock(OpenItem):
    """A reasoning item: raw content, summaries, encrypted content, in any combination.

    Encrypted content has no event of its own: it shows when the item is done.
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
        """The open raw part, begun when there is none."""
        if self.part is not None:
            return [], self.part
        self.part = OpenPart(self._kind, self._number, self.item_id, self.output_index, len(self.content))
        if not self.content and (self.summaries or self.summary is not None):
            self._summarised.add(self.item_id)
        return [self.part.added()], self.part

    def open_summary(self, key: int) -> tuple[list[Event], OpenPart]:
        """The summary part the upstream calls `key`; another key closes the open one."""
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
        """Close what is open within: raw content first, then the summary."""
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
        """The item as it stands; `done` lets the encrypted content show."""
        content = [*self.content, *([self.part.content()] if self.part else [])]
        summary = [*self.summaries, *([self.summary.content()] if self.summary else [])]
        encrypted = self.encrypted if done and self.encrypted is not None else UNSET
        extra = self.extra if status == "in_progress" else self.extra_at_end or self.extra
        return ReasoningItem(self.item_id, summary, content or UNSET, encrypted, status, extra=extra)


class WholeBlock(OpenItem):
    """An item that a server fills by itself (a hosted tool's): announced, then completed."""

    __slots__ = ("_finished", "_item")

    def __init__(self, number: Number, item: Item) -> None:
        super().__init__(number, item.id)
        self._item = item
        self._finished: Item | None = None

    @property
    def call_id(self) -> str | None:
        """The call id that the call was announced with; None for other items."""
        return call_id_of(self._item)

    def complete(self, item: Item) -> None:
        """Accept the finished item. No event carries it before its end, so the snapshot does not show it
        before."""
        self._finished = item

    def close(self, stopped: bool, abandoned: bool = False) -> Closing:
        cut = self.cut or abandoned or not stopped or self._finished is None
        item = self._finished or self._item
        if cut or getattr(item, "status", None) != "failed":
            item = with_status(item, "incomplete" if cut else "completed")
        return Closing([], item, cut)

    def item(self, status: ItemStatus) -> Item:
        return with_status(self._item, status)
