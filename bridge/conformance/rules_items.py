"""Clauses about output items: beginning, identity, end. What they hold is in `rules_content`."""

from __future__ import annotations

from bridge.conformance.moment import Moment
from bridge.conformance.registry import RESPONSES, TERMINALS, Finding, Findings, doing, rule
from bridge.state import ITEM_STATUSES, PAYLOADS, ROLES, BlockState

_ADDED = doing("added", to="item")
_DONE = doing("closed", to="item")
_ITEM = _ADDED | _DONE
_INSIDE = frozenset(ROLES) - _ADDED
_ENDED_STATUSES = ITEM_STATUSES["in_progress"]


@rule("specification, Items: all have id, type and status", _ITEM)
def item_present(moment: Moment) -> Findings:
    """An item event carries its item, though the schema admits null."""
    if "item" in moment.raw and moment.raw["item"] is None:
        yield Finding("there is no item", "$.item")


@rule("specification, Items: all have id, type and status", _ITEM)
def item_has_status(moment: Moment) -> Findings:
    """An item says its status (compaction has none in the schema, OpenAI's own items may have none)."""
    item = moment.object("item") or {}
    kind = item.get("type")
    if moment.wire == "openresponses" and isinstance(kind, str) and kind not in _OWN_STATUS and "status" not in item:
        yield Finding("the item has no status", "$.item")


_OWN_STATUS = frozenset({"compaction", "message", "function_call", "function_call_output"})  # schema's


@rule("specification, Streaming: the first is output_item.added; state.ITEM", _INSIDE, WITHIN)
def item_added_first(moment: Moment) -> Findings:
    """Events of an item come after its output_item.added."""
    if moment.item_state is BlockState.ABSENT:
        yield Finding("no output_item.added announced this item")
