"""The WebSocket transport: one connection, in each of its lanes one response after the other."""

from __future__ import annotations

from typing import Final

PATH: Final = "/v1/responses"
"""Where its handshake is taken."""
