"""`truncation: auto`: a conversation that is longer than its model takes loses items at its beginning, as
OpenAI documents it.

What stays: instructions, tools, system and developer messages, the user's last words, and calls with their
outputs. What goes: the oldest turns, each whole, until the rest fits; then, of a turn that is too long by
itself, its oldest rounds of calls. Everything is counted once, so that it costs as much as it is long.
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
from openresponses_server.requests.abilities import Fitted
from openresponses_server.runs.metering import input_room_of
from openresponses_server.upstreams.targets import Target

_PINNED_ROLES: Final = frozenset({"system", "developer"})
# tools come with these, or what all before was made into
_PINNED_TYPES: Final = frozenset({"additional_tools", "tool_search_call", "tool_search_output", "compaction"})
_ROUNDING: Final = 0.5  # tokens by which the count of one item may be too low
_HARDER: Final = 2  # what an upstream has refused is made so many times shorter


class Shortener(Struct, frozen=True):
    """Shortens requests that ask for it, by what `counter` counts: to what the model is known to take, or
    `harder`, after an upstream has refused what it was sent."""

    counter: TokenCounter
    harder: bool = False

    def shortened(self, fit: Fitted, target: Target) -> Fitted:
        """The request with what its model takes, and what was left out among its losses. As it is when it
        fits, when the model's limit is not known, and where the upstream does this itself."""
        request = fit.request
        if request.truncation != "auto" or (_does_it_itself(target) and not self.harder):
            return fit
        limit = input_room_of(target, request.max_output_tokens)
        if not limit and not self.harder:
            return fit
        model, bare = target.model, replace(request, input=None)
        done = replace(request, truncation=None)
        items = [*fit.earlier, *fit.own]
        there = self.counter.request(bare, items, model)
        if self.harder:
            limit = min(limit or there, there) // _HARDER
        if there <= limit:
            return replace(fit, request=done)
        costs = [self.counter.item(item, model) + _ROUNDING for item in items]
        base = self.counter.request(bare, (), model) + _ROUNDING
        kept = kept_of(items, costs, limit - base)
        gone = len(items) - len(kept)
        if not gone:
            return fit
        what = f"the first {gone} of {len(items)} items, for which the model's context has no room"
        before = len(fit.earlier)
        return replace(
            fit,
            request=done,
            earlier=[items[index] for index in kept if index < before],
            own=[items[index] for index in kept if index >= before],
            losses=[*fit.losses, ("input", what)],
        )


def kept_of(items: Sequence[AnyItem], costs: Sequence[float], room: float) -> list[int]:
    """The indexes of the items that stay, in order: as many as fit into `room` tokens, and at least those
    that have to stay."""
    pinned = [_stays(item) for item in items]
    user = _last_user(items)
    if user is not None:
        pinned[user.start : user.stop] = [True] * len(user)
    # tokens before each index, of all items and of those that stay
    whole = [0.0, *accumulate(costs)]
    staying = [0.0, *accumulate(cost if stays else 0.0 for cost, stays in zip(costs, pinned, strict=True))]
    start = 0
    for start in _starts(items, user):
        if staying[start] + whole[-1] - whole[start] <= room:
            break
    return [index for index, stays in enumerate(pinned) if stays or index >= start]


def _starts(items: Sequence[AnyItem], user: range | None) -> Iterator[int]:
    """Where the conversation may begin, in order: with each turn up to the last, then with each round of
    calls after that turn's user has spoken. No call is before a start whose output is behind it."""
    last = {key: index for index, item in enumerate(items) for key in _keys(item)}
    turn = len(items) if user is None else user.start
    open_until = -1
    yield 0
    for index, item in enumerate(items):
        whole = open_until < index and (index == 0 or items[index - 1].type != "reasoning")
        begins = _role(item) == "user" and (index == 0 or _role(items[index - 1]) != "user")
        after = user is None or index >= user.stop
        if whole and index and ((index <= turn and begins) or after):
            yield index
        open_until = max([open_until, *(last[key] for key in _keys(item))])


def _last_user(items: Sequence[AnyItem]) -> range | None:
    """The user's last words: messages that follow each other."""
    stop = next((index + 1 for index in reversed(range(len(items))) if _role(items[index]) == "user"), None)
    if stop is None:
        return None
    start = stop - 1
    while start and _role(items[start - 1]) == "user":
        start -= 1
    return range(start, stop)


def _stays(item: AnyItem) -> bool:
    return item.type in _PINNED_TYPES or _role(item) in _PINNED_ROLES or is_update(item)


def _role(item: Any) -> str:
    return str(_field(item, "role") or "") if item.type == "message" else ""


def _keys(item: Any) -> tuple[str, ...]:
    """What joins a call with its output: the id of the call, or of the item where a client names that."""
    if not item.type.endswith(("_call", "_output")):
        return ()
    return tuple(
        name for name in (_field(item, "call_id"), _field(item, "id")) if isinstance(name, str) and name
    )


def _field(item: Any, name: str) -> Any:
    return item.raw.get(name) if isinstance(item, Unknown) else getattr(item, name, None)


def _does_it_itself(target: Target) -> bool:
    """Such a server is sent the field."""
    return target.traits.truncates


def may_be_shortened(request: CreateResponse, history: History) -> bool:
    """Whether its client asks for it and there is something before its last words."""
    return request.truncation == "auto" and (bool(history) or isinstance(request.input, list))
