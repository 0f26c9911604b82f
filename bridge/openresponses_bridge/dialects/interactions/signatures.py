"""Signatures on the way through a client of another API: sealed in `encrypted_content`. The signature of a
thought is in the thought's item; that of a call is in an item of reasoning before the call."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.protocol.codec import with_whole_characters
from openresponses_bridge.seal import Sealer, SealError

THOUGHT: Final = "interactions-signature"
CALL: Final = "interactions-call-signature"


def seal_signature(sealer: Sealer, signature: str, kind: str = THOUGHT) -> str:
    """Seal a signature as `encrypted_content`; an empty one marks the thought as Google's."""
    return sealer.seal(with_whole_characters(signature).encode(), kind)


def open_signature(sealer: Sealer, encrypted: object, kind: str = THOUGHT) -> str | None:
    """Return what was sealed; None for any other text, and for one that can't be opened here."""
    if not isinstance(encrypted, str) or encrypted.split(".", 3)[2:3] != [kind]:
        return None
    try:
        return sealer.open(encrypted).payload.decode()
    except (SealError, UnicodeDecodeError):
        return None
