"""What a server wants back as it came: sealed in `encrypted_content` on its way through a client.

Google puts thought signatures into `extra_content` of a call, or of the message; OpenRouter gives its
`reasoning_details` whole. Both are kept verbatim and in order.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer, SealError

KIND: Final = "chat-carried"


class Carried(Struct, frozen=True, omit_defaults=True):
    """One sealed thing: the reasoning details of a message, or the extra content of the message or of the
    call with this id; an id that is empty means the call that follows."""

    details: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None
    call_id: str | None = None


_decode: Final = msgspec.json.Decoder(Carried).decode


def seal_carried(sealer: Sealer, carried: Carried) -> str:
    """It as `encrypted_content`."""
    return sealer.seal(encode(carried), KIND)


def open_carried(sealer: Sealer, encrypted: object) -> Carried | None:
    """What was sealed; None for anything else, and for what can't be opened here."""
    if not isinstance(encrypted, str) or encrypted.split(".", 3)[2:3] != [KIND]:
        return None
    try:
        return _decode(sealer.open(encrypted).payload)
    except (SealError, msgspec.MsgspecError):
        return None


def placeholder(signature: str) -> dict[str, Any]:
    """The extra content of a call with this thought signature."""
    return {"google": {"thought_signature": signature}}


class KeptDetails:
    """The reasoning details of a stream. Fragments of one text are joined; all else stays as it came."""

    __slots__ = ("_details", "_opaque", "_texts")

    def __init__(self) -> None:
        self._details: list[dict[str, Any]] = []
        self._texts: list[dict[str, list[str]]] = []  # of each detail, by field
        self._opaque = False

    @property
    def opaque(self) -> bool:
        """Whether there is more than text, which has a place of its own."""
        return self._opaque

    def add(self, detail: dict[str, Any]) -> None:
        """The next detail, or the next fragment of the last one."""
        self._opaque = self._opaque or bool(detail.get("signature") or detail.get("data"))
        texts = {name: detail[name] for name in _TEXTS if isinstance(detail.get(name), str)}
        last = self._details[-1] if self._details else None
        if last is not None and texts and all(last.get(name) == detail.get(name) for name in _SAME):
            last.update({name: value for name, value in detail.items() if value is not None})
            for name, text in texts.items():
                self._texts[-1].setdefault(name, []).append(text)
        else:
            self._details.append(dict(detail))
            self._texts.append({name: [text] for name, text in texts.items()})

    def whole(self) -> list[dict[str, Any]]:
        """All details, each as one."""
        return [
            {**detail, **{name: "".join(pieces) for name, pieces in texts.items()}}
            for detail, texts in zip(self._details, self._texts, strict=True)
        ]


_TEXTS: Final = ("text", "summary")
_SAME: Final = ("type", "index")
