"""How many tokens a response takes: estimated at its start, counted at its end, recorded for its owner.

Nothing is done per event. Of a request only a sample of bounded length is measured, and only if its size is
needed.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.usage import Usage
from openresponses_server.observation.responses import HANDED_OVER, EndedRun, LoggedEnd, Watch
from openresponses_server.store.usage import UsageBook
from openresponses_server.upstreams.prices import Prices
from openresponses_server.upstreams.targets import Target
from openresponses_server.upstreams.tokenizers import ExactCounter

SAMPLE: Final = 16_000
"""Characters of a request, and of an output, that are measured."""
MAX_KEYS: Final = 1024
"""Keys whose corrections are kept, those that were used last."""
_ALWAYS_LEARNED: Final = 20  # requests of a key to a family of models, from each of which is learned
_PAUSE: Final = 1.0  # after those, seconds between two requests of a key that are learned from


class MeasuredInput(Struct, eq=False, dict=True):
    """The input of a request, measured when its size is first needed."""

    request: CreateResponse
    history: Sequence[Any]

    @property
    def whole(self) -> bool:
        """True if the whole input is counted: neither the upstream nor this server may leave out a part."""
        return self.request.truncation != "auto"

    @cached_property
    def measured(self) -> Measured:
        return measured_request(self.request, self.history, most=SAMPLE)

    @property
    def agent(self) -> str:
        """The name that distinguishes the agents that use one key: the prompt cache key, else the user."""
        request = self.request
        return request.prompt_cache_key or request.safety_identifier or request.user or ""


class Meters:
    """The part that all responses of the application share: `book` records the tokens. What an upstream
    counts corrects the estimates for the key of that request, and for no other. `tokenizers` are those of the
    settings, which count instead of an estimate where they can."""

    def __init__(self, book: UsageBook, tokenizers: Mapping[str, str] = MappingProxyType({})) -> None:
        self.book = book
        self._keys: OrderedDict[str, _Learned] = OrderedDict()
        self._costs: ContentCache[Cost] = ContentCache()
        self._uncorrected = TokenEstimator(0, self._costs)
        self._exact = ExactCounter(tokenizers, self._uncorrected) if tokenizers else None

    def counter(self, owner: str) -> TokenCounter:
        """A counter for this key, which uses what is learned later, too."""
        return _KeysCounter(self, owner)

    def counter_now(self, owner: str) -> TokenCounter:
        """A counter for this key by what was learned until now."""
        estimator = self.estimator(owner)
        return estimator if self._exact is None else self._exact.with_fallback(estimator)

    def estimator(self, owner: str) -> TokenEstimator:
        """The estimator for this key by what was learned until now."""
        known = self._keys.get(owner)
        return self._uncorrected if known is None else known.estimator

    def tokens(self, measured: Measured, model: str, owner: str) -> int:
        """An estimate of how many tokens this model will count."""
        return self.estimator(owner).tokens(measured, model)

    def learn(self, owner: str, model: str, measured_input: MeasuredInput, usage: Usage) -> None:
        """Correct the estimates for this key by what an upstream counted; some of its counts are skipped."""
        known = self._keys.get(owner) or _Learned(TokenEstimator(costs=self._costs))
        now = time.monotonic()
        if known.estimator.sample_count(model) >= _ALWAYS_LEARNED and now - known.at < _PAUSE:
            return
        if not known.estimator.learn(model, measured_input.measured, usage.input_tokens):
            return
        known.at = now
        self._keys[owner] = known
        self._keys.move_to_end(owner)
        while len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)


class _Learned(Struct):
    """The corrections for one key; `at` is when they were last changed."""

    estimator: TokenEstimator
    at: float = 0.0


class _KeysCounter(Struct, frozen=True):
    """A `TokenCounter` for one key."""

    meters: Meters
    owner: str

    def text(self, text: str, model: str = "") -> int:
        return self.meters.counter_now(self.owner).text(text, model)

    def item(self, item: AnyItem, model: str = "") -> int:
        return self.meters.counter_now(self.owner).item(item, model)

    def request(self, request: CreateResponse, history: Iterable[AnyItem] = (), model: str = "") -> int:
        return self.meters.counter_now(self.owner).request(request, history, model)


MOST_PLAUSIBLE: Final = 10**7
"""The most tokens of one answer, input or output: a few times the largest context of any model. A higher
count is a mistake, which would use up the day's budget of a key."""


