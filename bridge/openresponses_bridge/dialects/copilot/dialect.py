"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from openresponses_bridge.dialects.base import ClientSide, Dialect, Recording
from openresponses_bridge.dialects.copilot.inbound import Inbound
from openresponses_bridge.dialects.copilot.outbound import Outbound
from openresponses_bridge.dialects.copilot.types import CallbackChunk, encode_chunk


def encode_lines(chunks: Iterable[CallbackChunk]) -> bytes:
    """Chunks → JSON lines, each with its line end."""
    return b"".join([encode_chunk(chunk) + b"\n" for chunk in chunks])


def _is_copilot(value: Mapping[str, Any]) -> bool:
    return (isinstance(value.get("delta"), dict) and "text" in value) or "solution" in value


def _begins(value: Mapping[str, Any], _before: Mapping[str, Any] | None) -> bool:
    """All text so far is the delta's own, of the choice that is read."""
    delta = value.get("delta")
    return isinstance(delta, dict) and value.get("text") == delta.get("text") and not value.get("index")


DIALECT: Final = Dialect(
    name="copilot",
    title="Copilot",
    client=ClientSide(outbound=Outbound, encode=encode_lines),
    recording=Recording(
        recognises=_is_copilot,
        inbound=lambda machine: Inbound(machine, implied_end=True),
        begins=_begins,
    ),
)
