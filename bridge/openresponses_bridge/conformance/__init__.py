"""Validates streams: every event is checked against rules, each with an id and the clause it enforces."""

from openresponses_bridge.conformance.judging import validate_envelope, validate_response
from openresponses_bridge.conformance.published import WireName
from openresponses_bridge.conformance.registry import Rule, Violation
from openresponses_bridge.conformance.rules import RULES
from openresponses_bridge.conformance.validator import StreamValidator

__all__ = [
    "RULES",
    "Rule",
    "StreamValidator",
    "Violation",
    "WireName",
    "validate_envelope",
    "validate_response",
]
