"""`ResponseAccumulator` folds events into the Response that they describe so far.

Folding what the machine emits gives its snapshot after every event (law E1). Streams of other servers are
folded too: missing events are implied, items are found by output index first, by id where an index repeats,
and at the end the terminal event takes precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from openresponses_bridge.decoder.finish import Terminal
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.codec import decode_response, event_of, normalized
from openresponses_bridge.protocol.content import Annotation, ContentPart, LogProb
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall, Item, Message, ReasoningItem
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.protocol.unknown import UnknownEvent, UnknownItem, UnknownPart
from openresponses_bridge.text import repair_surrogates

# Text is collected in a StringIO: `+=` copies a string that has another reference. Structs are built on
# demand.

_TEXT_FIELD: dict[type[Any], str] = {
    ct.OutputTextContent: "text",
    ct.RefusalContent: "refusal",
    ct.ReasoningTextContent: "text",
    ct.SummaryTextContent: "text",
    ct.TextContent: "text",
    ct.InputTextContent: "text",
}
_CALL_FIELD: dict[type[Any], str] = {FunctionCall: "arguments", CustomToolCall: "input"}
# what a finished item keeps from the stream if its done event does not have it
_PAYLOAD: dict[type[Any], tuple[str, ...]] = {
    Message: ("content",),
    ReasoningItem: ("content", "summary"),
    FunctionCall: ("arguments", "call_id", "name"),
    CustomToolCall: ("input", "call_id", "name"),
}


class PartFold:
    """A content or summary part. `write` appends a delta."""

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

    def finish(self, text: str, logprobs: list[LogProb] | UnsetType = UNSET) -> None:
        """Set the whole text. If it is empty, the deltas are kept (field case 7)."""
        if text:
            self._begin(text)
        if logprobs:
            self.logprobs = list(logprobs)

    def add_logprobs(self, logprobs: list[LogProb]) -> None:
        self.logprobs = [*(self.logprobs or ()), *logprobs]

    def replaced_by(self, part: ContentPart) -> PartFold:
        """Return the fold of the finished part, which keeps this one's text if the part has none."""
        fold = PartFold(part)
        fold.finish(_text_of(part) or self._buffer.getvalue())
        return fold

    def build(self) -> ContentPart:
        """Return the part so far. The cost is that of its text."""
        part = self._part
        if isinstance(part, UnknownPart) or type(part) not in _TEXT_FIELD:
            return part
        text = repair_surrogates(self._buffer.getvalue())
        if isinstance(part, ct.OutputTextContent):
            logprobs = self.logprobs and list(self.logprobs)
            return replace(part, text=text, annotations=list(self.annotations), logprobs=logprobs)
        return replace(part, **{_TEXT_FIELD[type(part)]: text})


class ItemFold:
    """An output item. `implied` is True if no event has announced it, so that its own fields are guesses."""

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

    def finish(self, arguments: str) -> None:
        """Set a call's whole arguments. If they are empty, the deltas are kept (field case 7)."""
        if arguments:
            self._begin(arguments)

    def announce(self, item: Item) -> None:
        """Set the item's own fields from its `added` event; earlier deltas are kept."""
        fold = ItemFold(_completed(item, self.build()))
        self.id, self.item, self.implied = fold.id, fold.item, False
        self.parts, self.summary = fold.parts, fold.summary
        self._buffer, self.write = fold._buffer, fold.write

    def close(self, item: Item) -> None:
        """Set the finished item; for fields that it does not have, the streamed values are kept."""
        self.item = _completed(item, self.build())
        self.closed = True
        self.parts, self.summary = {}, {}
        self._begin("")

    def build(self) -> Item:
        """Return the item so far. The cost is that of its size, or nothing once it is closed."""
        item = self.item
        if self.closed or isinstance(item, UnknownItem):
            return item
        changes: dict[str, Any] = {}
        if self.parts and isinstance(item, Message | ReasoningItem):
            changes["content"] = _built(self.parts)
        if self.summary and isinstance(item, ReasoningItem):
            changes["summary"] = _built(self.summary)
        if field := _CALL_FIELD.get(type(item)):
            changes[field] = repair_surrogates(self._buffer.getvalue())
        return replace(item, **changes) if changes else item

    def ended(self, status: str) -> Item:
        """Return the item after the response has ended without closing it."""
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


