"""Carries fields that only the Gemini API has through the protocol: `client/` writes them, `upstream/`
restores them. At any other upstream they are losses."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct, field

from openresponses_bridge.protocol.request import CreateResponse, Native

DIALECT: Final = "gemini"


def place(item: int, part: int | None = None) -> str:
    """The path of an item of the input, or of one of its parts, as a JSON name."""
    return f"{item}" if part is None else f"{item}.{part}"


class CarriedFields(Struct):
    """The fields of one request that only the Gemini API has."""

    body: dict[str, Any] = field(default_factory=dict)
    """Fields of the body, as `safetySettings` and `cachedContent`."""
    generation: dict[str, Any] = field(default_factory=dict)
    """Fields of `generationConfig`; `thinkingConfig` as the client sent it, whatever was read of it."""
    tool_config: dict[str, Any] = field(default_factory=dict)
    """Fields of `toolConfig`; those of `functionCallingConfig` that have no counterpart."""
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Place → fields of the part, as `videoMetadata`; of a call's output `response`, as it was sent."""
    items: int = 0
    """Number of items in the input. Places are useless when the input has another number."""
    names: dict[str, None] = field(default_factory=dict)
    """Names of the fields in reports of losses."""

    def add(self, where: str, fields: dict[str, Any], kind: str) -> None:
        """Keep the fields of a part of this kind that have no counterpart."""
        if fields:
            self.parts[where] = self.parts.get(where, {}) | fields
            self.report(f"{kind}.{name[:64]}" for name in fields)

    def report(self, names: Any) -> None:
        """Add names of fields that any other upstream loses."""
        self.names.update(dict.fromkeys(names))

    def native(self) -> Native:
        """The value of `CreateResponse.native`."""
        return Native(DIALECT, list(self.names), self)


NOTHING: Final = CarriedFields()


def carried_by(request: CreateResponse) -> CarriedFields:
    """The fields that a request carries for this API."""
    said = request.native.said if request.native else None
    return said if isinstance(said, CarriedFields) else NOTHING
