"""`truncation: auto`: drops items from the beginning of a conversation that exceeds its model's context, as
OpenAI documents it.

Instructions, tools, system and developer messages and the user's last messages stay, and calls stay with
their outputs. The oldest turns go first, each whole, until the rest fits; then the oldest rounds of calls of
the last turn. Each item is counted once: the cost is linear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.dialects.base import AnyItem, History, is_update
from openresponses_bridge.models.tokens import TokenCounter
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.unknown import Unknown
from openresponses_server.requests.abilities import FittedRequest
from openresponses_server.requests.compaction import is_summary
from openresponses_server.runs.metering import input_room_of
from openresponses_server.upstreams.targets import Target

_PINNED_ROLES: Final = frozenset({"system", "developer"})
# they declare tools, or stand for all items before them
_PINNED_TYPES: Final = frozenset({"additional_tools", "tool_search_call", "tool_search_output", "compaction"})
_ROUNDING: Final = 0.5  # tokens by which the count of an item may be too low
_REFUSAL_DIVISOR: Final = 2  # the part of a refused request's tokens that is sent next


class Truncator(Struct, frozen=True):
    """Truncates requests with `truncation: auto` to the model's context."""

    counter: TokenCounter

    def truncated(self, fit: FittedRequest, target: Target, *, after_refusal: bool = False) -> FittedRequest:
        """The truncated request, with the dropped items among its losses; unchanged when it fits, when the
        model's limit is not known, and when the upstream truncates itself. It is halved after the upstream
        has refused it as too long."""
        request = fit.request
        if target.traits.truncates and not after_refusal:
            return fit
        limit = input_room_of(target, request.max_output_tokens)
        if not limit and not after_refusal:
            return fit
        model, bare = target.model, replace(request, input=None)
        done = replace(request, truncation=None)
        items = [*fit.earlier, *fit.own]
        tokens = self.counter.request(bare, items, model)
        if after_refusal:
            limit = min(limit or tokens, tokens) // _REFUSAL_DIVISOR
        if tokens <= limit:
            return replace(fit, request=done)
        costs = [self.counter.item(item, model) + _ROUNDING for item in items]
        base = self.counter.request(bare, (), model) + _ROUNDING
        indexes = kept_indexes(items, costs, limit - base)
        gone = len(items) - len(indexes)
        if not gone:
            return fit
        what = f"the first {gone} of {len(items)} items, for which the model's context has no room"
        before = len(fit.earlier)
        return replace(
            fit,
            request=done,
            earlier=[items[index] for index in indexes if index < before],
            own=[items[index] for index in indexes if index >= before],
            losses=[*fit.losses, ("input", what)],
        )


def kept_indexes(items: Sequence[AnyItem], costs: Sequence[float], limit: float) -> list[int]:
    """The indexes of the items that stay, in order: as many as fit into `limit` tokens, and at least the
    pinned ones. `costs` are the items' tokens."""
    pinned = [stays(item) or is_summary(item) for item in items]
    user = last_users(items)
    pinned[user.start : user.stop] = [True] * len(user)
    # tokens before each index, of all items and of the pinned ones
    whole = [0.0, *accumulate(costs)]
    staying = [0.0, *accumulate(cost if stays else 0.0 for cost, stays in zip(costs, pinned, strict=True))]
    start = 0
    for start in _starts(items, user):
        if staying[start] + whole[-1] - whole[start] <= limit:
            break
    return [index for index, stays in enumerate(pinned) if stays or index >= start]


def _starts(items: Sequence[AnyItem], user: range) -> Iterator[int]:
    """The indexes at which the conversation may begin, in order: at each turn, then at each round of calls in
    the last turn. No start separates a call from its output."""
    last = {key: index for index, item in enumerate(items) for key in _keys(item)}
    turn = user.start if user else len(items)
    open_until = -1
    yield 0
    for index, item in enumerate(items):
        whole = open_until < index and (index == 0 or items[index - 1].type != "reasoning")
        begins = role_of(item) == "user" and (index == 0 or role_of(items[index - 1]) != "user")
        after = index >= user.stop
        if whole and index and ((index <= turn and begins) or after):
            yield index
        open_until = max([open_until, *(last[key] for key in _keys(item))])


def last_users(items: Sequence[AnyItem]) -> range:
    """The user's last messages that follow each other; empty without one."""
    stop = len(items)
    while stop and not _is_users(items[stop - 1]):
        stop -= 1
    start = stop
    while start and _is_users(items[start - 1]):
        start -= 1
    return range(start, stop)


def _is_users(item: AnyItem) -> bool:
    return role_of(item) == "user" and not is_summary(item)


def stays(item: AnyItem) -> bool:
    """Return True if the item holds for all that follows: an instruction, a setting, declared tools."""
    return item.type in _PINNED_TYPES or role_of(item) in _PINNED_ROLES or is_update(item)


def role_of(item: Any) -> str:
    """The role of a message, "" for other items."""
    return str(_field(item, "role") or "") if item.type == "message" else ""


def _keys(item: Any) -> tuple[str, ...]:
    """Return the keys that join a call with its output: its call_id, or the item's id for clients that refer
    to that."""
    if not item.type.endswith(("_call", "_output")):
        return ()
    return tuple(
        name for name in (_field(item, "call_id"), _field(item, "id")) if isinstance(name, str) and name
    )


def _field(item: Any, name: str) -> Any:
    return item.raw.get(name) if isinstance(item, Unknown) else getattr(item, name, None)


def may_truncate(request: CreateResponse, history: History) -> bool:
    """Return True if the request has `truncation: auto` and more than one input to drop from."""
    return request.truncation == "auto" and (bool(history) or isinstance(request.input, list))
