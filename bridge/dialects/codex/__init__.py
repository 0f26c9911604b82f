"""Codex's notifications, in three generations: a proxy's `response.*`, the app-server's `item/*` and
`turn/*`, and the older `codex/event/*`."""

from bridge.dialects.codex.dialect import DIALECT
from bridge.dialects.codex.inbound import Inbound
from bridge.dialects.codex.types import Generation

__all__ = ["DIALECT", "Generation", "Inbound"]