Handler = Callable[["ResponseAccumulator", Any], None]


class ResponseAccumulator:
    """Folds one response's events, in any legal order and with any terminal event.

    `feed` costs amortised constant time per delta; `response` costs the size of what is open. `error` is the
    payload of an `error` event, which by itself changes nothing; `response.failed` does. Events after the
    terminal event change nothing. Unknown events are ignored.
    """

    __slots__ = ("_base", "_by_id", "_handlers", "_highest", "_items", "error")

    def __init__(self) -> None:
        self.error: ErrorPayload | None = None
        self._base: Response | None = None
        self._items: dict[int, ItemFold] = {}
        self._by_id: dict[str, ItemFold] = {}
        self._highest = -1  # the highest index of an item
        self._handlers = _HANDLERS

    def feed(self, event: Event | Mapping[str, Any]) -> None:
        """Fold the next event, a struct or its JSON object. Raises TypeError for anything else."""
        handler = self._handlers.get(type(event))
        if handler is None:
            event = event_of(event)
            handler = self._handlers.get(type(event))
        if handler is not None:
            handler(self, event)

    @property
    def response(self) -> Response | None:
        """The response so far, open items with their partial text; None before the first event."""
        if not self._items:
            return self._base
        return replace(self._base or _NOTHING, output=[fold.build() for fold in self._in_order()])

    def _lifecycle(self, event: ev.ResponseCreated) -> None:
        self._base = event.response
        if not self._items:
            for index, item in enumerate(event.response.output):
                self._place(index, ItemFold(item))

    def _terminal(self, event: Terminal) -> None:
        changes: dict[str, Any] = {}
        response = event.response
        if response.status not in _ENDINGS:
            changes["status"] = _STATUS[type(event)]
        if self._base is not None:
            changes.update(
                (name, getattr(self._base, name)) for name in _IDENTITY if not getattr(response, name)
            )
        if self._items and not response.output:
            status = "completed" if type(event) is ev.ResponseCompleted else "incomplete"
            changes["output"] = [fold.ended(status) for fold in self._in_order()]
        self._base = replace(response, **changes) if changes else response
        self._items.clear()
        self._by_id.clear()
        self._handlers = {}

    def _error(self, event: ev.ErrorEvent) -> None:
        self.error = event.payload

    def _unknown(self, event: UnknownEvent) -> None:
        known = normalized(event)
        if known is not None:
            self.feed(known)

    def _item_added(self, event: ev.OutputItemAdded) -> None:
        if event.item is None:
            return
        here = self._items.get(event.output_index)
        if here is None:
            self._place(event.output_index, ItemFold(event.item))
        elif here.implied or here.id == event.item.id:
            here.announce(event.item)
            self._by_id.setdefault(here.id, here)
        else:
            self._place(self._highest + 1, ItemFold(event.item))

    def _item_done(self, event: ev.OutputItemDone) -> None:
        item = event.item
        if item is None:
            return
        fold = self._items.get(event.output_index)
        if fold is None or fold.id != item.id:
            fold = self._by_id.get(item.id) or fold
        if fold is None:
            fold = self._place(event.output_index, ItemFold(item))
        elif fold.id != item.id and (fold.closed or type(fold.item) is not type(item)):
            fold = self._place(self._highest + 1, ItemFold(item))
        fold.close(item)

    def _part_added(self, event: ev.ContentPartAdded) -> None:
        fold = self._fold(event, _implied_by(event.part))
        _open_part(fold.parts, event.content_index, event.part)

    def _part_done(self, event: ev.ContentPartDone) -> None:
        fold = self._fold(event, _implied_by(event.part))
        _close_part(fold.parts, event.content_index, event.part)

    def _text_delta(self, event: ev.OutputTextDelta) -> None:
        fold = self._items.get(event.output_index)
        if fold is None or fold.id != event.item_id:
            fold = self._fold(event, _message)
        part = fold.parts.get(event.content_index) or _open_part(fold.parts, event.content_index, _TEXT)
        part.write(event.delta)
        if event.logprobs:
            part.add_logprobs(event.logprobs)

    def _text_done(self, event: ev.OutputTextDone) -> None:
        fold = self._fold(event, _message)
        _open_part(fold.parts, event.content_index, _TEXT).finish(event.text, event.logprobs)

    def _annotation(self, event: ev.OutputTextAnnotationAdded) -> None:
        if event.annotation is not None:
            fold = self._fold(event, _message)
            _open_part(fold.parts, event.content_index, _TEXT).annotations.append(event.annotation)

    def _refusal_delta(self, event: ev.RefusalDelta) -> None:
        fold = self._fold(event, _message)
        _open_part(fold.parts, event.content_index, _REFUSAL).write(event.delta)

    def _refusal_done(self, event: ev.RefusalDone) -> None:
        fold = self._fold(event, _message)
        _open_part(fold.parts, event.content_index, _REFUSAL).finish(event.refusal)

    def _reasoning_delta(self, event: ev.ReasoningDelta) -> None:
        fold = self._fold(event, _reasoning)
        _open_part(fold.parts, event.content_index, _THOUGHT).write(event.delta)

    def _reasoning_done(self, event: ev.ReasoningDone) -> None:
        fold = self._fold(event, _reasoning)
        _open_part(fold.parts, event.content_index, _THOUGHT).finish(event.text)

    def _summary_added(self, event: ev.ReasoningSummaryPartAdded) -> None:
        _open_part(self._fold(event, _reasoning).summary, event.summary_index, event.part)

    def _summary_closed(self, event: ev.ReasoningSummaryPartDone) -> None:
        _close_part(self._fold(event, _reasoning).summary, event.summary_index, event.part)

    def _summary_delta(self, event: ev.ReasoningSummaryTextDelta) -> None:
        fold = self._fold(event, _reasoning)
        _open_part(fold.summary, event.summary_index, _SUMMARY).write(event.delta)

    def _summary_done(self, event: ev.ReasoningSummaryTextDone) -> None:
        fold = self._fold(event, _reasoning)
        _open_part(fold.summary, event.summary_index, _SUMMARY).finish(event.text)

    def _arguments_delta(self, event: ev.FunctionCallArgumentsDelta) -> None:
        self._fold(event, _function_call).write(event.delta)

    def _arguments_done(self, event: ev.FunctionCallArgumentsDone) -> None:
        self._fold(event, _function_call).finish(event.arguments)

    def _input_delta(self, event: ev.CustomToolCallInputDelta) -> None:
        self._fold(event, _custom_call).write(event.delta)

    def _input_done(self, event: ev.CustomToolCallInputDone) -> None:
        self._fold(event, _custom_call).finish(event.input)

    def _fold(self, event: Any, implied: Callable[[str], Item]) -> ItemFold:
        """Return the item of an event: the one at its index, unless another item has its id. An item that was
        never announced is implied."""
        fold = self._items.get(event.output_index)
        if fold is not None and fold.id == event.item_id:
            return fold
        fold = self._by_id.get(event.item_id) or fold
        return fold or self._place(event.output_index, ItemFold(implied(event.item_id), implied=True))

    def _place(self, index: int, fold: ItemFold) -> ItemFold:
        self._base = self._base or _NOTHING
        self._items[index] = fold
        self._highest = max(self._highest, index)
        if fold.id:
            self._by_id.setdefault(fold.id, fold)
        return fold

    def _in_order(self) -> list[ItemFold]:
        return [self._items[index] for index in sorted(self._items)]


