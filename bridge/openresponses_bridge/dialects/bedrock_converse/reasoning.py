"""Reasoning and citations on the way through a client: sealed unchanged, so that they can be sent back byte
for byte. A signature belongs to exactly the text that it came with, and redacted content can only be sent
back."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.seal import Sealer, SealError

KIND: Final = "bedrock-reasoning"
_CITATION: Final = "bedrock-citation"


def seal_reasoning(sealer: Sealer, content: dict[str, Any]) -> str:
    """Seal the value of a `reasoningContent` block as `encrypted_content`."""
    return sealer.seal(encode(content), KIND)


def open_reasoning(sealer: Sealer, sealed: str) -> dict[str, Any] | None:
    """Return the value of the block; None for any other text, and for one that can't be opened here."""
    return _opened(sealer, sealed, KIND)


def seal_citation(sealer: Sealer, citation: dict[str, Any]) -> str:
    """Seal a citation as the API sent it."""
    return sealer.seal(encode(citation), _CITATION)


def open_citation(sealer: Sealer, sealed: str) -> dict[str, Any] | None:
    """Return the citation; None for any other text, and for one that can't be opened here."""
    return _opened(sealer, sealed, _CITATION)


def _opened(sealer: Sealer, sealed: str, kind: str) -> dict[str, Any] | None:
    try:
        contents = sealer.open(sealed)
        value = decode_json(contents.payload)
    except (SealError, WireError):
        return None
    return value if contents.kind == kind and isinstance(value, dict) else None
