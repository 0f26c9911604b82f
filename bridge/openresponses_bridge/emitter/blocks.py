"""Items that are open: what all of them share, a message, a reasoning item, an item that a server fills."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from openresponses_bridge.emitter.output import Closing
from openresponses_bridge.emitter.parts import REASONING, SUMMARY, Number, OpenPart, PartKind
from openresponses_bridge.protocol.content import ContentPart
from openresponses_bridge.protocol.events import Event, OutputItemAdded, OutputItemDone
from openresponses_bridge.protocol.items import (
    Item,
    ItemStatus,
    Message,
    MessagePhase,
    ReasoningItem,
    call_id_of,
    with_status,
)
from openresponses_bridge.state import ITEM, BlockState


class OpenItem:
    """An item from its announcement to its end, which follows `state.ITEM`. `cut`: it ended before it was
    whole; it is then closed at the end of the response, since the specification lets no item follow an
    incomplete one."""

    __slots__ = ("_number", "cut", "item_id", "output_index", "state")

    def __init__(self, number: Number, item_id: str, output_index: int) -> None:
        self._number = number
        self.item_id = item_id
        self.output_index = output_index
        self.state = BlockState.ABSENT
        self.cut = False

    def added(self) -> Event:
        return self._announced(self.item("in_progress"))

    def item(self, status: ItemStatus) -> Item:
        """The item as it stands."""
        raise NotImplementedError

    def close_part(self) -> list[Event]:
        """Close what is open within."""
        return []

    def close(self, stopped: bool, abandoned: bool = False) -> Closing:
        """The end of the item, see `output.Block`."""
        raise NotImplementedError

    def _announced(self, item: Item) -> Event:
        self.state = ITEM[self.state]["added"]
        return OutputItemAdded(self._number(), self.output_index, item)

    def _done(self, item: Item) -> Event:
        self.state = ITEM[self.state]["closed"]
        return OutputItemDone(self._number(), self.output_index, item)


class MessageBlock(OpenItem):
    """An assistant message. Text and refusal are successive parts of it; one is open at a time."""

    __slots__ = ("part", "parts", "phase")

    def __init__(
        self, number: Number, item_id: str, output_index: int, phase: MessagePhase | UnsetType = UNSET
    ) -> None:
        super().__init__(number, item_id, output_index)
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
        item = self.item("incomplete" if cut else "completed")
        events.append(self._done(item))
        return Closing(events, item, cut)

    def item(self, status: ItemStatus) -> Message:
        """The message as it stands, open text included."""
        live = [] if self.part is None else [self.part.content()]
        return Message(self.item_id, status, "assistant", [*self.parts, *live], self.phase)


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
        self, number: Number, item_id: str, output_index: int, wire: str, summarised: set[str]
    ) -> None:
        super().__init__(number, item_id, output_index)
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
        item = self.item("incomplete" if cut else "completed", done=True)
        events.append(self._done(item))
        return Closing(events, item, cut)

    def item(self, status: ItemStatus, done: bool = False) -> ReasoningItem:
        """The item as it stands; `done` lets the encrypted content show."""
        content = [*self.content, *([self.part.content()] if self.part else [])]
        summary = [*self.summaries, *([self.summary.content()] if self.summary else [])]
        encrypted = self.encrypted if done and self.encrypted is not None else UNSET
        return ReasoningItem(self.item_id, summary, content or UNSET, encrypted, status)


class WholeBlock(OpenItem):
    """An item that a server fills by itself (a hosted tool's): announced, then completed."""

    __slots__ = ("_finished", "_item")

    def __init__(self, number: Number, item: Item, output_index: int) -> None:
        super().__init__(number, item.id, output_index)
        self._item = item
        self._finished: Item | None = None

    @property
    def call_id(self) -> str | None:
        """What a call was announced with; None for what is not one."""
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
        return Closing([self._done(item)], item, cut)

    def item(self, status: ItemStatus) -> Item:
        return with_status(self._item, status)
