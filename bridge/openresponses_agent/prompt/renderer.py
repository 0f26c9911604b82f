"""`PromptRenderer`: renders a context as the messages of a request, within the model's budget."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from openresponses_agent.prompt.assembly import Assembler, PromptUnits, Unit, system_messages
from openresponses_agent.prompt.context import ConversationSummary, PromptContext
from openresponses_agent.prompt.fitting import Budget, Plan, fit, summary_messages, unlimited
from openresponses_agent.prompt.raw import CacheBreakpointPart, ChatMessage, content_of, parts_of
from openresponses_agent.prompt.summary import (
    PromptCounter,
    Summarizer,
    SummaryRequest,
    Trigger,
    asking_messages,
    budget_passed,
    condense,
    summary_within,
)
from openresponses_agent.tools.registry import TokenizationOptions, Tool
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.errors import LocalError
from openresponses_bridge.models.tokens import TokenCounter, TokenEstimator


class BuildPromptResult(Struct, frozen=True):
    """The prompt. `token_count` is that of messages and tools together.

    `summary` replaces the beginning of the conversation; put it into the next context so that it is not made
    again. `stateful_marker` and `hosted_tools` are the context's.
    """

    messages: list[ChatMessage]
    tools: Sequence[Tool]
    token_count: int
    summary: ConversationSummary | None = None
    stateful_marker: str | None = None
    hosted_tools: Sequence[dict[str, Any]] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing is asked, so that no request should be made."""
        return not self.messages


class _Drawn(Struct, frozen=True):
    """A planned prompt, whose summary may still be missing."""

    head: list[ChatMessage]
    plan: Plan
    base: int


