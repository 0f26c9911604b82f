"""Carries fields that only the Interactions API has through the protocol: `client/` writes them, `upstream/`
restores them. At any other upstream they are losses, or refused where the rest of the request would mean
something else without them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from openresponses_bridge.dialects.interactions.types import DIALECT
from openresponses_bridge.protocol.request import CreateResponse, Native


def place(item: int, part: int | None = None) -> str:
    """The path of an item of the input, or of one of its parts, as a JSON name."""
    return f"{item}" if part is None else f"{item}.{part}"


class CarriedFields(Struct):
    """The fields of one request that only the Interactions API has."""

    body: dict[str, Any] = field(default_factory=dict)
    """Fields of the body, as `safety_settings` and `environment`."""
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
    """The fields that a request carries for this API, also one that was stored as JSON meanwhile."""
    if not request.native or request.native.dialect != DIALECT:
        return NOTHING
    said = request.native.said
    return said if isinstance(said, CarriedFields) else msgspec.convert(said, CarriedFields)
