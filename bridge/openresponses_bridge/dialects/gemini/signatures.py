"""Thought signatures on the way through a client: sealed in `encrypted_content`, with their places.

Gemini signs parts, and requires each signature back on its part. A reasoning item carries the signatures of
its own thoughts, of the message before it, and of the item after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer, SealError

KIND: Final = "gemini-signatures"
_SEARCH: Final = "gemini-search"


class Signed(Struct, frozen=True, omit_defaults=True):
    """One signature, in unchanged base64, and the part that has it.

    `thought` means this length of the item's own text, from `start` on. `text` means the same in the message
    before it; without a message, a part without text. `next` means the call with this id, or the next item if
    it is empty. Lengths are code points.
    """

    signature: str
    on: Literal["thought", "text", "next"]
    start: int = 0
    length: int = 0
    call_id: str = ""


_decode: Final = msgspec.json.Decoder(list[Signed]).decode


def seal_signatures(sealer: Sealer, signed: Sequence[Signed]) -> str:
    """Seal the signatures as `encrypted_content`; an empty list marks the thoughts as Gemini's."""
    return sealer.seal(encode(list(signed)), KIND)


def open_signatures(sealer: Sealer, encrypted: object) -> list[Signed] | None:
    """Return what was sealed; None for any other text, and for one that can't be opened here."""
    if not isinstance(encrypted, str) or encrypted.split(".", 3)[2:3] != [KIND]:
        return None
    try:
        return _decode(sealer.open(encrypted).payload)
    except (SealError, msgspec.MsgspecError):
        return None


def seal_search(sealer: Sealer) -> str:
    """Return the mark of a search that Gemini ran: its API has no part for a search, and wants none back."""
    return sealer.seal(b"{}", _SEARCH)


def is_own_search(sealer: Sealer, mark: str) -> bool:
    """Return True if a search has this mark."""
    try:
        return bool(mark) and sealer.open(mark).kind == _SEARCH
    except SealError:
        return False
