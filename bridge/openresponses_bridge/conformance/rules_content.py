"""Rules about the content of items: parts, their texts, annotations, and the arguments of calls."""

from __future__ import annotations

from openresponses_bridge.conformance.registry import Findings, RuleFinding, event_types, rule
from openresponses_bridge.conformance.tracks import EventContext, text_of
from openresponses_bridge.state import (
    ARGUMENTS,
    ITEM_OF_CALL_EVENT,
    PART,
    PART_OF_EVENT,
    PARTS_OF_ITEM,
    PAYLOADS,
    BlockState,
)

_ADDED = event_types("added")
_DONE = event_types("done")
_CLOSED = event_types("closed")
_TEXT = event_types("delta", "done", "annotation")
_ANNOTATION = event_types("annotation")
_CALL = event_types("delta", "done", to="call")
_CALL_DONE = event_types("done", to="call")
_ITEM_DONE = event_types("closed", to="item")


def _stands(context: EventContext) -> bool:
    """Return True if the item exists and is open; if not, the rules of items report it."""
    return context.item_state is BlockState.OPEN


def _misplaced(context: EventContext, *states: BlockState) -> bool:
    """Return True if the part is in one of these states and `state.PART` does not allow the event in it."""
    state, role = context.block_state, context.role
    return _stands(context) and role is not None and state in states and role.verb not in PART[state]


@rule("specification, Streaming: content is backed by a part; state.PART", _TEXT, _CLOSED)
def part_backed(context: EventContext) -> Findings:
    """Text belongs to a part that was added before."""
    if _misplaced(context, BlockState.ABSENT):
        yield RuleFinding("no part was added at this index")


@rule("specification, Streaming: deltas, done, then the part's done; state.PART", _CLOSED)
def part_done_before_closed(context: EventContext) -> Findings:
    """A part's text is done before the part is."""
    if _misplaced(context, BlockState.OPEN):
        yield RuleFinding("the part's text had no done event")


@rule("specification, Streaming: deltas, done, then the part's done; state.PART", _TEXT, _CLOSED)
def part_after_done(context: EventContext) -> Findings:
    """A part's text does not change after its done event, nor the part after its own."""
    if _misplaced(context, BlockState.SEALED, BlockState.CLOSED):
        yield RuleFinding(f"the part is {context.block_state} already")


@rule("specification, Streaming: parts are closed before their item; state.PART", _ITEM_DONE)
def part_unclosed(context: EventContext) -> Findings:
    """Every part is done before its item is."""
    if context.item is None:
        return
    for subject, blocks in context.item.blocks.items():
        for index, block in blocks.items():
            if block.state is not BlockState.CLOSED:
                yield RuleFinding(f"the {subject} at {index} was not done")


@rule("law E4", _ADDED)
def part_index_dense(context: EventContext) -> Findings:
    """The indexes of an item's parts are 0, 1, 2 … in order of appearance, none used twice."""
    if not _stands(context) or context.item is None or context.role is None:
        return
    expected = max(context.item.blocks[context.role.subject], default=-1) + 1
    if context.block_index != expected:
        yield RuleFinding(f"the part is added at {context.block_index}, expected {expected}")


@rule("specification, Streaming: zero values at first; law E4", _ADDED)
def part_added_empty(context: EventContext) -> Findings:
    """A part is added without text or annotations."""
    part = context.object("part") or {}
    if text_of(part) or part.get("annotations"):
        yield RuleFinding("the part is added with content that was not streamed", "$.part")


@rule("strict judge; state.PARTS_OF_ITEM", _ADDED)
def part_kind_of_item(context: EventContext) -> Findings:
    """A message has parts of output_text and refusal, a reasoning item its own kinds of text."""
    kind = (context.object("part") or {}).get("type")
    if context.item is None or context.role is None or not isinstance(kind, str):
        return
    kinds = PARTS_OF_ITEM.get((context.item.type or "", context.role.subject))
    if kinds is not None and kind not in kinds:
        yield RuleFinding(f"a {context.item.type} item does not hold {kind} there", "$.part.type")


@rule("specification, Streaming; state.PART_OF_EVENT", _TEXT)
def part_kind_of_event(context: EventContext) -> Findings:
    """Each kind of part grows by its own events."""
    kind = PART_OF_EVENT.get(context.stem)
    block_kind = None if context.block is None else context.block.kind
    if block_kind is not None and block_kind != kind:
        yield RuleFinding(f"the part at this index is {block_kind}")


@rule("law E4", _CLOSED)
def part_kind_stable(context: EventContext) -> Findings:
    """A part is done with the type with which it was added."""
    kind = (context.object("part") or {}).get("type")
    block_kind = None if context.block is None else context.block.kind
    if isinstance(kind, str) and block_kind is not None and kind != block_kind:
        yield RuleFinding(f"{kind}, but the part was added as {block_kind}", "$.part.type")


