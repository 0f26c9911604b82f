"""Fields that only Chat Completions has, on the way between its clients and its servers; and data that a
server wants back unchanged, sealed in `encrypted_content` on the way through a client.

Google puts thought signatures into `extra_content` of a call, or of the message; OpenRouter sends whole
`reasoning_details`, LiteLLM Anthropic's `thinking_blocks`. All are kept verbatim and in order.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from openresponses_bridge.dialects.base import carried_in
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer, SealError

USAGE: Final = "usage"
CHOICE: Final = "choice"
FINISH_REASON: Final = "finish_reason"
"""The field of `Response.native` with what an answer says of its counts and its choice; beside it are fields
of the body by their own names."""
MESSAGE: Final = "message"
"""The field within that with the fields of the message, by their own names."""
REFUSED_TOKENS: Final = "refusal_logprobs"
"""The field within `finish_reason` with the log probabilities of a refusal."""
AUDIO: Final = "chat:audio"
"""The type of items with an answer's sound, and of messages that refer to one by its id."""
AUDIO_DELTA: Final = "chat:audio.delta"
"""The type of events with a piece of sound."""


class CarriedFields(Struct):
    """The fields of one request that only Chat Completions has."""

    body: dict[str, Any] = field(default_factory=dict)
    """Fields of the body."""
    messages: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Index of an item in the input → fields of its message."""
    parts: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """Indexes of an item and of a part of its content → fields of the part."""
    items: int = 0
    """The number of items in the input. Indexes are invalid if an input has another number."""
    cached: bool = False
    """True if a part has `cache_control`, which OpenAI's API does not have."""

    @property
    def placed(self) -> list[str]:
        """The names, in reports, of the fields that belong to messages and parts."""
        of_messages = dict.fromkeys(name for fields in self.messages.values() for name in fields)
        of_parts = dict.fromkeys(name for fields in self.parts.values() for name in fields)
        return [f"messages.{name}" for name in of_messages] + [f"content.{name}" for name in of_parts]


NOTHING: Final = CarriedFields()


def carried_by(request: CreateResponse) -> CarriedFields:
    """Return the fields for this API that a request carries."""
    return carried_in(request, NOTHING)


KIND: Final = "chat-carried"
DetailsField = Literal["reasoning_details", "thinking_blocks"]
"""The fields of a message with details of its reasoning."""


class Carried(Struct, frozen=True, omit_defaults=True):
    """Sealed data: the reasoning details of a message, which were in this field of it, or the extra content
    of the message or of the call with this id. An empty id stands for the next call."""

    details: list[dict[str, Any]] | None = None
    field: DetailsField = "reasoning_details"
    extra: dict[str, Any] | None = None
    call_id: str | None = None


_decode: Final = msgspec.json.Decoder(Carried).decode


def seal_carried(sealer: Sealer, carried: Carried) -> str:
    """Seal the data as `encrypted_content`."""
    return sealer.seal(encode(carried), KIND)


def open_carried(sealer: Sealer, encrypted: object) -> Carried | None:
    """Return what was sealed; None for any other text, and for one that can't be opened here."""
    if not isinstance(encrypted, str) or encrypted.split(".", 3)[2:3] != [KIND]:
        return None
    try:
        return _decode(sealer.open(encrypted).payload)
    except (SealError, msgspec.MsgspecError):
        return None


def placeholder(signature: str) -> dict[str, Any]:
    """Return the extra content of a call with this thought signature."""
    return {"google": {"thought_signature": signature}}


class KeptDetails:
    """The reasoning details of a stream. Fragments of one text are joined; everything else is unchanged."""

    __slots__ = ("_details", "_opaque", "_texts", "field")

    def __init__(self, field: DetailsField) -> None:
        self.field = field
        self._details: list[dict[str, Any]] = []
        self._texts: list[dict[str, list[str]]] = []  # for each detail: the pieces of its texts, by field
        self._opaque = False

    @property
    def opaque(self) -> bool:
        """True if there is more than text, which has a field of its own."""
        return self._opaque

    def add(self, detail: dict[str, Any]) -> None:
        """Add the next detail, or the next fragment of the last one."""
        self._opaque = self._opaque or bool(detail.get("signature") or detail.get("data"))
        texts = {name: detail[name] for name in _TEXTS if isinstance(detail.get(name), str)}
        last = self._details[-1] if self._details else None
        same = last is not None and all(last.get(name) == detail.get(name) for name in _SAME)
        if same and "index" not in detail and last and last.get("signature") and any(texts.values()):
            same = False  # a signature ends its text
        if last is not None and texts and same:
            last.update({name: value for name, value in detail.items() if value is not None})
            for name, text in texts.items():
                self._texts[-1].setdefault(name, []).append(text)
        else:
            self._details.append(dict(detail))
            self._texts.append({name: [text] for name, text in texts.items()})

    def whole(self) -> list[dict[str, Any]]:
        """Return all details, each as one object."""
        return [
            {**detail, **{name: "".join(pieces) for name, pieces in texts.items()}}
            for detail, texts in zip(self._details, self._texts, strict=True)
        ]


class KeptAudio:
    """The sound of an answer: data and transcript may come in pieces, other fields in any of the pieces."""

    __slots__ = ("_fields", "_pieces")

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._pieces: dict[str, list[str]] = {}

    def add(self, audio: dict[str, Any]) -> None:
        """Add the next piece, or the whole sound."""
        for name, value in audio.items():
            if name in _PIECES and isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)
            elif value is not None:
                self._fields[name] = value

    def whole(self) -> dict[str, Any]:
        """Return the sound as one object."""
        return self._fields | {name: "".join(pieces) for name, pieces in self._pieces.items()}


_PIECES: Final = ("data", "transcript")
_TEXTS: Final = ("text", "summary", "thinking")
_SAME: Final = ("type", "index")
