"""Rules about the response in lifecycle events."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.conformance.registry import RESPONSES, TERMINALS, Findings, RuleFinding, rule
from openresponses_bridge.conformance.tracks import EventContext, ItemTrack
from openresponses_bridge.state import STATUSES, WIRES, BlockState

# status of a cancelled response on each wire; `any` allows both
_CANCELLED = {name: frozenset({wire.cancelled_status}) for name, wire in WIRES.items()}

_ABSENT = object()


@rule("law E8, field case 20; state.STATUSES", RESPONSES)
def status_event_matches(context: EventContext) -> Findings:
    """The response has the status of the event's type."""
    status = _response(context).get("status")
    allowed = STATUSES[context.type]
    if context.wire in _CANCELLED:
        allowed = allowed - {"cancelled"} | (allowed & _CANCELLED[context.wire])
    if isinstance(status, str) and status not in allowed:
        yield RuleFinding(f"{status} in {context.type}", "$.response.status")


@rule("field case 38", RESPONSES)
def response_same_id(context: EventContext) -> Findings:
    """Every event names the same response."""
    known, response_id = context.stream.response_id, _response(context).get("id")
    if known is not None and isinstance(response_id, str) and response_id != known:
        yield RuleFinding(f"{response_id!r}, but the response was created as {known!r}", "$.response.id")


@rule("law E1; state.FIXED_FIELDS", RESPONSES)
def response_same_facts(context: EventContext) -> Findings:
    """created_at, previous_response_id, store and background do not change from event to event."""
    response = _response(context)
    for field, first in sorted(context.stream.first.items()):
        if field in response and response[field] != first:
            yield RuleFinding(f"{response[field]!r}, but it began with {first!r}", f"$.response.{field}")


@rule("strict judge", RESPONSES)
def response_completed_at(context: EventContext) -> Findings:
    """completed_at is set exactly when the response is completed."""
    yield from _set_exactly_when(context, "completed_at", context.type == "response.completed")


@rule("specification, ResponseResource: both are Unix times of the same response", "response.completed")
def response_completed_after_created(context: EventContext) -> Findings:
    """A response is not completed before it was created."""
    response = _response(context)
    created, completed = response.get("created_at"), response.get("completed_at")
    if type(created) is int and type(completed) is int and completed < created:
        yield RuleFinding(f"{completed} is before created_at, {created}", "$.response.completed_at")


@rule("strict judge", RESPONSES)
def response_error_iff_failed(context: EventContext) -> Findings:
    """error is set exactly when the response failed."""
    yield from _set_exactly_when(context, "error", context.type == "response.failed")


@rule("strict judge; field case 23", RESPONSES)
def response_incomplete_details_iff(context: EventContext) -> Findings:
    """incomplete_details is set exactly when the response is incomplete (either way if it is cancelled)."""
    if _response(context).get("status") != "cancelled":
        yield from _set_exactly_when(context, "incomplete_details", context.type == "response.incomplete")


@rule("law E1", RESPONSES - TERMINALS)
def response_starts_empty(context: EventContext) -> Findings:
    """Before the terminal event, the response in an event has only output that was streamed."""
    if _response(context).get("output") and not context.stream.items:
        yield RuleFinding("the output was not streamed", "$.response.output")


@rule("strict judge; law E1, field case 12", TERMINALS)
def terminal_output_equals_items(context: EventContext) -> Findings:
    """The output of the terminal event is the items as they were done, in the order of their indexes."""
    output = _response(context).get("output")
    if not isinstance(output, list):
        return
    items = [item for _, item in sorted(context.stream.items.items())]
    if len(output) != len(items):
        items = [item for item in items if item.state is BlockState.CLOSED]
    if len(output) != len(items):
        yield RuleFinding(f"it has {len(output)} items, {len(items)} were done", "$.response.output")
        return
    for index, (item, shown) in enumerate(zip(items, output, strict=True)):
        for field, what in _compare(item, shown):
            yield RuleFinding(what, f"$.response.output[{index}]{field}")


