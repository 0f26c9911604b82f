"""Items and parts that still grow: what the accumulator folds events into.

Text sits in a StringIO, since a string with a reference elsewhere is copied whole at each `+=`; structs are
built when they are asked for.
"""

from __future__ import annotations

from io import StringIO
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol.content import Annotation, ContentPart, LogProb
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall, Item, Message, ReasoningItem
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownPart
from openresponses_bridge.surrogates import mended

_TEXT_FIELD: dict[type[Any], str] = {
    ct.OutputTextContent: "text",
    ct.RefusalContent: "refusal",
    ct.ReasoningTextContent: "text",
    ct.SummaryTextContent: "text",
    ct.TextContent: "text",
    ct.InputTextContent: "text",
}
_CALL_FIELD: dict[type[Any], str] = {FunctionCall: "arguments", CustomToolCall: "input"}
# what a finished item keeps from the stream where it comes back without it
_PAYLOAD: dict[type[Any], tuple[str, ...]] = {
    Message: ("content",),
    ReasoningItem: ("content", "summary"),
    FunctionCall: ("arguments", "call_id", "name"),
    CustomToolCall: ("input", "call_id", "name"),
}


class PartFold:
    """A content or summary part. `write` takes a delta."""

    __slots__ = ("_buffer", "_part", "annotations", "logprobs", "write")

    def __init__(self, part: ContentPart) -> None:
        self._part = part
        self.annotations: list[Annotation] = []
        self.logprobs: list[LogProb] | UnsetType = UNSET
        if isinstance(part, ct.OutputTextContent):
            self.annotations.extend(part.annotations)
            self.logprobs = part.logprobs and list(part.logprobs)
        self._begin(_text_of(part))

    def _begin(self, text: str) -> None:
        self._buffer = StringIO()
        self.write = self._buffer.write
        self.write(text)

    def settle(self, text: str, logprobs: list[LogProb] | UnsetType = UNSET) -> None:
        """The whole text. An empty one leaves what was streamed (field case 7)."""
        if text:
            self._begin(text)
        if logprobs:
            self.logprobs = list(logprobs)

    def add_logprobs(self, logprobs: list[LogProb]) -> None:
        self.logprobs = [*(self.logprobs or ()), *logprobs]

    def replaced_by(self, part: ContentPart) -> PartFold:
        """The fold of the finished part, which keeps this one's text when it comes without any."""
        fold = PartFold(part)
        fold.settle(_text_of(part) or self._buffer.getvalue())
        return fold

    def build(self) -> ContentPart:
        """The part as it stands. Costs its text."""
        part = self._part
        if isinstance(part, UnknownPart) or type(part) not in _TEXT_FIELD:
            return part
        text = mended(self._buffer.getvalue())
        if isinstance(part, ct.OutputTextContent):
            logprobs = self.logprobs and list(self.logprobs)
            return ct.OutputTextContent(text, list(self.annotations), logprobs)
        return replace(part, **{_TEXT_FIELD[type(part)]: text})


class ItemFold:
    """An output item. `implied`: no event has announced it, its own fields are guesses."""

    __slots__ = ("_buffer", "closed", "id", "implied", "item", "parts", "summary", "write")

    def __init__(self, item: Item, implied: bool = False) -> None:
        self.id = item.id
        self.item = item
        self.implied = implied
        self.closed = False
        self.parts: dict[int, PartFold] = {}
        self.summary: dict[int, PartFold] = {}
        if isinstance(item, Message | ReasoningItem):
            self.parts.update(enumerate(map(PartFold, item.content or ())))
        if isinstance(item, ReasoningItem):
            self.summary.update(enumerate(map(PartFold, item.summary)))
        field = _CALL_FIELD.get(type(item))
        self._begin(getattr(item, field) if field else "")

    def _begin(self, arguments: str) -> None:
        self._buffer = StringIO()
        self.write = self._buffer.write
        self.write(arguments)

    def settle(self, arguments: str) -> None:
        """A call's whole arguments. Empty ones leave what was streamed (field case 7)."""
        if arguments:
            self._begin(arguments)

    def announce(self, item: Item) -> None:
        """The item as its `added` says it is; what was streamed before that stays."""
        fold = ItemFold(_completed(item, self.build()))
        self.id, self.item, self.implied = fold.id, fold.item, False
        self.parts, self.summary = fold.parts, fold.summary
        self._buffer, self.write = fold._buffer, fold.write

    def close(self, item: Item) -> None:
        """The finished item; what it comes without stays as it was streamed."""
        self.item = _completed(item, self.build())
        self.closed = True
        self.parts, self.summary = {}, {}
        self._begin("")

    def build(self) -> Item:
        """The item as it stands. Costs its own size, nothing once it is closed."""
        item = self.item
        if self.closed or isinstance(item, UnknownItem):
            return item
        changes: dict[str, Any] = {}
        if self.parts and isinstance(item, Message | ReasoningItem):
            changes["content"] = _built(self.parts)
        if self.summary and isinstance(item, ReasoningItem):
            changes["summary"] = _built(self.summary)
        if field := _CALL_FIELD.get(type(item)):
            changes[field] = mended(self._buffer.getvalue())
        return replace(item, **changes) if changes else item

    def ended(self, status: str) -> Item:
        """The item when the response has ended without closing it."""
        item = self.build()
        if isinstance(item, UnknownItem) or getattr(item, "status", UNSET) != "in_progress":
            return item
        return replace(item, status=status)


def _built(folds: dict[int, PartFold]) -> list[ContentPart]:
    return [folds[index].build() for index in sorted(folds)]


def _completed(item: Item, streamed: Item) -> Item:
    if isinstance(item, UnknownItem) or type(item) is not type(streamed):
        return item
    missing = {
        name: getattr(streamed, name) for name in _PAYLOAD.get(type(item), ()) if not getattr(item, name)
    }
    changes = {name: value for name, value in missing.items() if value}
    return replace(item, **changes) if changes else item


def _text_of(part: ContentPart) -> str:
    field = _TEXT_FIELD.get(type(part))
    return getattr(part, field) if field else ""