@rule("strict judge; law E1", _DONE)
def delta_sum_text(context: EventContext) -> Findings:
    """The deltas add up to the done text."""
    if _stands(context) and context.payload is not None and context.block_state is BlockState.OPEN:
        yield from _differs(context, context.payload, "the text is not what the deltas add up to")


@rule("strict judge; law E1", _CLOSED)
def delta_sum_part(context: EventContext) -> Findings:
    """A part is done with the text of its done event."""
    part = context.object("part")
    if _stands(context) and part is not None and context.block is not None:
        yield from _differs(context, text_of(part), "the part's text is not what was streamed", "$.part")


@rule("strict judge; law E1", _ITEM_DONE)
def delta_sum_item(context: EventContext) -> Findings:
    """An item is done with the parts that were streamed."""
    item = context.object("item")
    if item is not None and context.item is not None and _stands(context):
        for subject, field, what in context.item.differences(item):
            if subject != "call":
                yield RuleFinding(what, f"$.item.{field}")


@rule("law E4", _ANNOTATION)
def annotation_index_dense(context: EventContext) -> Findings:
    """The indexes of a part's annotations are 0, 1, 2 … in order of appearance."""
    index = context.number("annotation_index")
    expected = 0 if context.block is None else len(context.block.annotations)
    if _stands(context) and index is not None and index != expected:
        yield RuleFinding(f"{index}, expected {expected}", "$.annotation_index")


@rule("law E1", _CLOSED)
def annotation_in_part(context: EventContext) -> Findings:
    """A part is done with the annotations that were streamed."""
    annotations = (context.object("part") or {}).get("annotations")
    streamed = [] if context.block is None else context.block.annotations
    if streamed and isinstance(annotations, list) and annotations != streamed:
        yield RuleFinding("they differ from the streamed annotations", "$.part.annotations")


@rule("specification, Streaming; state.ITEM_OF_CALL_EVENT", _CALL)
def call_kind_of_item(context: EventContext) -> Findings:
    """Each kind of call gets its own events."""
    kind = None if context.item is None else context.item.type
    if kind is not None and kind != ITEM_OF_CALL_EVENT.get(context.stem):
        yield RuleFinding(f"the item is a {kind}")


@rule("specification, Streaming: deltas, then done; state.ARGUMENTS", _CALL)
def call_after_done(context: EventContext) -> Findings:
    """A call's arguments do not change after their done event."""
    verb = context.role.verb if context.role else ""
    if _stands(context) and verb not in ARGUMENTS[context.block_state]:
        yield RuleFinding("the arguments were done before")


@rule("strict judge; laws E1 and E6", _CALL_DONE)
def call_arguments_sum(context: EventContext) -> Findings:
    """The deltas of a call add up to its done arguments."""
    if _stands(context) and context.payload is not None and context.block_state is not BlockState.SEALED:
        yield from _differs(context, context.payload, "the arguments are not what the deltas add up to")


@rule("specification, Streaming; law E6, field case 6", _ITEM_DONE)
def call_arguments_done(context: EventContext) -> Findings:
    """A completed call has a done event of its arguments (an incomplete one needs none)."""
    item = context.object("item") or {}
    is_call = "call" in PAYLOADS.get(str(item.get("type")), {})
    sealed = context.item is not None and context.item.call.state is BlockState.SEALED
    if _stands(context) and is_call and item.get("status") == "completed" and not sealed:
        yield RuleFinding("the arguments had no done event")


@rule("strict judge; law E1", _ITEM_DONE)
def call_done_matches(context: EventContext) -> Findings:
    """A call is done with the arguments that were streamed."""
    item = context.object("item")
    if item is not None and context.item is not None and _stands(context):
        for subject, field, what in context.item.differences(item):
            if subject == "call":
                yield RuleFinding(what, f"$.item.{field}")


@rule("law E4", _ITEM_DONE)
def call_identity_stable(context: EventContext) -> Findings:
    """A call keeps its call_id and its name."""
    done, added = context.object("item"), None if context.item is None else context.item.added
    if done is None or added is None or "call" not in PAYLOADS.get(str(added.get("type")), {}):
        return
    for field in ("call_id", "name"):
        if field in done and field in added and done[field] != added[field]:
            yield RuleFinding(f"{done[field]!r}, but it was added as {added[field]!r}", f"$.item.{field}")


def _differs(context: EventContext, text: str, message: str, path: str = "") -> Findings:
    streamed = "" if context.block is None else context.block.text
    if text != streamed:
        yield RuleFinding(f"{message} ({len(text)} and {len(streamed)} characters)", path)
