"""The fields of a Chat server's answers that only clients of its API know (`ResponseStream.native`): fields
of the body by their own names, those of its choice within `choice`, of its message within `message`, of its
counts within `usage`. In a stream, they are read from the first chunk and from those that end it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct, defstruct

from openresponses_bridge.dialects.base import TIER, object_in, other_fields
from openresponses_bridge.dialects.chat_completions.carried import CHOICE, MESSAGE, USAGE
from openresponses_bridge.dialects.chat_completions.types import (
    ChatChoice,
    ChatDelta,
    ChatOutput,
    ChatUsage,
    CompletionTokensDetails,
    PromptTokensDetails,
)


def _names(*structs: type[Struct]) -> frozenset[str]:
    return frozenset(name for struct in structs for name in struct.__struct_fields__)


_OURS: Final = frozenset({"id", "object", "created", "model", "obfuscation", CHOICE, MESSAGE, TIER})
_OF_BODY: Final = _names(ChatOutput) | _OURS
_OF_CHOICE: Final = _names(ChatChoice)
_OF_MESSAGE: Final = _names(ChatDelta)
_MESSAGES: Final = ("delta", MESSAGE)
_OF_USAGE: Final = _names(ChatUsage)
_DETAILS: Final = {
    "prompt_tokens_details": _names(PromptTokensDetails),
    "completion_tokens_details": _names(CompletionTokensDetails),
}


def _exactly(name: str, names: Iterable[str], **inner: Any) -> type[Struct]:
    """Return a struct that refuses JSON with any other fields."""
    fields: list[tuple[str, Any, Any]] = [(each, inner.get(each, Any), None) for each in sorted(names)]
    return defstruct(name, fields, forbid_unknown_fields=True)


_DETAILS_ONLY: Final = {name: _exactly(name, names) | None for name, names in _DETAILS.items()}
_USAGE_ONLY: Final = _exactly(USAGE, _OF_USAGE, **_DETAILS_ONLY) | None
_MESSAGES_ONLY: Final[dict[str, Any]] = dict.fromkeys(_MESSAGES, _exactly(MESSAGE, _OF_MESSAGE) | None)
_CHOICES_ONLY: Final[Any] = list.__class_getitem__(_exactly(CHOICE, _OF_CHOICE, **_MESSAGES_ONLY))
_BODY_ONLY: Final = _exactly("body", _OF_BODY, choices=_CHOICES_ONLY | None, usage=_USAGE_ONLY)
head_of: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(_BODY_ONLY).decode
"""Returns the fields of a chunk or a completion. Raises `msgspec.ValidationError` for one with further
fields."""


def said_by(frame: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the further fields of a chunk or a completion, and of its choice with this number; the counts
    belong to the first choice."""
    fields = other_fields(frame, _OF_BODY)
    choice = _choice(frame, number)
    if own := other_fields(choice, _OF_CHOICE):
        fields[CHOICE] = own
    for name in _MESSAGES:
        if own := other_fields(object_in(choice, name), _OF_MESSAGE):
            fields[MESSAGE] = own
    usage = {} if number else _counts(object_in(frame, USAGE))
    return {**fields, USAGE: usage} if usage else fields


def _choice(frame: dict[str, Any], number: int) -> dict[str, Any]:
    choices = frame.get("choices")
    for position, choice in enumerate(choices if isinstance(choices, list) else ()):
        if isinstance(choice, dict) and choice.get("index", position) == number:
            return choice
    return {}


def _counts(usage: dict[str, Any]) -> dict[str, Any]:
    within = {name: other_fields(object_in(usage, name), read) for name, read in _DETAILS.items()}
    return other_fields(usage, _OF_USAGE) | {name: each for name, each in within.items() if each}