def _open_part(parts: dict[int, PartFold], index: int, zero: ContentPart) -> PartFold:
    fold = parts.get(index)
    if fold is None:
        fold = parts[index] = PartFold(zero)
    return fold


def _close_part(parts: dict[int, PartFold], index: int, part: ContentPart) -> None:
    parts[index] = parts[index].replaced_by(part) if index in parts else PartFold(part)


def _implied_by(part: ContentPart) -> Callable[[str], Item]:
    return _reasoning if isinstance(part, ct.ReasoningTextContent) else _message


_NOTHING = decode_response(b"{}")
_IDENTITY = ("id", "model", "created_at")
_ENDINGS = frozenset({"completed", "incomplete", "failed", "cancelled"})
_STATUS: dict[type[Any], str] = {
    ev.ResponseCompleted: "completed",
    ev.ResponseIncomplete: "incomplete",
    ev.ResponseFailed: "failed",
}

_TEXT = ct.OutputTextContent("", [])
_REFUSAL = ct.RefusalContent("")
_THOUGHT = ct.ReasoningTextContent("")
_SUMMARY = ct.SummaryTextContent("")


def _message(item_id: str) -> Item:
    return Message(item_id, "in_progress", "assistant", [])


def _reasoning(item_id: str) -> Item:
    return ReasoningItem(item_id, [], status="in_progress")


