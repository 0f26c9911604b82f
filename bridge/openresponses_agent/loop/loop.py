"""`ToolCallingLoop`: rounds of asking the model and running the tools that it calls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from itertools import groupby
from time import time
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from openresponses_agent.loop.answer import (
    AnswerReader,
    FinishedCallback,
    HostedCallback,
    ModelAnswer,
    ModelFailure,
)
from openresponses_agent.loop.journal import (
    CallEnded,
    CallsBegun,
    LimitRaised,
    LoopBegun,
    LoopEnded,
    LoopEntry,
    LoopState,
    RoundMade,
)
from openresponses_agent.prompt.context import (
    ApprovalRequest,
    PromptContext,
    ToolCall,
    ToolCallResults,
    ToolCallRound,
    approval_of,
)
from openresponses_agent.prompt.renderer import BuildPromptResult
from openresponses_agent.prompt.summary import SummaryRequest
from openresponses_agent.tools.errors import CancellationToken, ToolCallCancelledError, ToolDeclinedError
from openresponses_agent.tools.registry import TokenizationOptions, ToolCallOutcome
from openresponses_agent.tools.results import LanguageModelToolResult
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.copilot import ResponseDelta
from openresponses_bridge.dialects.copilot.types import TextAccumulator
from openresponses_bridge.errors import BridgeError, LocalError
from openresponses_bridge.protocol.hosted import asks_approval
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.protocol.usage import Usage


class ToolCallLimitBehavior(StrEnum):
    """The behavior at the limit of rounds: ask the user whether to continue, or stop."""

    CONFIRM = "confirm"
    STOP = "stop"


class LoopEnd(StrEnum):
    """Why a loop ended."""

    DONE = "done"  # the model answered without calling tools
    TRIMMED = "trimmed"  # the callback stopped the reading
    INCOMPLETE = "incomplete"  # the answer was cut off by a limit or a filter
    LIMIT = "tool_call_limit"
    CANCELLED = "cancelled"
    EMPTY = "empty"  # the model's answer was empty, twice
    EMPTY_PROMPT = "empty_prompt"  # there was nothing to ask
    FAILED = "failed"


class LoopError(LocalError):
    """A wrong use of the loop: an outcome that does not fit its action, or a limit below 1."""

    INVALID = "bridge.loop.invalid_use"


class LoopFinished(Exception):
    """Raised anywhere to end the rounds."""

    def __init__(self, end: LoopEnd, message: str, error: BridgeError | None = None) -> None:
        super().__init__(message)
        self.end, self.message, self.error = end, message, error


class AskModel(NamedTuple):
    """Send the prompt (`bridge.prompt.create_…_request_body` makes bodies from it) and feed the answer's
    events to a `reader()`. The outcome is what that reader's `close` or `fail` returns."""

    prompt: BuildPromptResult
    stateful_marker: str | None
    """The marker that the model's server sent with the last answer; None if there is none."""
    round_index: int
    attempt: int
    """The number of the attempt, from 0."""
    delay: float
    """Seconds to wait before the request."""
    reader: Callable[[], AnswerReader]


class RunToolCalls(NamedTuple):
    """Run these calls, concurrently if there are several. Report the end of each by `call_ended`; the outcome
    of the action is None. A call that was not reported counts as cancelled."""

    calls: list[ToolCall]
    tokenization_options: TokenizationOptions | None = None
    """The limit of each result in the next prompt; None for no limit."""


class AskUser(NamedTuple):
    """Ask the user this question. The outcome is whether the answer was yes."""

    question: str


class AskApproval(NamedTuple):
    """Ask the user whether the model's server may run this call. The outcome is whether the answer was
    yes."""

    request: ApprovalRequest


Action = AskModel | RunToolCalls | AskUser | AskApproval


