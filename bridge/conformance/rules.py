"""All rules: importing this module registers them. `RULES` is id → rule."""

# What is said of one event is said in the order of registration.
# isort: off
from bridge.conformance import rules_stream
from bridge.conformance import rules_items
from bridge.conformance import rules_response
from bridge.conformance import rules_usage
from bridge.conformance import rules_content
from bridge.conformance import rules_websocket
from bridge.conformance.registry import RULES

# isort: on
__all__ = [
    "RULES",
    "rules_content",
    "rules_items",
    "rules_response",
    "rules_stream",
    "rules_usage",
    "rules_websocket",
]
