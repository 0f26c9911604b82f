"""Copilot's `usage` data, read without trusting its shape."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import counts_of
from openresponses_bridge.protocol.usage import Usage

_TOTALS = ("prompt_tokens", "completion_tokens", "total_tokens")


def usage_of(value: Any, diagnostics: Diagnostics) -> Usage | None:
    """APIUsage, whose three totals must be numbers."""
    if not isinstance(value, dict) or not all(_is_number(value.get(name)) for name in _TOTALS):
        return None
    return counts_of(value, diagnostics)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
