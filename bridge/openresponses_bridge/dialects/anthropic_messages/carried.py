"""The fields that only the Messages API has, on their way from its clients to its servers."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import UNSET, field

from openresponses_bridge.dialects.anthropic_messages.types import DIALECT
from openresponses_bridge.dialects.base import CACHE_OF_PARTS, BaseCarried, carried_in
from openresponses_bridge.protocol.request import CreateResponse

CACHE: Final = "cache_control"
_PLAIN: Final = frozenset({"type", "text", CACHE})
STABLE: Final = frozenset({CACHE, "container", "diagnostics", "inference_geo", "speed"})
"""Fields of the body that belong to no beta. All others go together with the header that names theirs, or not
at all (law N2)."""


class CarriedFields(BaseCarried):
    """The fields of one request that only the Messages API has."""

    dialect: ClassVar[str] = DIALECT

    body: dict[str, Any] = field(default_factory=dict)
    """Fields of the body."""
    thinking: dict[str, Any] | None = None
    """As the client sent it."""
    output_config: dict[str, Any] = field(default_factory=dict)
    """As the client sent it, without the format."""
    system: list[dict[str, Any]] = field(default_factory=list)
    """The blocks of the system prompt; `instructions` has their texts, joined by `JOINT`."""
    billing: dict[str, Any] | None = None
    """The first block of the system prompt, if it is for Anthropic's billing; `system` does not have it."""
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Tool name → fields of the tool."""
    declared: list[Any] | None = None
    """All tools, if some of them are deferred and not loaded yet. The API itself knows what that means; to
    others only `offered` are given."""
    changes_tools: bool = False
    """Some come or go in messages of the system."""
    offered: list[Any] = field(default_factory=list)
    """The other tools, then those that were loaded, in the order in which that was done."""
    search: dict[str, Any] | None = None
    """The search of the web as it was declared, without its cache breakpoint, which `tools` has."""
    blocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Place → fields of the block."""
    inline: set[int] = field(default_factory=set)
    """Indexes of the items that are system messages and stay in their place."""

    def add(self, where: str, fields: dict[str, Any], kind: str) -> None:
        """Keep the fields of a block of this kind that have no counterpart."""
        if fields:
            self.blocks[where] = self.blocks.get(where, {}) | fields
            cache = CACHE_OF_PARTS if "." in where else CACHE
            self.report(cache if name == CACHE else f"{kind}.{name[:64]}" for name in fields)

    def tool_fields(self, body: dict[str, Any]) -> dict[str, Any]:
        """The fields of the tool with this body. The name of a hosted tool may be of any type."""
        name = body.get("name")
        return self.tools.get(name, {}) if isinstance(name, str) else {}

    @property
    def caches(self) -> bool:
        """True if the client has set cache breakpoints itself."""
        placed = (self.body, *self.system, *self.tools.values(), *self.blocks.values())
        return any(CACHE in fields for fields in placed)

    @property
    def is_restorable(self) -> bool:
        """True if a conversation with these messages, system prompt and tools can be continued without them:
        nothing but cache points is in them that the protocol has no place for."""
        placed = (*self.system, *self.tools.values(), *self.blocks.values())
        plain = all(_PLAIN.issuperset(fields) for fields in placed)
        return plain and self.declared is None and self.search is None and not self.inline

    @property
    def unthinking(self) -> bool:
        """True if the client has said so, as clients of this API do by default."""
        return self.thinking is not None and self.thinking.get("type") == "disabled"


JOINT: Final = "\n\n"
"""Separates the texts of a system prompt in `instructions`."""
NOTHING: Final = CarriedFields()


def is_native(request: CreateResponse) -> bool:
    """Return True if a client of this API made the request."""
    return request.native is not UNSET and request.native.dialect == DIALECT


def carried_by(request: CreateResponse) -> CarriedFields:
    """The fields that a request carries for this API."""
    return carried_in(request, NOTHING)