@rule("law E8", "response.failed")
def terminal_unclosed_incomplete(context: EventContext) -> Findings:
    """An item that a failure left open is incomplete in the output."""
    output = _response(context).get("output")
    for index, shown in enumerate(output if isinstance(output, list) else []):
        item = context.stream.find(None, shown.get("id")) if isinstance(shown, dict) else None
        if (
            item is not None
            and item.state is BlockState.OPEN
            and shown.get("status", "incomplete") != "incomplete"
        ):
            yield RuleFinding(
                f"the item is {shown['status']} and was not done", f"$.response.output[{index}].status"
            )


def _compare(item: ItemTrack, shown: Any) -> list[tuple[str, str]]:
    if item.state is BlockState.CLOSED:
        return [] if item.done is None or shown == item.done else [("", _changes(item.done, shown))]
    if not isinstance(shown, dict) or shown.get("id", item.id) != item.id:
        return [("", "it is not the item that was added")]
    return [(f".{field}", what) for _, field, what in item.differences(shown)]


def _changes(done: dict[str, Any], shown: Any) -> str:
    if not isinstance(shown, dict) or shown.get("id") != done.get("id"):
        return "it is not the item that was done"
    changed = [field for field in done | shown if done.get(field, _ABSENT) != shown.get(field, _ABSENT)]
    return f"it differs from the item that was done in {', '.join(changed)}"


def _set_exactly_when(context: EventContext, field: str, when: bool) -> Findings:
    """Reports nothing when the field is absent: the schema requires it."""
    response = _response(context)
    if field in response and (response[field] is not None) != when:
        yield RuleFinding("it must be set here" if when else "it must be null here", f"$.response.{field}")


def _response(context: EventContext) -> dict[str, Any]:
    return context.object("response") or {}


_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
# a count that is a part of another: its place, and the whole
_PARTS = {
    ("input_tokens_details", "cached_tokens"): "input_tokens",
    ("output_tokens_details", "reasoning_tokens"): "output_tokens",
}


@rule("specification, OpenAPI: Usage, the total number of tokens", RESPONSES)
def usage_sum(context: EventContext) -> Findings:
    """total_tokens is the sum of input_tokens and output_tokens."""
    usage = _usage(context)
    sent, received, total = (_count(usage, name) for name in _COUNTS)
    if sent is not None and received is not None and total is not None and sent + received != total:
        yield RuleFinding(
            f"{total}, but {sent} and {received} make {sent + received}", f"{_PATH}.total_tokens"
        )


@rule("specification, OpenAPI: Usage, a count of tokens", RESPONSES)
def usage_negative(context: EventContext) -> Findings:
    """No count of tokens is negative."""
    usage = _usage(context)
    places = [(_PATH, usage, name) for name in _COUNTS]
    places += [(f"{_PATH}.{details}", _object(usage.get(details)), name) for details, name in _PARTS]
    for path, holder, name in places:
        if (_count(holder, name) or 0) < 0:
            yield RuleFinding(f"{holder[name]} tokens", f"{path}.{name}")


@rule("specification, OpenAPI: Usage, a breakdown of the tokens", RESPONSES)
def usage_part_of_whole(context: EventContext) -> Findings:
    """Cached tokens are at most the input tokens, and reasoning tokens at most the output tokens."""
    usage = _usage(context)
    for (details, name), whole in _PARTS.items():
        part, most = _count(_object(usage.get(details)), name), _count(usage, whole)
        if part is not None and most is not None and part > most >= 0:
            yield RuleFinding(f"{part}, more than the {most} {whole}", f"{_PATH}.{details}.{name}")


_PATH = "$.response.usage"


def _usage(context: EventContext) -> dict[str, Any]:
    return _object(_object(context.raw.get("response")).get("usage"))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(holder: dict[str, Any], name: str) -> int | None:
    value = holder.get(name)
    return value if type(value) is int else None
