"""Codex's notifications, in three generations: a proxy's `response.*`, the app-server's `item/*` and
`turn/*`, and the older `codex/event/*`."""

from openresponses_bridge.dialects.codex.dialect import DIALECT
from openresponses_bridge.dialects.codex.inbound import Inbound
from openresponses_bridge.dialects.codex.options import CodexOptions
from openresponses_bridge.dialects.codex.paused import turn_paused
from openresponses_bridge.dialects.codex.request import to_turn
from openresponses_bridge.dialects.codex.routes import is_known
from openresponses_bridge.dialects.codex.turn_input import OWN, user_input
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
