"""The reasoning of other upstreams in a signature of Google's, or in bytes of Amazon's, which clients send
back without reading it.

Clients decode such fields from base64 and encode them again, some with the alphabet for URLs. So the
envelope, a text, is in base64 as a whole, and is recognised by its first bytes. Clients may send back only
the signatures of thoughts, so the envelope has all of the reasoning.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from typing import Any, Final

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.content import SummaryTextContent
from openresponses_bridge.protocol.input_items import ReasoningParam
from openresponses_bridge.seal import Sealer, SealError, is_envelope

KIND: Final = "gemini-reasoning"
_STANDARD: Final = str.maketrans("-_", "+/")


def standard_base64(text: str) -> str:
    """Return base64 in the usual alphabet, with its padding, from either alphabet."""
    bare = text.translate(_STANDARD).rstrip("=")
    return bare + "=" * (-len(bare) % 4)


def seal_reasoning(sealer: Sealer, items: list[dict[str, Any]]) -> str:
    """Seal reasoning items, as `{id, summary, encrypted_content}`, in a signature."""
    return b64encode(sealer.seal(encode(items), KIND).encode()).decode()


def envelope_in(signature: str) -> str | None:
    """Return the envelope in a signature; None for Google's own signatures."""
    try:
        text = b64decode(standard_base64(signature), validate=True).decode("ascii")
    except (Error, ValueError):
        return None
    return text if is_envelope(text) else None


def open_reasoning(sealer: Sealer, envelope: str) -> list[ReasoningParam]:
    """Return the items in an envelope. Raises SealError for one that can't be opened here."""
    kind, payload = sealer.open(envelope)
    if kind != KIND:
        raise SealError(SealError.FOREIGN, "the envelope does not hold reasoning")
    try:
        items: list[dict[str, Any]] = decode_json(payload)
    except WireError as error:
        raise SealError(SealError.BROKEN, "the envelope does not hold JSON") from error
    return [
        ReasoningParam(
            [SummaryTextContent(text) for text in item["summary"]],
            item["id"],
            encrypted_content=item["encrypted_content"],
        )
        for item in items
    ]
