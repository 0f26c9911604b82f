"""Judging a stream: every event against the clauses it has to keep, each clause a rule with an id."""

from bridge.conformance.alone import judge_envelope, judge_response
from bridge.conformance.published import WireName
from bridge.conformance.registry import Rule, Violation
from bridge.conformance.rules import RULES
from bridge.conformance.validator import StreamValidator

__all__ = [
    "RULES",
    "Rule",
    "StreamValidator",
    "Violation",
    "WireName",
    "judge_envelope",
    "judge_response",
]
