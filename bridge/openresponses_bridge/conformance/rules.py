"""All rules: importing this module registers them. `RULES` is id → rule."""

# Violations of one event are reported in the order of registration.
# isort: off
from openresponses_bridge.conformance import rules_stream
from openresponses_bridge.conformance import rules_items
from openresponses_bridge.conformance import rules_response
from openresponses_bridge.conformance import rules_content
from openresponses_bridge.conformance.registry import RULES

# isort: on
__all__ = [
    "RULES",
    "rules_content",
    "rules_items",
    "rules_response",
    "rules_stream",
]