class PromptRenderer:
    """Renders prompts for one model.

    `max_prompt_tokens` is the budget in tokens, tools included; None means that there is no limit. `trigger`
    decides when the conversation is summarised; one that exceeds the budget always is. It is then reduced to
    `keep_share` of the budget, so that the next rounds fit as well, and the summary to `summary_share`; both
    are from 0 to 1. `supports_images=False` replaces each image by a note. Thinking is sent back in the
    rounds of the question that is being answered, and in earlier rounds with `history_thinking`.
    `cache_breakpoints` adds one after the system text, the history and the whole prompt. `system_separator`
    joins system texts. Raises LocalError for a budget or share out of range.
    """

    def __init__(
        self,
        counter: TokenCounter | None = None,
        *,
        model: str = "",
        max_prompt_tokens: int | None = None,
        supports_images: bool = True,
        history_thinking: bool = False,
        cache_breakpoints: bool = False,
        summarizer: Summarizer = condense,
        trigger: Trigger = budget_passed,
        keep_share: float = 0.5,
        summary_share: float = 0.125,
        system_separator: str = "\n\n",
        diagnostics: Diagnostics | None = None,
    ) -> None:
        if max_prompt_tokens is not None and max_prompt_tokens < 1:
            raise LocalError(
                "bridge.prompt.invalid_budget",
                f"max_prompt_tokens must be 1 or more, not {max_prompt_tokens}",
            )
        if not (0 <= keep_share <= 1 and 0 <= summary_share <= 1):
            raise LocalError(
                "bridge.prompt.invalid_budget", "keep_share and summary_share must be from 0 to 1"
            )
        self._counter = PromptCounter(counter or TokenEstimator(), model)
        self._most = max_prompt_tokens
        self._supports_images = supports_images
        self._history_thinking = history_thinking
        self._cache_breakpoints = cache_breakpoints
        self._summarizer = summarizer
        self._trigger = trigger
        self._keep_share = keep_share
        self._summary_share = summary_share
        self._separator = system_separator
        self.diagnostics = Diagnostics() if diagnostics is None else diagnostics

    def render(self, context: PromptContext) -> BuildPromptResult:
        """Return the prompt. Its messages are: system text with the global context, a summary if there is
        one, history, the question, its rounds; none if nothing is asked, without a question and rounds.

        Raises PromptBudgetError if system text, tools and the question alone exceed the budget.
        """
        drawn = self._draw(context, self.diagnostics)
        if drawn is None:
            return BuildPromptResult([], context.tools, 0, context.summary, context.stateful_marker)
        summary = drawn.plan.summary
        if drawn.plan.request is not None:
            summary = self._summarize(drawn.plan.request)
            # planned again with the summary in the context: other messages get the tokens that it does not
            # use
            again = self._draw(context.with_summary(summary), Diagnostics())
            drawn = drawn if again is None or again.plan.request is not None else again
        messages = self._messages(drawn, summary)
        tokens = drawn.base + self._counter.messages(messages[len(drawn.head) :])
        marker = context.stateful_marker
        return BuildPromptResult(messages, context.tools, tokens, summary, marker, context.hosted_tools)

    def summary_request(self, context: PromptContext) -> SummaryRequest | None:
        """Return the part to summarise so that the context fits; None if it fits. With the answer
        (`ConversationSummary(text, request.covers)`) in the context, it is rendered as it is.

        Raises PromptBudgetError as `render` does.
        """
        drawn = self._draw(context, Diagnostics())
        return None if drawn is None else drawn.plan.request

    def summary_prompt(self, request: SummaryRequest) -> BuildPromptResult:
        """Return the prompt for this summary, within the budget and without tools."""
        assert self._most is not None, "without a budget nothing is summarised"
        messages = asking_messages(request, self._counter, self._most)
        return BuildPromptResult(messages, (), self._counter.request(()) + self._counter.messages(messages))

    def summarized(self, context: PromptContext, request: SummaryRequest, text: str) -> PromptContext:
        """Return the context with this summary, cut to the room that was requested."""
        within = summary_within(text, request.max_tokens, self._counter)
        return context.with_summary(ConversationSummary(within, request.covers))

    def within(self, max_prompt_tokens: int) -> PromptRenderer:
        """Return this renderer with another budget, in tokens of the prompt."""
        renderer = copy(self)
        renderer._most = max(max_prompt_tokens, 1)
        return renderer

    def result_room(self, context: PromptContext) -> TokenizationOptions | None:
        """Return the room for the missing results of the last round: what the prompt leaves, or `keep_share`
        of what system text, tools, question and this round leave, whichever is more, since everything before
        them can be summarised. None without a budget."""
        if self._most is None:
            return None
        conversation = self._assembler(Diagnostics()).conversation(context)
        units = conversation.units
        base = self._base(context, system_messages(context, self._separator))
        spoken = _spoken(unlimited(conversation, context.summary), context.summary)
        left = self._most - base - self._counter.messages(spoken)
        stays = {conversation.current, len(units) - 1} - {None, -1}
        staying = sum(self._counter.messages(units[index].messages) for index in stays if index is not None)
        shared = int((self._most - base - staying) * self._keep_share)
        return TokenizationOptions(max(left, shared, 0), self._counter.text)

    def _draw(self, context: PromptContext, diagnostics: Diagnostics) -> _Drawn | None:
        conversation = self._assembler(diagnostics).conversation(context)
        if not conversation.is_asked:
            return None
        head = system_messages(context, self._separator)
        base = self._base(context, head)
        return _Drawn(head, self._plan(conversation, context.summary, base), base)

    def _assembler(self, diagnostics: Diagnostics) -> Assembler:
        return Assembler(
            supports_images=self._supports_images,
            history_thinking=self._history_thinking,
            diagnostics=diagnostics,
        )

    def _base(self, context: PromptContext, head: list[ChatMessage]) -> int:
        return self._counter.request(context.tools) + self._counter.messages(head)

    def _plan(self, conversation: PromptUnits, summary: ConversationSummary | None, base: int) -> Plan:
        plan = unlimited(conversation, summary)
        if self._most is None:
            return plan
        tokens = base + self._counter.messages(_spoken(plan, summary))
        if tokens <= self._most and not self._trigger(tokens, self._most):
            return plan
        budget = Budget(self._most, int(self._most * self._keep_share), int(self._most * self._summary_share))
        return fit(conversation, summary, base, budget, self._counter)

    def _summarize(self, request: SummaryRequest) -> ConversationSummary:
        text = self._summarizer(request)
        within = summary_within(text, request.max_tokens, self._counter)
        if not within:
            self.diagnostics.loss("prompt.history", "its beginning was left out: no room for a summary")
        return ConversationSummary(within, request.covers)

    def _messages(self, drawn: _Drawn, summary: ConversationSummary | None) -> list[ChatMessage]:
        spoken = _spoken(drawn.plan, summary)
        if not self._cache_breakpoints:
            return [*drawn.head, *spoken]
        start = drawn.plan.asked or 0
        before = len(summary_messages(summary)) + sum(len(unit.messages) for unit in drawn.plan.units[:start])
        for index in {before - 1, len(spoken) - 1} - {-1}:
            spoken[index] = _marked(spoken[index])
        return [*map(_marked, drawn.head), *spoken]


def _spoken(plan: Plan, summary: ConversationSummary | None) -> list[ChatMessage]:
    units: list[Unit] = plan.units
    return [*summary_messages(summary), *(message for unit in units for message in unit.messages)]


def _marked(message: ChatMessage) -> ChatMessage:
    """Return the message with a breakpoint at its end, unless it is empty."""
    parts = parts_of(message.content)
    return replace(message, content=content_of([*parts, CacheBreakpointPart()])) if parts else message
