"""Clauses about the token counts of a response."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.conformance.context import EventContext
from openresponses_bridge.conformance.registry import RESPONSES, Finding, Findings, rule

_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
# a count that is part of another: where it stands, and the whole
_PARTS = {
    ("input_tokens_details", "cached_tokens"): "input_tokens",
    ("output_tokens_details", "reasoning_tokens"): "output_tokens",
}


@rule("specification, OpenAPI: Usage, the total number of tokens", RESPONSES)
def usage_sum(context: EventContext) -> Findings:
    """total_tokens is the sum of input_tokens and output_tokens."""
    usage = _usage(context)
    given, received, total = (_count(usage, name) for name in _COUNTS)
    if given is not None and received is not None and total is not None and given + received != total:
        yield Finding(f"{total}, but {given} and {received} make {given + received}", f"{_PATH}.total_tokens")


@rule("specification, OpenAPI: Usage, a count of tokens", RESPONSES)
def usage_negative(context: EventContext) -> Findings:
    """No count of tokens is negative."""
    usage = _usage(context)
    places = [(_PATH, usage, name) for name in _COUNTS]
    places += [(f"{_PATH}.{details}", _object(usage.get(details)), name) for details, name in _PARTS]
    for path, holder, name in places:
        if (_count(holder, name) or 0) < 0:
            yield Finding(f"{holder[name]} tokens", f"{path}.{name}")


@rule("specification, OpenAPI: Usage, a breakdown of the tokens", RESPONSES)
def usage_part_of_whole(context: EventContext) -> Findings:
    """Cached tokens are some of the input's, reasoning tokens some of the output's."""
    usage = _usage(context)
    for (details, name), whole in _PARTS.items():
        part, most = _count(_object(usage.get(details)), name), _count(usage, whole)
        if part is not None and most is not None and part > most >= 0:
            yield Finding(f"{part} of {most} {whole}", f"{_PATH}.{details}.{name}")


_PATH = "$.response.usage"


def _usage(context: EventContext) -> dict[str, Any]:
    return _object(_object(context.raw.get("response")).get("usage"))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(holder: dict[str, Any], name: str) -> int | None:
    value = holder.get(name)
    return value if type(value) is int else None