def plausible(usage: Usage, answers: int = 1) -> Usage | None:
    """The usage of this many answers without impossible counts, which are estimated instead; None if all of
    them are impossible."""
    most = MOST_PLAUSIBLE * answers
    incoming, outgoing = (each if each <= most else 0 for each in (usage.input_tokens, usage.output_tokens))
    if (incoming, outgoing) == (usage.input_tokens, usage.output_tokens) and usage.total_tokens <= 2 * most:
        return usage
    cached = min(usage.input_tokens_details.cached_tokens, incoming)
    reasoning = min(usage.output_tokens_details.reasoning_tokens, outgoing)
    if not incoming and not outgoing:
        return None
    return Usage.of(incoming, outgoing, cached_tokens=cached, reasoning_tokens=reasoning)


class Meter(Watch, Struct, eq=False):
    """The tokens of one response, recorded once."""

    meters: Meters
    owner: str
    model: str
    """As the client named it."""
    target: Target
    given: MeasuredInput
    share: int = 1
    """If one request to the upstream makes several responses, their number for the first, 0 for the
    others."""
    accepting: Target | None = None
    """The target that accepted the request."""
    answers: int = 0
    """The requests that were accepted: the usage is that of all."""
    is_recorded: bool = False

    def settle(
        self, usage: Usage | None, output: Sequence[AnyItem], more: Sequence[AnyItem] = ()
    ) -> Usage | None:
        """The usage that the response ends with: the upstream's, completed by estimates. `more` are the items
        that it was sent beside those of the request."""
        if not self.share:
            return usage
        if usage is not None and usage.total_tokens > MOST_PLAUSIBLE:
            usage = plausible(usage, max(self.answers, 1))
        if usage is not None and usage.has_only_total:
            output_tokens = min(self._output_tokens(output), usage.total_tokens)
            return replace(
                usage,
                input_tokens=usage.total_tokens - output_tokens,
                output_tokens=output_tokens,
                estimated=True,
            )
        if usage is None:
            return Usage.of(self._input_tokens(more), self._output_tokens(output), estimated=True)
        input_tokens = usage.input_tokens or self._input_tokens(more)
        output_tokens = usage.output_tokens or self._output_tokens(output)
        if (input_tokens, output_tokens) == (usage.input_tokens, usage.output_tokens):
            return usage
        total = input_tokens + output_tokens
        return replace(
            usage, input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=total, estimated=True
        )

    def end(self, ended: EndedRun, logged_end: LoggedEnd) -> None:
        """Record the end of the response, or that it has none: it was refused, or its client disconnected."""
        if self.is_recorded or (logged_end == HANDED_OVER and not ended.has_end):
            return
        self.is_recorded = True
        usage, failed = ended.response.usage, ended.response.status == "failed"
        if not ended.has_end:
            usage, failed = None, True
        self.meters.book.add(
            self.owner,
            self.given.agent,
            self.model,
            usage,
            room=input_room_of(self.target),
            failed=failed,
            cost=ended.cost,
        )
        accepting = self.accepting
        if (
            usage is not None
            and usage.estimated is not True
            and accepting is not None
            and accepting.counts
            and self.share
            and self.given.whole
            and self.answers == 1
        ):
            self.meters.learn(self.owner, accepting.model, self.given, usage)

    def _input_tokens(self, more: Sequence[AnyItem] = ()) -> int:
        estimator = self.meters.estimator(self.owner)
        tokens = estimator.tokens(self.given.measured, self.target.model)
        return tokens + self._output_tokens(more) if more else tokens

    def _output_tokens(self, output: Sequence[AnyItem]) -> int:
        estimator = self.meters.estimator(self.owner)
        return estimator.tokens(measured_output(output, most=SAMPLE), self.target.model) * self.share


Used = Callable[[Sequence[AnyItem]], Usage | None]
"""The usage of a response without an end, estimated from its output where no upstream has reported it."""

AnsweredBy = Callable[[Usage], Sequence[str]]
"""The upstream's model of each answer that a usage is the sum of."""


def cost_of(
    prices: Prices, used: Used, answered_by: AnsweredBy | None, upstream_model: str, response: Response
) -> int | None:
    """The cost of a response in 10⁻¹² US dollars, None if it is not known. Without `answered_by` it is one
    answer, of `upstream_model`."""
    usage = response.usage or used(response.output)
    if usage is None:
        return 0
    models = [upstream_model] if answered_by is None else answered_by(usage)
    return prices.cost_of_rounds(response.model, models, usage)


def input_room_of(target: Target, output: int | None = None) -> int:
    """Return how many input tokens the model accepts with `output` tokens of answer, by default with its
    longest answer; 0 if that is unknown."""
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
