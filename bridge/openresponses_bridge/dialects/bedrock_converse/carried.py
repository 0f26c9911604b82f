"""Carries fields that only Converse has through the protocol: `client/` writes them, `upstream/` restores
them. At any other upstream they are losses, or refused where the rest of the request would mean something
else without them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, field

from openresponses_bridge.dialects.bedrock_converse.types import DIALECT
from openresponses_bridge.protocol.request import CreateResponse, Native

ADDITIONAL: Final = "additionalModelRequestFields"


def place(item: int, part: int | None = None) -> str:
    """The path of an item of the input, or of one of its parts, as a JSON name."""
    return f"{item}" if part is None else f"{item}.{part}"


class CarriedFields(Struct):
    """The fields of one request that only Converse has."""

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
    items: int = 0
    """Number of items in the input. Places are useless when the input has another number."""
    names: dict[str, None] = field(default_factory=dict)
    """Names of the fields in reports of losses."""
    needed: dict[str, str] = field(default_factory=dict)
    """The value of `Native.needed`."""

    def report(self, names: Iterable[str]) -> None:
        """Add names of fields that any other upstream loses."""
        self.names.update(dict.fromkeys(names))

    def native(self) -> Native:
        """The value of `CreateResponse.native`."""
        return Native(DIALECT, list(self.names), self, needed=self.needed)


JOINT: Final = "\n\n"
"""Separates the texts of a system prompt in `instructions`."""
NOTHING: Final = CarriedFields()


def carried_by(request: CreateResponse) -> CarriedFields:
    """The fields that a request carries for this API."""
    said = request.native.said if request.native else None
    return said if isinstance(said, CarriedFields) else NOTHING
