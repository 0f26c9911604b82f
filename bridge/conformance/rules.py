"""All rules: importing this module registers them. `RULES` is id → rule."""

from bridge.conformance import rules_content, rules_items, rules_response, rules_stream
from bridge.conformance.registry import RULES

__all__ = ["RULES", "rules_content", "rules_items", "rules_response", "rules_stream"]
