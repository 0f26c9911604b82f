"""The fields that only the Gemini API has, on their way from its clients to its servers."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import Struct, field

from openresponses_bridge.dialects.base import BaseCarried, carried_in
from openresponses_bridge.protocol.request import CreateResponse

DIALECT: Final = "gemini"


class CarriedPart(Struct, frozen=True):
    """What the protocol can't express of a client's part: its `kind`, the fields of the object under that
    name, and those beside it."""

    kind: str
    within: dict[str, Any] = {}
    around: dict[str, Any] = {}


class CarriedFields(BaseCarried):
    """The fields of one request that only the Gemini API has."""

    dialect: ClassVar[str] = DIALECT

    body: dict[str, Any] = field(default_factory=dict)
    """Fields of the body, such as `safetySettings` and `cachedContent`."""
    tier: str | None = None
    """`serviceTier` as the client sent it."""
    system: dict[str, Any] | None = None
    """`systemInstruction` as the client sent it; `instructions` has its text."""
    instructions: str = ""
    generation: dict[str, Any] = field(default_factory=dict)
    """Fields of `generationConfig`; `thinkingConfig` as the client sent it, with what was read of it."""
    format: dict[str, Any] = field(default_factory=dict)
    """The fields about the form of the answer, as the client sent them; `text` is what was read of them."""
    text: Any = None
    tool_config: dict[str, Any] = field(default_factory=dict)
    """`toolConfig` as the client sent it; `choice` is what was read of it."""
    choice: Any = None
    functions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name → the function's declaration as the client sent it."""
    search: dict[str, Any] | None = None
    """`googleSearch` as the client sent it."""
    tools: dict[str, list[Any]] = field(default_factory=dict)
    """Type of one of Google's tools → the values of those tools, in order."""
    parts: dict[str, CarriedPart] = field(default_factory=dict)
    """Place → what the protocol can't express of the part there."""


NOTHING: Final = CarriedFields()


def carried_by(request: CreateResponse) -> CarriedFields:
    """Return the fields for this API that a request carries."""
    return carried_in(request, NOTHING)
