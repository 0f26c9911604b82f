"""The fields that only Converse has, on their way from its clients to its servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from msgspec import field

from openresponses_bridge.dialects.base import BaseCarried, carried_in, object_in
from openresponses_bridge.dialects.bedrock_converse.types import DIALECT, GUARDED
from openresponses_bridge.protocol.request import CreateResponse, ReasoningOptions

ADDITIONAL: Final = "additionalModelRequestFields"


class CarriedFields(BaseCarried):
    """The fields of one request that only Converse has."""

    dialect: ClassVar[str] = DIALECT

    body: dict[str, Any] = field(default_factory=dict)
    """Fields of the body, such as `guardrailConfig` and `additionalModelRequestFields`."""
    inference: dict[str, Any] = field(default_factory=dict)
    """Fields of `inferenceConfig` that are not known here."""
    output: dict[str, Any] = field(default_factory=dict)
    """`outputConfig` as the client sent it; `text` is what was read of it."""
    text: Any = None
    reasoning: ReasoningOptions | None = None
    """The effort that was read from fields of `body` or `output`."""
    top_k: int | None = None
    """The value of `top_k` that was read from them."""
    tier: dict[str, Any] | None = None
    """`serviceTier` as the client sent it."""
    system: list[dict[str, Any]] = field(default_factory=list)
    """The blocks of the system prompt; `instructions` has their texts (`system_text`)."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    """The entries of `toolConfig.tools`, in order."""
    blocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Place → fields of the block there."""
    wholes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Place → the block there as the client sent it; the item has only its text, or less."""
    points: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Place → the cache point after the block there."""
    inline: set[int] = field(default_factory=set)
    """The indexes of items that are system messages and keep their place."""


_JOINT: Final = "\n\n"
NOTHING: Final = CarriedFields()


def carried_by(request: CreateResponse) -> CarriedFields:
    """Return the fields for this API that a request carries."""
    return carried_in(request, NOTHING)


def system_text(blocks: Iterable[Mapping[str, Any]]) -> str:
    """Return the texts of a system prompt as `instructions`, including those for a guardrail."""
    texts = (each.get("text") or object_in(object_in(each, GUARDED), "text").get("text") for each in blocks)
    return _JOINT.join(text for text in texts if isinstance(text, str))
