"""Codex's notifications, in three generations: a proxy's `response.*`, the app-server's `item/*` and
`turn/*`, and the older `codex/event/*`."""

from bridge.dialects.codex.dialect import DIALECT
from bridge.dialects.codex.inbound import Inbound
from bridge.dialects.codex.options import CodexOptions
from bridge.dialects.codex.paused import turn_paused
from bridge.dialects.codex.request import to_turn
from bridge.dialects.codex.routes import is_known
from bridge.dialects.codex.turn_input import OWN, user_input
from bridge.dialects.codex.types import Generation

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
