"""Log probabilities of tokens, in the protocol's form."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import number_of
from openresponses_bridge.dialects.gemini.types import spelled
from openresponses_bridge.protocol.content import LogProb, TopLogProb
from openresponses_bridge.text import repair_surrogates


def logprobs_of(result: dict[str, Any], diagnostics: Diagnostics) -> list[LogProb]:
    """Return the tokens of a candidate's `logprobsResult` with their alternatives; those without a token or
    its log probability are left out. Their ids are losses."""
    chosen, top = result.get("chosenCandidates"), result.get("topCandidates")
    if not isinstance(chosen, list):
        return []
    logprobs = []
    for token, others in zip_longest(chosen, top if isinstance(top, list) else ()):
        entry = _token(token, diagnostics)
        if entry is not None:
            ranked = spelled(others).get("candidates") if isinstance(others, dict) else ()
            candidates = [_token(each, diagnostics) for each in (ranked if isinstance(ranked, list) else ())]
            alternatives = [each for each in candidates if each is not None]
            logprobs.append(LogProb(entry.token, entry.logprob, entry.bytes, alternatives))
    return logprobs


def _token(raw: Any, diagnostics: Diagnostics) -> TopLogProb | None:
    fields = spelled(raw) if isinstance(raw, dict) else {}
    token, logprob = fields.get("token"), number_of(fields.get("logProbability"))
    if not isinstance(token, str) or logprob is None:
        return None
    if fields.get("tokenId") is not None:
        diagnostics.loss("logprobsResult.tokenId", "tokens have no ids here")
    token = repair_surrogates(token)
    return TopLogProb(token, logprob, list(token.encode()))
