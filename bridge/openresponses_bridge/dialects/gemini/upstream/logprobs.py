"""Log probabilities of tokens, in the protocol's form."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from openresponses_bridge.dialects.base import number_of
from openresponses_bridge.dialects.gemini.types import spelled
from openresponses_bridge.protocol.content import LogProb, TopLogProb
from openresponses_bridge.text import repair_surrogates


def logprobs_of(result: dict[str, Any]) -> list[LogProb]:
    """The tokens of a candidate's `logprobsResult` with their alternatives; those without a token or its log
    probability are left out."""
    chosen, top = result.get("chosenCandidates"), result.get("topCandidates")
    if not isinstance(chosen, list):
        return []
    found = []
    for token, others in zip_longest(chosen, top if isinstance(top, list) else ()):
        said = _token(token)
        if said is not None:
            ranked = spelled(others).get("candidates") if isinstance(others, dict) else ()
            alternatives = map(_token, ranked if isinstance(ranked, list) else ())
            found.append(
                LogProb(
                    said.token, said.logprob, said.bytes, [each for each in alternatives if each is not None]
                )
            )
    return found


def _token(given: Any) -> TopLogProb | None:
    fields = spelled(given) if isinstance(given, dict) else {}
    token, logprob = fields.get("token"), number_of(fields.get("logProbability"))
    if not isinstance(token, str) or logprob is None:
        return None
    token = repair_surrogates(token)
    return TopLogProb(token, logprob, list(token.encode()))