class LoopResult(NamedTuple):
    """The result of a loop."""

    end: LoopEnd
    response: str
    """The text of the last answer."""
    message: str
    """Why the loop ended without an answer; "" if there is one."""
    error: BridgeError | None
    """The failure, if there was one."""
    tool_call_rounds: list[ToolCallRound]
    tool_call_results: ToolCallResults
    usage: Usage | None
    """The sum of all rounds; None if no model reported any."""

    def as_json(self) -> dict[str, Any]:
        """Return `{"toolCallRounds", "toolCallResults", "end", "response"}`, and `message`, `error` and
        `usage` if they are set."""
        error = self.error and {"code": self.error.code, "message": self.error.message}
        more = {"message": self.message, "error": error, "usage": self.usage}
        result: dict[str, Any] = msgspec.to_builtins(
            {
                "toolCallRounds": self.tool_call_rounds,
                "toolCallResults": self.tool_call_results,
                "end": self.end,
                "response": self.response,
                **{name: value for name, value in more.items() if value},
            }
        )
        return result


_NOTHING: Final = "the model's answer was empty"
_LONGEST_DELAY: Final = 30.0


class Renderer(Protocol):
    """Makes prompts; `openresponses_agent.prompt.PromptRenderer` is one."""

    def render(self, context: PromptContext) -> BuildPromptResult: ...

    def result_room(self, context: PromptContext) -> TokenizationOptions | None: ...

    def summary_request(self, context: PromptContext) -> SummaryRequest | None: ...

    def summary_prompt(self, request: SummaryRequest) -> BuildPromptResult: ...

    def summarized(self, context: PromptContext, request: SummaryRequest, text: str) -> PromptContext: ...

    def within(self, max_prompt_tokens: int) -> Renderer: ...


class ModelTurn(NamedTuple):
    """An answer, and the usage of all attempts at it."""

    answer: ModelAnswer
    usage: Usage | None


class ModelCalls:
    """Asks the model, with retries: at most `retries` after failures or interruptions, each after twice the
    delay, and one after an empty answer."""

    def __init__(
        self,
        finished_cb: FinishedCallback | None,
        token: CancellationToken,
        *,
        hosted_cb: HostedCallback | None,
        retries: int,
        retry_delay: float,
        stateful: bool,
    ) -> None:
        self.diagnostics = Diagnostics()
        self._finished_cb = finished_cb
        self._hosted_cb = hosted_cb
        self._token = token
        self._retries = retries
        self._retry_delay = retry_delay
        self._stateful = stateful

    def answer(
        self, prompt: BuildPromptResult, round_index: int, *, shown: bool = True
    ) -> Generator[Action, Any, ModelTurn]:
        """Ask until an answer is not empty, and return it. With `shown=False` the callback is not called.
        Raises LoopFinished if there is no answer, ToolCallCancelledError, LoopError."""
        shown_to = self._finished_cb if shown else None
        if prompt.is_empty:
            raise LoopFinished(LoopEnd.EMPTY_PROMPT, "there is nothing to ask")
        spent: Usage | None = None
        failures, empties, delay = 0, 0, 0.0
        while True:
            self._token.check()
            outcome = yield AskModel(
                prompt,
                prompt.stateful_marker,
                round_index,
                failures + empties,
                delay,
                partial(
                    AnswerReader,
                    shown_to,
                    hosted_cb=self._hosted_cb if shown else None,
                    marker=self._stateful and shown,
                ),
            )
            if not isinstance(outcome, ModelAnswer | ModelFailure):
                raise LoopError(LoopError.INVALID, "the outcome of AskModel is not an answer or a failure")
            if outcome.usage is not None:
                spent = outcome.usage if spent is None else spent.plus(outcome.usage)
            self._token.check()
            if isinstance(outcome, ModelAnswer) and not outcome.is_empty:
                return ModelTurn(outcome, spent)
            if isinstance(outcome, ModelFailure):
                failures += 1
                delay = min(self._retry_delay * 2 ** (failures - 1), _LONGEST_DELAY)
                self.restart(round_index, self._failed(outcome, failures), shown_to)
            elif empties:
                raise LoopFinished(LoopEnd.EMPTY, f"{_NOTHING}, twice")
            else:
                empties, delay = 1, 0.0
                self.restart(round_index, _NOTHING, shown_to)

    def _failed(self, failure: ModelFailure, failures: int) -> str:
        error: BridgeError = failure.error
        if not failure.retryable or failures > self._retries:
            raise LoopFinished(LoopEnd.FAILED, error.message, error)
        return error.message

    def prompt_too_long(self, round_index: int) -> None:
        """Report that the model refused the prompt as too long; a shorter one will be sent."""
        self.restart(round_index, "the prompt was too long for the model", self._finished_cb)

    def restart(self, round_index: int, why: str, shown_to: FinishedCallback | None) -> None:
        """Report to the callback that the answer begins again and that the earlier text has to be
        discarded."""
        self.diagnostics.warning(f"rounds[{round_index}]", f"{why}; asked again")
        if shown_to is not None:
            shown_to(TextAccumulator().current(), 0, ResponseDelta("", retry_reason=why))


