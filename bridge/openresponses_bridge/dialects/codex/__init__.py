"""Codex's notifications, in three generations: a proxy's `response.*`, the app-server's `item/*` and
`turn/*`, and the older `codex/event/*`."""

from openresponses_bridge.dialects.codex.dialect import DIALECT, turn_paused
from openresponses_bridge.dialects.codex.inbound import Inbound
from openresponses_bridge.dialects.codex.request import OWN, CodexOptions, to_turn, user_input
from openresponses_bridge.dialects.codex.routes import is_known
from openresponses_bridge.dialects.codex.types import Generation

__all__ = [
    "DIALECT",
    "OWN",
    "CodexOptions",
    "Generation",
    "Inbound",
    "is_known",
    "to_turn",
    "turn_paused",
    "user_input",
]
