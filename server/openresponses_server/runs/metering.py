"""How many tokens one response takes: estimated before, settled at its end, entered into its owner's book.

Nothing is done per event. What a request is measured by is a sample of bounded length, and it is measured
only where somebody needs it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.models.information import EnrichedModelData
from openresponses_bridge.models.tokens import (
    AnyItem,
    ContentCache,
    Cost,
    Measured,
    TokenCounter,
    TokenEstimator,
    measured_output,
    measured_request,
)
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.usage import Usage
from openresponses_server.store.usage_book import UsageBook
from openresponses_server.upstreams.targets import Target
from openresponses_server.upstreams.tokenizers import ExactCounter

SAMPLE: Final = 16_000
"""Characters of a request, and of an output, that are looked at."""
MAX_KEYS: Final = 1024
"""Of which what was learned is kept, those that were used last."""
_EAGER: Final = 20  # requests of a key to a family from each of which its tokenizer is learned
_PAUSE: Final = 1.0  # seconds between two of a key that are learned from after that


class Input:
    """The input of a request, measured once and when it is asked for."""

    def __init__(self, request: CreateResponse, history: Sequence[Any]) -> None:
        self._request = request
        self._history = history
        self.whole = request.truncation != "auto"
        """It is what the upstream counts: nothing of it is left out there, or when it is asked again."""

    @cached_property
    def measured(self) -> Measured:
        return measured_request(self._request, self._history, most=SAMPLE)

    @property
    def agent(self) -> str:
        """What distinguishes the agents of one key: a conversation's key for the upstream's cache, else a
        user."""
        asked = self._request
        return asked.prompt_cache_key or asked.safety_identifier or asked.user or ""


class Meters:
    """What all responses of the application share: `book` has what they spent. What upstreams count corrects
    the estimates for the key whose requests they were, and for no other; `tokenizers` are those of the
    settings, which count instead where they can."""

    def __init__(self, book: UsageBook, tokenizers: Mapping[str, str] = MappingProxyType({})) -> None:
        self.book = book
        self._keys: OrderedDict[str, _Learned] = OrderedDict()
        self._costs: ContentCache[Cost] = ContentCache()
        self._uncorrected = TokenEstimator(0, self._costs)
        self._exact = ExactCounter(tokenizers, self._uncorrected) if tokenizers else None

    def counter(self, owner: str) -> TokenCounter:
        """What counts for this key, also when more has been learned."""
        return _KeysCounter(self, owner)

    def counter_now(self, owner: str) -> TokenCounter:
        """What counts for this key by what was learned until now."""
        estimator = self._estimator(owner)
        return estimator if self._exact is None else self._exact.over(estimator)

    def tokens(self, measured: Measured, model: str, owner: str) -> int:
        """About how many tokens this model will count."""
        return self._estimator(owner).tokens(measured, model)

    def learn(self, owner: str, model: str, given: Input, usage: Usage) -> None:
        """An upstream has counted this key's input; from some of these it is learned."""
        known = self._keys.get(owner) or _Learned(TokenEstimator(costs=self._costs))
        now = time.monotonic()
        if known.estimator.learned(model) >= _EAGER and now - known.at < _PAUSE:
            return
        if not known.estimator.learn(model, given.measured, usage.input_tokens):
            return
        known.at = now
        self._keys[owner] = known
        self._keys.move_to_end(owner)
        while len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)

    def _estimator(self, owner: str) -> TokenEstimator:
        known = self._keys.get(owner)
        return self._uncorrected if known is None else known.estimator


class _Learned(Struct):
    """What one key's requests have shown; `at` is when the last of them did."""

    estimator: TokenEstimator
    at: float = 0.0


class _KeysCounter:
    """A `TokenCounter` for one key."""

    def __init__(self, meters: Meters, owner: str) -> None:
        self._meters = meters
        self._owner = owner

    def text(self, text: str, model: str = "") -> int:
        return self._meters.counter_now(self._owner).text(text, model)

    def item(self, item: AnyItem, model: str = "") -> int:
        return self._meters.counter_now(self._owner).item(item, model)

    def request(self, request: CreateResponse, history: Iterable[AnyItem] = (), model: str = "") -> int:
        return self._meters.counter_now(self._owner).request(request, history, model)


class Meter:
    """One response, entered once. `model` is what its client named. `share` is how many responses one request
    of the upstream is for: the first one of them answers for all, the others have 0."""

    def __init__(
        self, meters: Meters, owner: str, model: str, target: Target, given: Input, share: int = 1
    ) -> None:
        self._meters = meters
        self._owner = owner
        self._model = model
        self._target = target
        self._given = given
        self._share = share
        self._entered = False

    def start(self) -> None:
        """The request leaves."""
        book = self._meters.book
        tokens = self._taken() if book.watched else 0
        book.start(self._owner, self._given.agent, self._model, tokens, room_of(self._target))

    def settle(self, usage: Usage | None, output: Sequence[Item]) -> Usage | None:
        """The usage that the response ends with: what the upstream says, and an estimate of what it does not
        say."""
        if not self._share:
            return usage
        if usage is not None and usage.is_undivided:
            made = min(self._made(output), usage.total_tokens)
            return replace(usage, input_tokens=usage.total_tokens - made, output_tokens=made, estimated=True)
        if usage is None:
            return Usage.of(self._taken(), self._made(output), estimated=True)
        taken = usage.input_tokens or self._taken()
        made = usage.output_tokens or self._made(output)
        if (taken, made) == (usage.input_tokens, usage.output_tokens):
            return usage
        total = taken + made
        return replace(usage, input_tokens=taken, output_tokens=made, total_tokens=total, estimated=True)

    def end(self, response: Response, asked: Target | None) -> None:
        """The response is over; `asked` is the target that has made it."""
        usage = response.usage
        if not self._enter(usage, failed=response.status == "failed"):
            return
        if (
            usage is not None
            and usage.estimated is not True
            and asked is not None
            and asked.counts
            and self._share
            and self._given.whole
        ):
            self._meters.learn(self._owner, asked.model, self._given, usage)

    def fail(self) -> None:
        """There is no response: it was refused, or its client has left."""
        self._enter(None, failed=True)

    def _taken(self) -> int:
        return self._meters.tokens(self._given.measured, self._target.model, self._owner)

    def _made(self, output: Sequence[Item]) -> int:
        measured = measured_output(output, most=SAMPLE)
        return self._meters.tokens(measured, self._target.model, self._owner) * self._share

    def _enter(self, usage: Usage | None, *, failed: bool) -> bool:
        """Whether it was not entered before."""
        if self._entered:
            return False
        self._entered = True
        self._meters.book.end(self._owner, self._given.agent, self._model, usage, failed=failed)
        return True


def room_of(target: Target, output: int | None = None) -> int:
    """The input tokens that a model takes beside `output` tokens of answer; without that, beside its longest
    one. 0 when it is not known."""
    able = target.able
    if able.context_window is None and able.max_input_tokens is None:
        return 0
    return EnrichedModelData.of(
        target.model,
        "",
        context_window=able.context_window,
        max_input_tokens=able.max_input_tokens,
        max_output_tokens=output or able.max_output_tokens,
    ).max_input_tokens
