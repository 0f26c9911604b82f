"""What a rule asks, where that is said, and a stream that breaks it."""

from __future__ import annotations

from msgspec import Struct

from openresponses_bridge.conformance.examples import EXAMPLES
from openresponses_bridge.conformance.rules import RULES


class Explanation(Struct, frozen=True):
    """`example` says what was changed in a clean stream, `violations` what this rule then reports."""

    rule: str
    asks: str
    clause: str
    example: str
    violations: list[str]


def explanation(rule: str) -> Explanation:
    """The explanation of a rule. Raises KeyError when there is none of this id."""
    described, example = RULES[rule], EXAMPLES[rule]
    found = [str(violation) for violation in example.found() if violation.rule == rule]
    return Explanation(rule, described.description, described.source, example.says, found)
