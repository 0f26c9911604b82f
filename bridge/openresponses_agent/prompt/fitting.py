"""Fits a conversation into a budget: decides what is kept, what is cut, and what a summary replaces.

System text, tools and the question are always kept, then the newest units. The oldest units, which do not
fit, are summarised, so that the prompt keeps its order.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from openresponses_agent.prompt.assembly import PromptUnits, Unit
from openresponses_agent.prompt.context import ConversationSummary
from openresponses_agent.prompt.raw import ChatMessage
from openresponses_agent.prompt.summary import (
    PromptCounter,
    SummaryRequest,
    fitted,
    minimum_tokens,
    summary_message,
    summary_within,
)
from openresponses_bridge.errors import LocalError

_ROOM_SHARE: Final = 4  # a summary gets at most this fraction (1/4) of what is left


class PromptBudgetError(LocalError):
    """System text, tools and the question alone exceed the budget. `context` has `budget` and `needed`, the
    smallest sufficient budget, with the question's attachments cut to nothing, both in tokens."""

    CODE = "bridge.prompt.budget_exceeded"

    def __init__(self, needed: int, budget: int) -> None:
        message = f"system text, tools and question need at least {needed} tokens; the budget is {budget}"
        super().__init__(self.CODE, message, needed=needed, budget=budget)


class Plan(NamedTuple):
    """The `units` that are kept, in order, and `asked`, the question's index among them, or None. `request`
    is what must be summarised first; its `max_tokens` are those of the whole message."""

    units: list[Unit]
    asked: int | None
    summary: ConversationSummary | None
    request: SummaryRequest | None


class Budget(NamedTuple):
    """Budgets in tokens: `total` for the prompt, `goal` for the prompt after a summary, `summary` for the
    summary's message."""

    total: int
    goal: int
    summary: int


def unlimited(conversation: PromptUnits, summary: ConversationSummary | None) -> Plan:
    """Return the plan that keeps everything unchanged."""
    return _plan(conversation, summary, dict(enumerate(conversation.units)), _covered(conversation, summary))


def fit(
    conversation: PromptUnits,
    summary: ConversationSummary | None,
    base: int,
    budget: Budget,
    counter: PromptCounter,
) -> Plan:
    """Return the plan for a conversation that is too long. `base` is the number of tokens in system text and
    tools. Raises PromptBudgetError."""
    units = dict(enumerate(conversation.units))
    covered = _covered(conversation, summary)
    if conversation.current is not None:
        question = units[conversation.current]
        within = fitted(question, budget.total - base, counter)
        if within is None:
            raise PromptBudgetError(base + minimum_tokens(question, counter), budget.total)
        units[conversation.current] = within
        base += counter.messages(within.messages)
    elif base > budget.total:
        raise PromptBudgetError(base, budget.total)
    room = budget.total - base
    allowance = min(budget.summary, room // _ROOM_SHARE)
    covers = _keep(units, conversation.current, covered, room - allowance, budget.goal - base, counter)
    if covers == covered:
        return _plan(conversation, _shortened(units, conversation, summary, room, counter), units, covered)
    # The question is kept, and is in the summary too, since it will be history and covered then.
    gone = [message for index in range(covered, covers) for message in units[index].messages]
    previous = summary.text if summary is not None else ""
    request = SummaryRequest(gone, previous, allowance, covers)
    return _plan(conversation, None, units, covers)._replace(request=request)


def _keep(
    units: dict[int, Unit],
    current: int | None,
    covered: int,
    most: int,
    goal: int,
    counter: PromptCounter,
) -> int:
    """Return the index of the first kept unit. The newest unit may use all available tokens, and is cut if
    necessary."""
    used = 0
    newest = True
    for index in range(len(units) - 1, covered - 1, -1):
        if index == current:
            continue
        unit = fitted(units[index], most, counter) if newest else units[index]
        if unit is None:
            return index + 1
        used += counter.messages(unit.messages)
        if not newest and used > min(most, goal):
            return index + 1
        units[index] = unit
        newest = False
    return covered


def _shortened(
    units: dict[int, Unit],
    conversation: PromptUnits,
    summary: ConversationSummary | None,
    room: int,
    counter: PromptCounter,
) -> ConversationSummary | None:
    """Return the earlier summary, cut to the tokens that the kept units leave."""
    if summary is None:
        return None
    uncovered = range(_covered(conversation, summary), len(units))
    used = sum(counter.messages(units[each].messages) for each in uncovered if each != conversation.current)
    return ConversationSummary(summary_within(summary.text, room - used, counter), summary.covers)


def _covered(conversation: PromptUnits, summary: ConversationSummary | None) -> int:
    return 0 if summary is None else max(0, min(summary.covers, len(conversation.units)))


def _plan(
    conversation: PromptUnits, summary: ConversationSummary | None, units: dict[int, Unit], covers: int
) -> Plan:
    indexes = [index for index in sorted(units) if index >= covers or index == conversation.current]
    current = None if conversation.current is None else indexes.index(conversation.current)
    return Plan([units[index] for index in indexes], current, summary, None)


def summary_messages(summary: ConversationSummary | None) -> list[ChatMessage]:
    """Return the message of a summary that is not blank."""
    return [summary_message(summary.text)] if summary is not None and summary.text.strip() else []
