"""How many tokens one response takes: estimated before, settled at its end, entered into its owner's book.

Nothing is done per event. What a request is measured by is a sample of bounded length, and it is measured
only where somebody needs it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from bridge.model_information import EnrichedModelData
from bridge.protocol.items import Item
from bridge.protocol.request import CreateResponse
from bridge.protocol.response import Response
from bridge.protocol.usage import Usage
from bridge.token_counter import TokenEstimator
from bridge.token_estimate import Measured, measured_items, measured_request
from server.upstreams.targets import Target
from server.usage import UsageBook

SAMPLE: Final = 16_000
"""Characters of a request, and of an output, that are looked at."""
_EAGER: Final = 20  # requests of a family from each of which its tokenizer is learned
_PAUSE: Final = 1.0  # seconds between two that are learned from after that
_CUT: Final = 2  # what was made is more than so many times what an upstream had counted when it was cut


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
    """What all responses of the application share: `book` has what they spent, `estimator` learns from what
    upstreams count."""

    def __init__(self, book: UsageBook, estimator: TokenEstimator) -> None:
        self.book = book
        self.estimator = estimator
        self._learned_at = 0.0

    def tokens(self, given: Input, model: str) -> int:
        """About how many tokens this model will count."""
        return given.measured.tokens(self.estimator.weights(model))

    def learn(self, model: str, given: Input, usage: Usage) -> None:
        """An upstream has counted; from some of these it is learned."""
        now = time.monotonic()
        if self.estimator.learned(model) >= _EAGER and now - self._learned_at < _PAUSE:
            return
        self._learned_at = now
        self.estimator.learn(model, given.measured, usage.input_tokens)


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
        tokens = self._meters.tokens(self._given, self._target.model) if book.watched else 0
        book.start(self._owner, self._given.agent, self._model, tokens, room_of(self._target))

    def settle(self, usage: Usage | None, output: Sequence[Item], status: str) -> Usage | None:
        """The usage that the response ends with: what the upstream says; an estimate where it says nothing,
        or where it was cut after it had counted."""
        if not self._share or (usage is not None and status == "completed"):
            return usage
        made = self._made(output) * self._share
        if usage is None:
            return Usage.of(self._meters.tokens(self._given, self._target.model), made, estimated=True)
        if made <= _CUT * usage.output_tokens:
            return usage
        return usage.plus(Usage.of(0, made - usage.output_tokens, estimated=True))

    def end(self, response: Response, asked: Target | None) -> None:
        """The response is over; `asked` is the target that has made it."""
        usage = response.usage
        if not self._enter(usage, failed=response.status == "failed"):
            return
        if (
            usage is not None
            and usage.estimated is not True
            and asked is not None
            and self._share
            and self._given.whole
        ):
            self._meters.learn(asked.model, self._given, usage)

    def fail(self) -> None:
        """There is no response: it was refused, or its client has left."""
        self._enter(None, failed=True)

    def _made(self, output: Sequence[Item]) -> int:
        weights = self._meters.estimator.weights(self._target.model)
        return measured_items(output, most=SAMPLE).tokens(weights)

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
