"""Converts reasoning to one text, for clients whose API does not separate summaries from content."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol import events as ev

_PARAGRAPH: Final = "\n\n"


class ShownThoughts:
    """Shows one form of each reasoning item: content or summary, whichever comes first. The other one is a
    loss."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._form: tuple[int, str] = (-1, "")  # the reasoning item, and its form that is shown
        self._part = (-1, -1)  # of a summary

    def content(self, event: ev.ReasoningDelta | ev.ReasoningTextDelta) -> str:
        """Return the text to show for a delta of the content."""
        return self._shown(event.output_index, "content", event.delta)

    def summary(self, event: ev.ReasoningSummaryTextDelta) -> str:
        """Return the text to show for a delta of the summary, whose parts are separated by a blank line."""
        now, before = (event.output_index, event.summary_index), self._part
        self._part = now
        apart = _PARAGRAPH if before[0] == now[0] and before != now else ""
        return self._shown(event.output_index, "summary", apart + event.delta)

    def _shown(self, output_index: int, form: str, delta: str) -> str:
        if not delta:
            return ""
        if self._form[0] != output_index:
            self._form = (output_index, form)
        if self._form[1] != form:
            self._diagnostics.loss(f"reasoning.{form}", "beside another form of the same reasoning")
            return ""
        return delta
