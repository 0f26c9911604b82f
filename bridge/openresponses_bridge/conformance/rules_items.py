"""Rules about output items: beginning, identity, end. Their content is checked in `rules_content`."""

from __future__ import annotations

from openresponses_bridge.conformance.advance import call_id_of
from openresponses_bridge.conformance.registry import (
    TERMINALS,
    WITHIN,
    Findings,
    RuleFinding,
    event_types,
    rule,
)
from openresponses_bridge.conformance.tracks import EventContext
from openresponses_bridge.state import ITEM, PAYLOADS, ROLES, BlockState

_ADDED = event_types("added", to="item")
_DONE = event_types("closed", to="item")
_ITEM = _ADDED | _DONE
_INSIDE = frozenset(ROLES) - _ITEM
# types whose status the schema requires, and types without one
_STATUS_BY_SCHEMA = frozenset({"message", "function_call", "function_call_output", "compaction"})


def _misplaced(context: EventContext, state: BlockState) -> bool:
    """Return True if the item is in this state and `state.ITEM` does not allow the event in it."""
    verb = "closed" if context.type in _DONE else "within"
    return context.item_state is state and verb not in ITEM[state]


@rule("specification, Items: all have id, type and status", _ITEM)
def item_present(context: EventContext) -> Findings:
    """An item event has an item, though the schema allows null."""
    if context.raw.get("item", context) is None:
        yield RuleFinding("there is no item", "$.item")


@rule("specification, Items: all have id, type and status", _ITEM)
def item_has_status(context: EventContext) -> Findings:
    """An item has a status (on the openresponses wire; OpenAI leaves it out of some items)."""
    item = context.object("item")
    if context.wire != "openresponses" or item is None or "status" in item:
        return
    if isinstance(item.get("type"), str) and item["type"] not in _STATUS_BY_SCHEMA:
        yield RuleFinding("the item has no status", "$.item.status")


@rule("specification, Streaming: the first is output_item.added; state.ITEM", _INSIDE, _DONE, WITHIN)
def item_added_first(context: EventContext) -> Findings:
    """The events of an item come after its output_item.added."""
    if _misplaced(context, BlockState.ABSENT):
        yield RuleFinding("no output_item.added announced this item")


@rule("specification, Items: no updates after a terminal status; state.ITEM", _INSIDE, WITHIN)
def item_after_closed(context: EventContext) -> Findings:
    """An item has no events after its output_item.done (field case 14)."""
    if _misplaced(context, BlockState.CLOSED):
        yield RuleFinding("output_item.done had closed this item")


@rule("specification, Items: completed and incomplete are terminal; state.ITEM", _DONE)
def item_closed_once(context: EventContext) -> Findings:
    """An item is done once."""
    if _misplaced(context, BlockState.CLOSED):
        yield RuleFinding("this item was done before")


@rule("strict judge; law E4", _ADDED)
def item_added_in_progress(context: EventContext) -> Findings:
    """An item is added with status in_progress."""
    status = (context.object("item") or {}).get("status")
    if isinstance(status, str) and status != "in_progress":
        yield RuleFinding(f"the item is added as {status}", "$.item.status")


@rule("strict judge; law E4, field case 19", _ADDED)
def item_added_empty(context: EventContext) -> Findings:
    """A message, call or reasoning item is added without content."""
    item = context.object("item") or {}
    for field in PAYLOADS.get(str(item.get("type")), {}).values():
        if item.get(field):
            yield RuleFinding("the item is added with content that was not streamed", f"$.item.{field}")


@rule("law E4, field cases 10 and 11", _ADDED)
def item_index_dense(context: EventContext) -> Findings:
    """Output indexes are 0, 1, 2 … in order of appearance, none used twice."""
    index, expected = context.number("output_index"), context.stream.next_index
    if index is not None and index != expected:
        yield RuleFinding(f"the item is added at {index}, expected {expected}", "$.output_index")


@rule("law E4", _ADDED)
def item_id_unique(context: EventContext) -> Findings:
    """No two items have the same id."""
    item_id = (context.object("item") or {}).get("id")
    if isinstance(item_id, str) and item_id in context.stream.by_id:
        yield RuleFinding(f"{item_id!r} is another item's", "$.item.id")


@rule("law E4, field case 17", _INSIDE, _DONE, WITHIN)
def item_id_stable(context: EventContext) -> Findings:
    """The events of an item have the id and the index with which it was added."""
    item, done = context.item, context.object("item")
    if item is None:
        return
    path, item_id = ("$.item_id", context.text("item_id")) if done is None else ("$.item.id", done.get("id"))
    if isinstance(item_id, str) and item.id is not None and item_id != item.id:
        yield RuleFinding(f"{item_id!r}, but the item was added as {item.id!r}", path)
    index = context.number("output_index")
    if index is not None and index != item.index:
        yield RuleFinding(f"{index}, but the item was added at {item.index}", "$.output_index")


@rule("law E4", _DONE)
def item_type_stable(context: EventContext) -> Findings:
    """An item is done with the type with which it was added."""
    kind = (context.object("item") or {}).get("type")
    added = None if context.item is None else context.item.type
    if isinstance(kind, str) and added is not None and kind != added:
        yield RuleFinding(f"{kind}, but the item was added as {added}", "$.item.type")


@rule("specification, Items: in_progress to completed or incomplete; state.ITEM_STATUSES", _DONE)
def item_closed_status(context: EventContext) -> Findings:
    """An item is done with a terminal status."""
    if (context.object("item") or {}).get("status") == "in_progress":
        yield RuleFinding("the item is done and still in_progress", "$.item.status")


@rule("specification, Items: an incomplete item is the last", _ADDED)
def item_incomplete_last(context: EventContext) -> Findings:
    """No item is added after one was done as incomplete."""
    if context.stream.cut is not None:
        yield RuleFinding(f"the item at {context.stream.cut.index} was done as incomplete before")


@rule("specification, Items: an incomplete item makes the response incomplete; law E7", "response.completed")
def item_incomplete_response(context: EventContext) -> Findings:
    """A response with an incomplete item is not completed."""
    if context.stream.cut is not None:
        yield RuleFinding(f"the item at {context.stream.cut.index} is incomplete")


@rule("strict judge; law E8", TERMINALS - {"response.failed"})
def item_unclosed(context: EventContext) -> Findings:
    """Every item is done before the response is, unless it failed."""
    for item in context.stream.items.values():
        if item.state is BlockState.OPEN:
            yield RuleFinding(f"the item at {item.index} has no output_item.done")


@rule("strict judge", _ITEM)
def message_role_assistant(context: EventContext) -> Findings:
    """A message in the output has the role assistant."""
    item = context.object("item") or {}
    role = item.get("role")
    if item.get("type") == "message" and isinstance(role, str) and role != "assistant":
        yield RuleFinding(f"the role is {role}", "$.item.role")


@rule("specification, Items: an output is joined to its call by call_id; field case 1", _ADDED)
def call_id_unique(context: EventContext) -> Findings:
    """No two calls of a response have the same call_id."""
    call_id = call_id_of(context.object("item"))
    if call_id is not None and call_id in context.stream.call_ids:
        yield RuleFinding(f"{call_id!r} is another call's", "$.item.call_id")
