"""Reasoning on its way to a Chat Completions client, which has one field for it or none."""

from __future__ import annotations

from typing import Literal

from bridge.diagnostics import Diagnostics
from bridge.dialects.chat_completions.types import ChatDelta
from bridge.protocol import events as ev

ReasoningField = Literal["reasoning_content", "reasoning", "none"]


class OutgoingReasoning:
    """A summary goes where reasoning goes, unless the reasoning itself was told."""

    __slots__ = ("_diagnostics", "_field", "_summary", "_thought")

    def __init__(self, field: ReasoningField, diagnostics: Diagnostics) -> None:
        self._field = field
        self._diagnostics = diagnostics
        self._thought: set[int] = set()
        self._summary: tuple[int, int] | None = None

    def raw(self, event: ev.ReasoningDelta | ev.ReasoningTextDelta) -> ChatDelta | None:
        self._thought.add(event.output_index)
        return self._delta(event.delta)

    def summary(self, event: ev.ReasoningSummaryTextDelta) -> ChatDelta | None:
        """Parts of summaries stand apart by a blank line."""
        if event.output_index in self._thought:
            self._diagnostics.loss("reasoning.summary", "left out beside the reasoning itself")
            return None
        before, self._summary = self._summary, (event.output_index, event.summary_index)
        apart = "" if before in (None, self._summary) else "\n\n"
        delta = self._delta(apart + event.delta)
        if delta is not None:
            self._diagnostics.loss("reasoning.summary", "told as reasoning")
        return delta

    def _delta(self, text: str) -> ChatDelta | None:
        if self._field == "reasoning_content":
            return ChatDelta(reasoning_content=text)
        if self._field == "reasoning":
            return ChatDelta(reasoning=text)
        self._diagnostics.loss("reasoning", "left out, as asked")
        return None