_TOO_LONG: Final = "context_length_exceeded"
_SHORTER: Final = 0.75
Steps = Generator[Action, Any, LoopResult]
LIMIT_REACHED: Final = "Tool call limit reached"
INTERRUPTED: Final = "bridge.loop.call_interrupted"


class ToolCallingLoop:
    """Asks the model and runs its tool calls, from a question to its answer. Tools that the model's server
    runs are the context's `hosted_tools`; `hosted_cb` sees their items as they come.

    `context` has what stays the same in all rounds: system text, tools, the question. `state`: the state that
    an earlier loop's entries give; the loop continues from it. `record` is called with each entry before the
    action of that entry starts; when it returns, the entry must be stored. `parallel`: whether calls of the
    tool of this name may run concurrently. `retries`: how often a request that failed or was interrupted is
    sent again. `model_summaries`: the model summarises a conversation that exceeds its budget; otherwise, and
    when it gives no summary, the renderer does. A prompt that the model refuses as too long is sent once more
    with three quarters of its tokens, which are the budget from then on. `clock` returns seconds since 1970.
    """

    def __init__(
        self,
        context: PromptContext,
        renderer: Renderer,
        *,
        state: LoopState | None = None,
        record: Callable[[LoopEntry], object] = lambda entry: None,
        finished_cb: FinishedCallback | None = None,
        hosted_cb: HostedCallback | None = None,
        parallel: Callable[[str], bool] = lambda tool_name: False,
        tool_call_limit: int = 25,
        limit_behavior: ToolCallLimitBehavior = ToolCallLimitBehavior.CONFIRM,
        retries: int = 2,
        retry_delay: float = 1.0,
        token: CancellationToken | None = None,
        settings: dict[str, str] | None = None,
        stateful: bool = False,
        model_summaries: bool = False,
        clock: Callable[[], float] = time,
    ) -> None:
        if tool_call_limit < 1:
            raise LoopError(LoopError.INVALID, f"tool_call_limit must be above 0, not {tool_call_limit}")
        self.token = token or CancellationToken()
        self.state = state or LoopState()
        self._context = context
        self._renderer = renderer
        self._keep = record
        self._parallel = parallel
        self._tool_call_limit = tool_call_limit
        self._limit_behavior = limit_behavior
        self._settings = settings or {}
        self._model_summaries = model_summaries
        self._clock = clock
        self._asking = ModelCalls(
            finished_cb,
            self.token,
            hosted_cb=hosted_cb,
            retries=retries,
            retry_delay=retry_delay,
            stateful=stateful,
        )
        self._made: set[str] = set()
        """The ids of the rounds that this loop made itself."""
        self._granted: set[str] = set()

    @property
    def diagnostics(self) -> Diagnostics:
        """The reasons for retries."""
        return self._asking.diagnostics

    @property
    def tool_call_rounds(self) -> list[ToolCallRound]:
        """The rounds of this question so far."""
        return self.state.rounds

    @property
    def tool_call_results(self) -> dict[str, LanguageModelToolResult]:
        """The results so far, by internal id."""
        return self.state.results

    def run(self) -> Steps:
        """Yield actions, receive their outcomes, and return how the loop ended. Raises only LoopError, for
        an outcome that does not fit its action."""
        try:
            yield from self._rounds()
        except LoopFinished as end:
            return self._end(end.end, end.message, end.error)
        except ToolCallCancelledError as error:
            return self._end(LoopEnd.CANCELLED, error.message)
        return self._end(LoopEnd.DONE)

    def _rounds(self) -> Generator[Action, Any, None]:
        if self.state.query is None or (self._context.query and self._context.query != self.state.query):
            begun = self._context
            self._record(LoopBegun(begun.query, self._settings, begun.attachments, begun.references))
        while True:
            if self.tool_call_rounds:
                last = self.tool_call_rounds[-1]
                if not last.tool_calls and not last.approvals:
                    return self._check_last_round()
                yield from self.invoke_tools(last)
                yield from self.ask_approvals(last)
                self.token.check()
                if self.hit_tool_call_limit() and not (yield from self.handle_tool_call_limit()):
                    raise LoopFinished(LoopEnd.LIMIT, LIMIT_REACHED)
            yield from self.run_one(self.create_prompt_context())

    def _check_last_round(self) -> None:
        """Raise if the answer of the last round, which has no calls, is not complete: its text is the answer
        of the loop."""
        if self.state.trimmed:
            raise LoopFinished(LoopEnd.TRIMMED, "reading was stopped")
        if self.state.incomplete:
            raise LoopFinished(
                LoopEnd.INCOMPLETE, f"the model's answer is incomplete: {self.state.incomplete}"
            )

    def create_prompt_context(self) -> PromptContext:
        """Return the input of the next prompt: the question and all rounds so far."""
        last = self.tool_call_rounds[-1] if self.tool_call_rounds else None
        return replace(
            self._context,
            query=self.state.query or "",
            attachments=self.state.attachments,
            references=self.state.references,
            history=[*self._context.history, *self.state.history],
            tool_call_rounds=list(self.tool_call_rounds),
            tool_call_results=dict(self.tool_call_results),
            granted=frozenset(self._granted),
            summary=self.state.summary or self._context.summary,
            stateful_marker=self._context.stateful_marker if last is None else last.stateful_marker,
        )

    def run_one(self, context: PromptContext) -> Generator[Action, Any, ToolCallRound]:
        """Make one round: the prompt, the model's answer, and its calls, which are not run yet."""
        index = len(self.tool_call_rounds)
        prompt, summing = yield from self._prompt(context, index)
        try:
            answer, usage = yield from self._asking.answer(prompt, index)
        except LoopFinished as end:
            if end.error is None or end.error.code != _TOO_LONG:
                raise
            self._renderer = self._renderer.within(int(prompt.token_count * _SHORTER))
            self._asking.prompt_too_long(index)
            try:
                prompt, more = yield from self._prompt(replace(context, stateful_marker=None), index)
            except LoopFinished:
                raise end from None
            summing = _sum(summing, more)
            answer, usage = yield from self._asking.answer(prompt, index)
        usage = _sum(usage, summing)
        new_round = ToolCallRound(
            id=f"round_{len(self.state.history) + 1}_{index + 1}",
            prompt=prompt.messages,
            response=answer.text,
            tool_calls=[
                ToolCall(self.create_internal_tool_call_id(number), call.name, call.arguments, call.id)
                for number, call in enumerate(answer.tool_calls, self.state.number_of_calls + 1)
            ],
            stateful_marker=answer.stateful_marker,
            thinking=answer.thinking_of_round(index),
            timestamp=int(self._clock() * 1000),
            items=self._usable(answer.items, index),
            citations=list(answer.citations),
            max_tool_calls=answer.max_tool_calls,
        )
        self._made.add(new_round.id)
        self._record(RoundMade(new_round, usage, prompt.summary, answer.incomplete, answer.trimmed))
        return new_round

    def _usable(self, items: Sequence[dict[str, Any]], index: int) -> list[dict[str, Any]]:
        """Return the items without the requests for approval that can't be answered: those whose id is
        missing or was used before, since a decision is for one call."""
        usable: list[dict[str, Any]] = []
        seen = set(self.state.asked)
        for item in items:
            request = approval_of(item)
            if asks_approval(UnknownItem(item)) and (request is None or request.id in seen):
                self.diagnostics.warning(f"rounds[{index}]", "a request for approval has no id of its own")
                continue
            if request is not None:
                seen.add(request.id)
            usable.append(item)
        return usable

    def _prompt(
        self, context: PromptContext, index: int
    ) -> Generator[Action, Any, tuple[BuildPromptResult, Usage | None]]:
        """Return the prompt, and the usage of its summary. A prompt with a new summary does not continue the
        response that the model's server stores."""
        usage: Usage | None = None
        before = context.summary
        try:
            request = self._renderer.summary_request(context) if self._model_summaries else None
            if request is not None:
                text, usage = yield from self._summary(request, index)
                if text:
                    context = self._renderer.summarized(context, request, text)
            prompt = self._renderer.render(context)
        except BridgeError as error:
            if isinstance(error, ToolCallCancelledError | LoopError):
                raise
            raise LoopFinished(LoopEnd.FAILED, error.message, error) from error
        if prompt.summary != before:
            prompt = replace(prompt, stateful_marker=None)
        return prompt, usage

    def _summary(
        self, request: SummaryRequest, index: int
    ) -> Generator[Action, Any, tuple[str, Usage | None]]:
        """Return the model's summary; "" if there is none, and then the renderer makes one."""
        try:
            prompt = self._renderer.summary_prompt(request)
            answer, usage = yield from self._asking.answer(prompt, index, shown=False)
        except LoopFinished as end:
            self.diagnostics.warning(f"rounds[{index}].summary", f"not by the model: {end.message}")
            return "", None
        return answer.text.strip(), usage

    @staticmethod
    def create_internal_tool_call_id(number: int) -> str:
        """Return the id under which a call's result is stored, since models reuse their own ids."""
        return f"internal_call_{number:03d}"

    def invoke_tools(self, made: ToolCallRound) -> Generator[Action, Any, None]:
        """Run the pending calls of a round. A call that was started before a crash is not run again: whether
        it had its effect is unknown, and its result asks the model to check."""
        for call in self.state.pending():
            if call.id in self.state.begun:
                self._record(CallEnded(call.id, _INTERRUPTED, INTERRUPTED))
        for calls in self._batches(self.state.pending()):
            self.token.check()
            self._record(CallsBegun([call.id for call in calls]))
            yield RunToolCalls(calls, self._room())
            for call in calls:
                if call.id not in self.tool_call_results:
                    self._record(CallEnded(call.id, _CANCELLED, ToolCallCancelledError.CANCELLED))

    def ask_approvals(self, made: ToolCallRound) -> Generator[Action, Any, None]:
        """Ask the user to decide on the requests for approval of a round. Approvals of this process are sent
        with the next request. A request that was made before a crash is declined: its server may no longer
        know it, and the model can call the tool again."""
        for request in self.state.undecided():
            if made.id not in self._made:
                self._record(CallEnded(request.id, _NOT_ASKED, INTERRUPTED))
                continue
            self.token.check()
            self._record(CallsBegun([request.id]))
            allowed = yield AskApproval(request)
            self.token.check()
            if allowed is True:
                self._granted.add(request.id)
                self._record(CallEnded(request.id, _APPROVED))
            else:
                self._record(CallEnded(request.id, _DECLINED, ToolDeclinedError.DECLINED))

    def _room(self) -> TokenizationOptions | None:
        """Return the tokens that are left for results, divided equally among the pending calls."""
        room = self._renderer.result_room(self.create_prompt_context())
        if room is None:
            return None
        return TokenizationOptions(room.token_budget // len(self.state.pending()), room.count_tokens)

    def call_ended(self, call_id: str, outcome: ToolCallOutcome) -> None:
        """Report that a call of the current action has ended. Raises LoopError for any other call."""
        failure = "" if outcome.failure is None else outcome.failure.error.code
        if call_id not in self.state.begun:
            raise LoopError(LoopError.INVALID, f"the call {call_id!r} was not begun")
        self._record(CallEnded(call_id, outcome.result, failure, list(outcome.notes)))

    def retry_attempt(self, call: ToolCall) -> int:
        """Return how often this tool has failed since its last success, in the rounds of this question."""
        earlier = [
            each
            for call_round in self.tool_call_rounds
            for each in call_round.tool_calls
            if each.name == call.name and each.id in self.tool_call_results and each.id != call.id
        ]
        failed = 0
        for each in reversed(earlier):
            if each.id not in self.state.failures:
                break
            failed += 1
        return failed

    def _batches(self, calls: Iterable[ToolCall]) -> Iterator[list[ToolCall]]:
        for parallel, together in groupby(calls, lambda call: self._parallel(call.name)):
            if parallel:
                yield list(together)
            else:
                yield from ([call] for call in together)

    def hit_tool_call_limit(self) -> bool:
        """Return True if the limit of rounds without asking is reached."""
        return len(self.tool_call_rounds) >= (self.state.limit or self._tool_call_limit)

    def handle_tool_call_limit(self) -> Generator[Action, Any, bool]:
        """Return True if the loop continues; with CONFIRM the user is asked, and allows the same number of
        rounds again."""
        if self._limit_behavior is ToolCallLimitBehavior.STOP:
            return False
        count = len(self.tool_call_rounds)
        answer = yield AskUser(f"{count} rounds of tool calls were made. Continue with more tool calls?")
        self.token.check()
        if answer is not True:
            return False
        self._record(LimitRaised(count + self._tool_call_limit))
        return True

    def _record(self, entry: LoopEntry) -> None:
        try:
            self.state.apply(entry)
        except ValueError as error:
            raise LoopError(LoopError.INVALID, f"the {type(entry).__name__} {error}") from error
        self._keep(entry)

    def _end(self, end: LoopEnd, message: str = "", error: BridgeError | None = None) -> LoopResult:
        if self.state.end is None or self.state.end.end != end:
            self._record(LoopEnded(end, message))
        response = self.tool_call_rounds[-1].response if self.tool_call_rounds else ""
        return LoopResult(
            end,
            response,
            message,
            error,
            self.tool_call_rounds,
            self.tool_call_results,
            self.state.usage,
        )


def _sum(first: Usage | None, second: Usage | None) -> Usage | None:
    if first is None or second is None:
        return first or second
    return first.plus(second)


_APPROVED: Final = LanguageModelToolResult.of("Approved")
_DECLINED: Final = LanguageModelToolResult.failure("Error: Not allowed - the user declined this call")
_NOT_ASKED: Final = LanguageModelToolResult.failure(
    "Error: Interrupted - the run stopped before the user was asked, and this call was not run."
)
_CANCELLED: Final = LanguageModelToolResult.failure("Error: Cancelled - the user ended the run")
_INTERRUPTED: Final = LanguageModelToolResult.failure(
    "Error: Interrupted - the run stopped while this tool was running. It may have had its effect: look "
    "before calling it again."
)
