"""Token counts of one turn out of Codex's counts of a whole thread.

A turn may call the model several times. Each report gives the thread's `total` and the `last` call's
share; reports are repeated, and `last` is now and then zero or an estimate of the context. So what
counts is by how much the total grew, and for the first report `last`.
"""

from __future__ import annotations

from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.codex.types import count_of, object_of
from openresponses_bridge.protocol.usage import Usage

_NAMES = (
    ("inputTokens", "input_tokens"),
    ("outputTokens", "output_tokens"),
    ("cachedInputTokens", "cached_input_tokens"),
    ("reasoningOutputTokens", "reasoning_output_tokens"),
)
_SPELLINGS = frozenset(name for spellings in _NAMES for name in spellings)
_Counts = tuple[int, ...]


class TurnUsage:
    """Adds the reports of a thread up for one turn of it."""

    __slots__ = ("_before", "_diagnostics", "_spent")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._before: _Counts | None = None
        self._spent: _Counts = (0,) * len(_NAMES)

    def elsewhere(self, report: dict[str, Any]) -> None:
        """A report about another turn of the thread: what it counts is not ours."""
        self._before = self._counts(report, "total")

    def add(self, report: dict[str, Any]) -> Usage:
        """A report about this turn: `{total, last}`, in either spelling. What the turn spent so far."""
        total, last = self._counts(report, "total"), self._counts(report, "last")
        if self._before is None:
            grown = last if any(last) else total
        else:
            grown = tuple(max(now - then, 0) for now, then in zip(total, self._before, strict=True))
        self._before = total
        self._spent = tuple(a + b for a, b in zip(self._spent, grown, strict=True))
        incoming, outgoing, cached, reasoning = self._spent
        return Usage.of(incoming, outgoing, cached_tokens=cached, reasoning_tokens=reasoning)

    def _counts(self, report: dict[str, Any], which: str) -> _Counts:
        counts = object_of(report.get(which) or report.get(f"{which}_token_usage"))
        for name in counts.keys() & _SPELLINGS:
            if counts[name] is not None and count_of(counts[name]) != counts[name]:
                self._diagnostics.repair(f"usage.{name}", "can't be a count, left out")
        return tuple(count_of(counts.get(camel)) or count_of(counts.get(other)) for camel, other in _NAMES)
