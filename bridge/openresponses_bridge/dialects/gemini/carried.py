"""Carries fields that only the Gemini API has through the protocol: `client/` writes them, `upstream/`
restores them. At any other upstream they are losses, or refused where the rest of the request would mean
something else without them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, field

from openresponses_bridge.protocol.request import CreateResponse, Native

DIALECT: Final = "gemini"


def place(item: int, part: int | None = None) -> str:
    """The path of an item of the input, or of one of its parts, as a JSON name."""
    return f"{item}" if part is None else f"{item}.{part}"


class CarriedPart(Struct, frozen=True):
    """A part of the client's as far as the protocol does not have it: its `kind`, the fields of the object
    under that name, and those beside it."""

    kind: str
    within: dict[str, Any] = {}
    around: dict[str, Any] = {}


class CarriedFields(Struct):
    """The fields of one request that only the Gemini API has."""

    body: dict[str, Any] = field(default_factory=dict)
    """Fields of the body, as `safetySettings` and `cachedContent`."""
    tier: str | None = None
    """`serviceTier` as the client sent it."""
    system: dict[str, Any] | None = None
    """`systemInstruction` as the client sent it; `instructions` has its text."""
    instructions: str = ""
    generation: dict[str, Any] = field(default_factory=dict)
    """Fields of `generationConfig`; `thinkingConfig` as the client sent it, whatever was read of it."""
    format: dict[str, Any] = field(default_factory=dict)
    """Those about the form of the answer, as the client sent them; `text` is what was read of them."""
    text: Any = None
    tool_config: dict[str, Any] = field(default_factory=dict)
    """`toolConfig` as the client sent it; `choice` is what was read of it."""
    choice: Any = None
    functions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name → the function's declaration as the client sent it."""
    search: dict[str, Any] | None = None
    """`googleSearch` as the client sent it."""
    tools: dict[str, list[Any]] = field(default_factory=dict)
    """Type of a tool of Google's → the values of those tools, in order."""
    parts: dict[str, CarriedPart] = field(default_factory=dict)
    """Place → what the protocol does not have of the part there."""
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


NOTHING: Final = CarriedFields()


def carried_by(request: CreateResponse) -> CarriedFields:
    """The fields that a request carries for this API."""
    said = request.native.said if request.native else None
    return said if isinstance(said, CarriedFields) else NOTHING
