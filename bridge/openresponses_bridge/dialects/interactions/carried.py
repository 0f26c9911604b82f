"""The fields that only the Interactions API has, on their way from its clients to its servers."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import field

from openresponses_bridge.dialects.base import BaseCarried, carried_in
from openresponses_bridge.dialects.interactions.types import DIALECT
from openresponses_bridge.protocol.request import CreateResponse


class CarriedFields(BaseCarried):
    """The fields of one request that only the Interactions API has."""

    dialect: ClassVar[str] = DIALECT

    body: dict[str, Any] = field(default_factory=dict)
    """Fields of the body, such as `safety_settings` and `environment`."""
    generation: dict[str, Any] = field(default_factory=dict)
    """Fields of `generation_config` that were not read."""
    choice: Any = None
    """`tool_choice` as the client sent it; `chosen` is what was read of it, as JSON."""
    chosen: Any = None
    format: dict[str, Any] = field(default_factory=dict)
    """`response_format` and `response_mime_type` as the client sent them; `text` is what was read of them, as
    JSON."""
    text: Any = None
    labels: dict[str, Any] = field(default_factory=dict)
    """`labels` as the client sent them."""
    tier: str | None = None
    """`service_tier` as the client sent it."""
    functions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name → the function's declaration as the client sent it."""
    tools: dict[str, list[Any]] = field(default_factory=dict)
    """Type of a tool in the protocol → those tools as the client sent them, in order."""
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Place → the content or the step there as the client sent it, without its text and data."""


NOTHING: Final = CarriedFields()


def carried_by(request: CreateResponse) -> CarriedFields:
    """Return the fields for this API that a request carries."""
    return carried_in(request, NOTHING)
