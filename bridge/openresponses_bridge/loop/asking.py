"""One prompt to one answer, by as many requests as that may take."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.copilot import ResponseDelta
from openresponses_bridge.dialects.copilot.growing import GrowingText
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.loop.actions import Action, AskModel, Ended, LoopEnd, LoopError
from openresponses_bridge.loop.answer import AnswerReader, FinishedCallback, ModelAnswer, ModelFailure
from openresponses_bridge.prompt.context import PromptContext
from openresponses_bridge.prompt.renderer import BuildPromptResult
from openresponses_bridge.prompt.summary import SummaryRequest
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.tools.cancellation import CancellationToken
from openresponses_bridge.tools.invocation import TokenizationOptions

_NOTHING: Final = "the model's answer was empty"
_LONGEST_DELAY: Final = 30.0


class Renderer(Protocol):
    """Makes prompts; `openresponses_bridge.prompt.PromptRenderer` is one."""

    def render(self, context: PromptContext) -> BuildPromptResult: ...

    def result_room(self, context: PromptContext) -> TokenizationOptions | None: ...

    def summary_request(self, context: PromptContext) -> SummaryRequest | None: ...

    def summary_prompt(self, request: SummaryRequest) -> BuildPromptResult: ...

    def summarized(self, context: PromptContext, request: SummaryRequest, text: str) -> PromptContext: ...

    def within(self, max_prompt_tokens: int) -> Renderer: ...


class Answered(NamedTuple):
    """The answer, and what all attempts at it cost."""

    answer: ModelAnswer
    usage: Usage | None


class Asking:
    """Asks again when a request failed or was interrupted, at most `retries` times and each time after twice
    as many seconds, and once when the answer was empty."""

    def __init__(
        self,
        finished_cb: FinishedCallback | None,
        token: CancellationToken,
        *,
        retries: int,
        retry_delay: float,
        stateful: bool,
    ) -> None:
        self.diagnostics = Diagnostics()
        self._finished_cb = finished_cb
        self._token = token
        self._retries = retries
        self._retry_delay = retry_delay
        self._stateful = stateful

    def answer(
        self, prompt: BuildPromptResult, round_index: int, *, shown: bool = True
    ) -> Generator[Action, Any, Answered]:
        """An answer that is not empty; one that is not `shown` does not go to the callback. Raises Ended when
        there is none, ToolCallCancelledError, LoopError."""
        shown_to = self._finished_cb if shown else None
        if prompt.is_empty:
            raise Ended(LoopEnd.EMPTY_PROMPT, "there is nothing to ask")
        spent: Usage | None = None
        failures, silences, delay = 0, 0, 0.0
        while True:
            self._token.check()
            outcome = yield AskModel(
                prompt,
                prompt.stateful_marker,
                round_index,
                failures + silences,
                delay,
                partial(AnswerReader, shown_to, marker=self._stateful and shown),
            )
            if not isinstance(outcome, ModelAnswer | ModelFailure):
                raise LoopError(LoopError.INVALID, "the outcome of AskModel is not an answer or a failure")
            if outcome.usage is not None:
                spent = outcome.usage if spent is None else spent.plus(outcome.usage)
            self._token.check()
            if isinstance(outcome, ModelAnswer) and not outcome.is_empty:
                return Answered(outcome, spent)
            if isinstance(outcome, ModelFailure):
                failures += 1
                delay = min(self._retry_delay * 2 ** (failures - 1), _LONGEST_DELAY)
                self.again(round_index, self._failed(outcome, failures), shown_to)
            elif silences:
                raise Ended(LoopEnd.EMPTY, f"{_NOTHING}, twice")
            else:
                silences, delay = 1, 0.0
                self.again(round_index, _NOTHING, shown_to)

    def _failed(self, failure: ModelFailure, failures: int) -> str:
        error: BridgeError = failure.error
        if not failure.retryable or failures > self._retries:
            raise Ended(LoopEnd.FAILED, error.message, error)
        return error.message

    def too_long(self, round_index: int) -> None:
        """The model refused the prompt as too long; a shorter one is sent."""
        self.again(round_index, "the prompt was too long for the model", self._finished_cb)

    def again(self, round_index: int, why: str, shown_to: FinishedCallback | None) -> None:
        """The callback learns that what it was shown of the answer does not count."""
        self.diagnostics.warning(f"rounds[{round_index}]", f"{why}; asked again")
        if shown_to is not None:
            shown_to(GrowingText().now(), 0, ResponseDelta("", retry_reason=why))
