"""Signatures on their way through a client of another API: sealed in `encrypted_content`. That of a thought
is in its own item, that of a call in an item of reasoning before it."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.protocol.codec import with_whole_characters
from openresponses_bridge.seal import Sealer, SealError

THOUGHT: Final = "interactions-signature"
CALL: Final = "interactions-call-signature"


def seal_signature(sealer: Sealer, signature: str, kind: str = THOUGHT) -> str:
    """A signature as `encrypted_content`; an empty one says that the thought is Google's."""
    return sealer.seal(with_whole_characters(signature).encode(), kind)


def open_signature(sealer: Sealer, encrypted: object, kind: str = THOUGHT) -> str | None:
    """Return what was sealed; None for any other text, and for what can't be opened here."""
    if not isinstance(encrypted, str) or encrypted.split(".", 3)[2:3] != [kind]:
        return None
    try:
        return sealer.open(encrypted).payload.decode()
    except (SealError, UnicodeDecodeError):
        return None
