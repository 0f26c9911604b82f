"""Reasoning effort ↔ thinking: budgets in tokens on older models, effort levels on newer ones."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages.models import ModelFacts
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer, SealError

SMALLEST_BUDGET: Final = 1024  # tokens; the API's minimum
_BUDGETS: Final = {
    "minimal": SMALLEST_BUDGET,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}
_EFFORTS: Final = {"minimal": "low", "xhigh": "max"}
_DEFAULT: Final = "medium"
# tokens that thinking must leave for the answer
_ANSWER: Final = 1024


def plan_thinking(
    effort: str, request: CreateResponse, facts: ModelFacts, max_tokens: int, diagnostics: Diagnostics
) -> dict[str, Any]:
    """Return the fields `thinking` and `output_config` for this effort, a known level other than none; {} if
    the model can't think."""
    if facts.thinking == "none":
        diagnostics.loss("reasoning.effort", "the model does not think")
        return {}
    if facts.thinking == "adaptive":
        return _adaptive(effort, request, facts, diagnostics)
    room = max_tokens - _ANSWER
    if room < SMALLEST_BUDGET:
        diagnostics.loss("reasoning.effort", "the output limit leaves no room for thinking")
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": min(_BUDGETS[effort], room)}}


def _adaptive(
    effort: str, request: CreateResponse, facts: ModelFacts, diagnostics: Diagnostics
) -> dict[str, Any]:
    known = effort if effort in facts.efforts else _EFFORTS.get(effort, _DEFAULT)
    if known != effort:
        diagnostics.loss("reasoning.effort", f"{effort!r} sent as {known!r}")
    thinking = {"type": "adaptive"}
    if request.reasoning is not None and request.reasoning.summary:
        thinking["display"] = "summarized"
    return {"thinking": thinking, "output_config": {"effort": known}}


def effort_from(body: dict[str, Any]) -> str | None:
    """Return the effort that an Anthropic request asks for; None for a request without thinking."""
    thinking = body.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    config = body.get("output_config")
    effort = config.get("effort") if isinstance(config, dict) else None
    if kind == "enabled" and isinstance(thinking, dict):
        return _nearest(thinking.get("budget_tokens"))
    if kind == "adaptive":
        return effort if isinstance(effort, str) else "high"
    return None


def _nearest(budget: Any) -> str:
    if not isinstance(budget, int):
        return _DEFAULT
    return min(_BUDGETS, key=lambda effort: abs(_BUDGETS[effort] - budget))


# Anthropic's opaque blocks travel in `encrypted_content`, and other upstreams' reasoning in Anthropic's
# signatures. Both are sealed whole, so that they come back byte for byte (field cases 30, 31).

THINKING: Final = "anthropic-thinking"
REDACTED: Final = "anthropic-redacted"
COMPACTION: Final = "anthropic-compaction"
REASONING: Final = "responses-reasoning"
SEARCH: Final = "anthropic-search"
SEARCH_BLOCKS: Final = ["server_tool_use", "web_search_tool_result"]
CITATION: Final = "anthropic-citation"

KIND_OF_BLOCK: Final = {
    "thinking": THINKING,
    "redacted_thinking": REDACTED,
    "compaction": COMPACTION,
}


def seal_block(sealer: Sealer, block: dict[str, Any]) -> str:
    """Seal a thinking, redacted_thinking or compaction block as `encrypted_content`."""
    return sealer.seal(encode(block), KIND_OF_BLOCK[block["type"]])


def seal_reasoning(sealer: Sealer, fields: dict[str, Any]) -> str:
    """Seal another upstream's reasoning item for a field in which Anthropic keeps opaque text."""
    return sealer.seal(encode(fields), REASONING)


def seal_search(sealer: Sealer, blocks: list[dict[str, Any]]) -> str:
    """Seal the blocks of a search (the call, and its results if they came) for its item. The results are
    encrypted, and the API requires them back byte for byte."""
    return sealer.seal(encode({"blocks": blocks}), SEARCH)


def open_search(sealer: Sealer, text: str) -> list[dict[str, Any]] | None:
    """Return the blocks of a search; None if they can't be opened here."""
    blocks = _opened(sealer, text, SEARCH).get("blocks")
    kinds = (
        [each.get("type") if isinstance(each, dict) else None for each in blocks]
        if isinstance(blocks, list)
        else []
    )
    return blocks if kinds in (SEARCH_BLOCKS[:1], SEARCH_BLOCKS) else None


def seal_citation(sealer: Sealer, citation: dict[str, Any]) -> str:
    """Seal a citation as the API sent it."""
    return sealer.seal(encode(citation), CITATION)


def open_citation(sealer: Sealer, text: str) -> dict[str, Any] | None:
    """Return the citation; None if it can't be opened here."""
    return _opened(sealer, text, CITATION) or None


def _opened(sealer: Sealer, text: str, expected_kind: str) -> dict[str, Any]:
    try:
        kind, value = open_sealed(sealer, text)
    except SealError:
        return {}
    return value if kind == expected_kind else {}


def open_sealed(sealer: Sealer, text: str) -> tuple[str, dict[str, Any]]:
    """Return (kind, object) of an envelope. Raises SealError, also for a sealed text that is not an
    object."""
    kind, payload = sealer.open(text)
    try:
        value = decode_json(payload)
    except WireError as error:
        raise SealError(SealError.BROKEN, "the envelope does not hold JSON") from error
    if not isinstance(value, dict):
        raise SealError(SealError.BROKEN, "the envelope does not hold an object")
    return kind, value
