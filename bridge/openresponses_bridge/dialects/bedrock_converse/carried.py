"""The fields that only Converse has, on their way from its clients to its servers."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import field

from openresponses_bridge.dialects.base import BaseCarried, carried_in
from openresponses_bridge.dialects.bedrock_converse.types import DIALECT
from openresponses_bridge.protocol.request import CreateResponse

ADDITIONAL: Final = "additionalModelRequestFields"


class CarriedFields(BaseCarried):
    """The fields of one request that only Converse has."""

    dialect: ClassVar[str] = DIALECT

    body: dict[str, Any] = field(default_factory=dict)
    """Fields of the body, as `guardrailConfig` and `additionalModelRequestFields`."""
    inference: dict[str, Any] = field(default_factory=dict)
    """Fields of `inferenceConfig` that are not known here."""
    output: dict[str, Any] = field(default_factory=dict)
    """`outputConfig` as the client sent it; `text` is what was read of it."""
    text: Any = None
    tier: dict[str, Any] | None = None
    """`serviceTier` as the client sent it."""
    system: list[dict[str, Any]] = field(default_factory=list)
    """The blocks of the system prompt; `instructions` has their texts, joined by `JOINT`."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    """The entries of `toolConfig.tools` in their order, if they have more than the protocol's tools."""
    blocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Place → fields of the block there."""
    points: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Place → the cache point behind the block there."""
    inline: set[int] = field(default_factory=set)
    """Indexes of the items that are system messages and stay in their place."""


JOINT: Final = "\n\n"
"""Separates the texts of a system prompt in `instructions`."""
NOTHING: Final = CarriedFields()


def carried_by(request: CreateResponse) -> CarriedFields:
    """The fields that a request carries for this API."""
    return carried_in(request, NOTHING)
