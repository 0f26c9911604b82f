"""Anthropic's opaque blocks in `encrypted_content`, and other upstreams' reasoning in Anthropic's
signatures: sealed whole, so that both come back to the byte (field cases 30, 31).
"""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.seal import Sealer, SealError

THINKING: Final = "anthropic-thinking"
REDACTED: Final = "anthropic-redacted"
COMPACTION: Final = "anthropic-compaction"
REASONING: Final = "responses-reasoning"

KIND_OF_BLOCK: Final = {
    "thinking": THINKING,
    "redacted_thinking": REDACTED,
    "compaction": COMPACTION,
}


def seal_block(sealer: Sealer, block: dict[str, Any]) -> str:
    """A thinking, redacted_thinking or compaction block as `encrypted_content`."""
    return sealer.seal(encode(block), KIND_OF_BLOCK[block["type"]])


def seal_reasoning(sealer: Sealer, fields: dict[str, Any]) -> str:
    """Another upstream's reasoning item, for a place where Anthropic keeps opaque text."""
    return sealer.seal(encode(fields), REASONING)


def open_sealed(sealer: Sealer, text: str) -> tuple[str, dict[str, Any]]:
    """(kind, object) of an envelope. Raises SealError, also for a sealed text that is not an object."""
    kind, payload = sealer.open(text)
    try:
        value = decode_json(payload)
    except WireError as error:
        raise SealError(SealError.BROKEN, "the envelope does not hold JSON") from error
    if not isinstance(value, dict):
        raise SealError(SealError.BROKEN, "the envelope does not hold an object")
    return kind, value
