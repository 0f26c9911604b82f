"""Updates the state of a stream (`StreamTrack`) with an event, whatever is wrong with that event.

Recovery is silent: an event out of order is treated as if the missing events had come before it, so that one
mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openresponses_bridge.conformance.tracks import BlockTrack, EventContext, ItemTrack, StreamTrack, text_of
from openresponses_bridge.state import (
    EXTENSION,
    FIXED_FIELDS,
    LIFECYCLE_EVENTS,
    OUTPUT,
    PART_OF_EVENT,
    STREAM,
    TABLE_OF_SUBJECT,
    BlockState,
    EventRole,
    StreamState,
)

# state of a stream after an event that was out of order
_IMPLIED = {
    "response.created": StreamState.CREATED,
    "response.queued": StreamState.CREATED,
    "response.completed": StreamState.ENDED,
    "response.incomplete": StreamState.ENDED,
    "response.failed": StreamState.ENDED,
    "error": StreamState.FAILING,
}
# state of an item, part or arguments after an event that the tables do not allow; for all others the state is
# kept
_IMPLIED_BLOCK = {"added": BlockState.OPEN, "done": BlockState.SEALED, "closed": BlockState.CLOSED}


def next_state(state: StreamState, event_type: str) -> StreamState | None:
    """Return the next state by `state.STREAM`; None if the event is not allowed in this state."""
    if event_type in LIFECYCLE_EVENTS:
        return STREAM[state].get(event_type)
    return STREAM[state].get(EXTENSION if ":" in event_type else OUTPUT)


def advance(context: EventContext) -> None:
    """Update the stream's track with the event."""
    stream = context.stream
    stream.events += 1
    number = context.number("sequence_number")
    if number is None and stream.number is not None:
        number = stream.number + 1
    stream.number = number
    if stream.state is StreamState.ENDED:
        return
    stream.state = next_state(stream.state, context.type) or _recover(stream.state, context.type)
    stream.in_progress = stream.in_progress or context.type == "response.in_progress"
    response = context.object("response")
    if response is not None:
        _identify(stream, response)
    if context.role is not None:
        _VERBS[context.role.verb](stream, context)


def _identify(stream: StreamTrack, response: dict[str, Any]) -> None:
    if stream.response_id is None and isinstance(response.get("id"), str):
        stream.response_id = response["id"]
    for field in FIXED_FIELDS & response.keys():
        stream.first.setdefault(field, response[field])


def _recover(state: StreamState, event_type: str) -> StreamState:
    implied = _IMPLIED.get(event_type, StreamState.RUNNING)
    backwards = implied is StreamState.CREATED and state is not StreamState.EXPECTING
    return state if backwards else implied


def _added(stream: StreamTrack, context: EventContext) -> None:
    if context.role is not None and context.role.subject == "item":
        index = context.number("output_index")
        _begin(stream, stream.next_index if index is None else index, context)
    else:
        part = context.object("part") or {}
        kind = part.get("type")
        block = _block(stream, context)
        block.kind = kind if isinstance(kind, str) else None
        block.state = _next(block.state, context.role)
        block.write(text_of(part))


def _begin(stream: StreamTrack, index: int, context: EventContext) -> ItemTrack:
    item = ItemTrack(index, context.object("item"))
    if item.id is None:
        item.id = context.text("item_id")
    stream.begin(item)
    if item.id is not None:
        stream.by_id.setdefault(item.id, item)
    if (call_id := call_id_of(item.added)) is not None:
        stream.call_ids.add(call_id)
    return item


def call_id_of(item: dict[str, Any] | None) -> str | None:
    """Return the call_id of a call itself; an output only repeats that of its call."""
    if item is None or str(item.get("type")).endswith("_output"):
        return None
    call_id = item.get("call_id")
    return call_id if isinstance(call_id, str) else None


def _item(stream: StreamTrack, context: EventContext) -> ItemTrack:
    """Return the item, which is created here if no event has begun it."""
    if context.item is None:
        index = context.number("output_index")
        context.item = _begin(stream, stream.next_index if index is None else index, context)
        context.item.added = None
    return context.item


def _block(stream: StreamTrack, context: EventContext) -> BlockTrack:
    """Return the part or call, which is created here if no event has begun it."""
    item = _item(stream, context)
    if context.block is None:
        assert context.role is not None
        if context.role.subject == "call":
            context.block = item.call
        else:
            kind = PART_OF_EVENT.get(context.stem)
            context.block = item.blocks[context.role.subject][context.block_index] = BlockTrack(kind)
    return context.block


def _next(state: BlockState, role: EventRole | None) -> BlockState:
    """Return the next state by the block's table; a block without a beginning counts as begun."""
    assert role is not None
    table = TABLE_OF_SUBJECT[role.subject]
    ways = table.get(state, {})
    if state is BlockState.ABSENT and role.verb not in ways:
        ways = table[BlockState.OPEN]
    return ways.get(role.verb) or _IMPLIED_BLOCK.get(role.verb, state)


def _delta(stream: StreamTrack, context: EventContext) -> None:
    block = _block(stream, context)
    block.state = _next(block.state, context.role)
    block.write(context.payload or "")


def _done(stream: StreamTrack, context: EventContext) -> None:
    block = _block(stream, context)
    block.state = _next(block.state, context.role)
    block.seal(block.text if context.payload is None else context.payload)


def _annotation(stream: StreamTrack, context: EventContext) -> None:
    block = _block(stream, context)
    block.state = _next(block.state, context.role)
    block.annotations.append(context.raw.get("annotation"))


def _closed(stream: StreamTrack, context: EventContext) -> None:
    if context.role is not None and context.role.subject == "item":
        item = _item(stream, context)
        done = context.object("item")
        item.close(done)
        if done is not None and done.get("status") == "incomplete" and stream.cut is None:
            stream.cut = item
        return
    block = _block(stream, context)
    block.state = _next(block.state, context.role)
    part = context.object("part")
    if part is not None:
        kind = part.get("type")
        block.kind = kind if isinstance(kind, str) else block.kind
        block.seal(text_of(part))


def _within(stream: StreamTrack, context: EventContext) -> None:
    _item(stream, context)


_VERBS: dict[str, Callable[[StreamTrack, EventContext], None]] = {
    "added": _added,
    "within": _within,
    "delta": _delta,
    "done": _done,
    "annotation": _annotation,
    "closed": _closed,
}