def _function_call(item_id: str) -> Item:
    return FunctionCall(item_id, "", "", "", "in_progress")


def _custom_call(item_id: str) -> Item:
    return CustomToolCall(item_id, "", "", "", "in_progress")


_HANDLERS: dict[type[Any], Handler] = {
    ev.ResponseCreated: ResponseAccumulator._lifecycle,
    ev.ResponseQueued: ResponseAccumulator._lifecycle,
    ev.ResponseInProgress: ResponseAccumulator._lifecycle,
    ev.ResponseCompleted: ResponseAccumulator._terminal,
    ev.ResponseIncomplete: ResponseAccumulator._terminal,
    ev.ResponseFailed: ResponseAccumulator._terminal,
    ev.OutputItemAdded: ResponseAccumulator._item_added,
    ev.OutputItemDone: ResponseAccumulator._item_done,
    ev.ContentPartAdded: ResponseAccumulator._part_added,
    ev.ContentPartDone: ResponseAccumulator._part_done,
    ev.OutputTextDelta: ResponseAccumulator._text_delta,
    ev.OutputTextDone: ResponseAccumulator._text_done,
    ev.OutputTextAnnotationAdded: ResponseAccumulator._annotation,
    ev.RefusalDelta: ResponseAccumulator._refusal_delta,
    ev.RefusalDone: ResponseAccumulator._refusal_done,
    ev.ReasoningDelta: ResponseAccumulator._reasoning_delta,
    ev.ReasoningTextDelta: ResponseAccumulator._reasoning_delta,
    ev.ReasoningDone: ResponseAccumulator._reasoning_done,
    ev.ReasoningTextDone: ResponseAccumulator._reasoning_done,
    ev.ReasoningSummaryPartAdded: ResponseAccumulator._summary_added,
    ev.ReasoningSummaryPartDone: ResponseAccumulator._summary_closed,
    ev.ReasoningSummaryTextDelta: ResponseAccumulator._summary_delta,
    ev.ReasoningSummaryTextDone: ResponseAccumulator._summary_done,
    ev.FunctionCallArgumentsDelta: ResponseAccumulator._arguments_delta,
    ev.FunctionCallArgumentsDone: ResponseAccumulator._arguments_done,
    ev.CustomToolCallInputDelta: ResponseAccumulator._input_delta,
    ev.CustomToolCallInputDone: ResponseAccumulator._input_done,
    ev.ErrorEvent: ResponseAccumulator._error,
    UnknownEvent: ResponseAccumulator._unknown,
}
