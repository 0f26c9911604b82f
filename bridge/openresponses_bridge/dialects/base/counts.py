"""Token counts as upstreams report them: put right with a note, so that no answer is lost with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.usage import Usage, counts_in, nearest_count, within_bounds


def counted(usage: Usage, diagnostics: Diagnostics) -> Usage:
    """Usage that the machine takes: each number is a count."""
    return within_bounds(usage, diagnostics)


def counts_of(usage: Mapping[str, Any], diagnostics: Diagnostics) -> Usage | None:
    """The same out of an object in any spelling that `counts_in` knows, where missing counts are 0. None
    when there is no number in it."""
    given = {name: number for name, number in counts_in(usage).items() if number is not None}
    if not any(type(number) in (int, float) for number in given.values()):
        return None
    total = sum(nearest_count(given.get(name, 0)) for name in ("input_tokens", "output_tokens"))
    counts = {"input_tokens": 0, "output_tokens": 0, "total_tokens": total, **given}
    return within_bounds(Usage.of(**counts, estimated=usage.get("estimated") is True), diagnostics)
