"""All scenarios: importing this module registers them. `SCENARIOS` is id → scenario, in playing order."""

# isort: off
from bridge.conformance import scenarios_answers
from bridge.conformance import scenarios_tools
from bridge.conformance import scenarios_turns
from bridge.conformance import scenarios_errors
from bridge.conformance import scenarios_stored
from bridge.conformance import scenarios_websocket
from bridge.conformance import scenarios_compaction
from bridge.conformance.scenario import SCENARIOS

# isort: on
__all__ = [
    "SCENARIOS",
    "scenarios_answers",
    "scenarios_compaction",
    "scenarios_errors",
    "scenarios_stored",
    "scenarios_tools",
    "scenarios_turns",
    "scenarios_websocket",
]
