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
"""The fields of the body that belong to no beta. All others are sent together with the header that names
their beta, or not at all (law N2)."""


class CarriedFields(BaseCarried):
    """The fields of one request that only the Messages API has."""

    dialect: ClassVar[str] = DIALECT

    body: dict[str, Any] = field(default_factory=dict)
    """Fields of the body."""
    thinking: dict[str, Any] | None = None
    """`thinking`, as the client sent it."""
    output_config: dict[str, Any] = field(default_factory=dict)
    """`output_config`, as the client sent it, without the format."""
    system: list[dict[str, Any]] = field(default_factory=list)
    """The blocks of the system prompt; `instructions` has their texts, joined by `JOINT`."""
    billing: dict[str, Any] | None = None
    """The first block of the system prompt, if it is for Anthropic's billing; `system` does not have it."""
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Tool name → fields of the tool."""
    declared: list[Any] | None = None
    """All tools, if some of them are deferred and not loaded yet. The API itself handles these; other
    upstreams get only the tools in `offered`."""
    changes_tools: bool = False
    """True if tools are added or removed by messages of the system."""
    offered: list[Any] = field(default_factory=list)
    """The tools that are not deferred, then those that were loaded, in the order of loading."""
    search: dict[str, Any] | None = None
    """The search of the web, as the client declared it, without its cache breakpoint, which is in `tools`."""
    blocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Place → fields of the block."""
    inline: set[int] = field(default_factory=set)
    """The indexes of items that are system messages and keep their place."""

    def add(self, where: str, fields: dict[str, Any], kind: str) -> None:
        """Keep the fields of a block of this kind that have no counterpart."""
        if fields:
            self.blocks[where] = self.blocks.get(where, {}) | fields
            cache = CACHE_OF_PARTS if "." in where else CACHE
            self.report(cache if name == CACHE else f"{kind}.{name[:64]}" for name in fields)

    def tool_fields(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the further fields of the tool with this body. The name of a hosted tool may be of any
        type."""
        name = body.get("name")
        return self.tools.get(name, {}) if isinstance(name, str) else {}

    @property
    def caches(self) -> bool:
        """True if the client has set cache breakpoints itself."""
        placed = (self.body, *self.system, *self.tools.values(), *self.blocks.values())
        return any(CACHE in fields for fields in placed)

    @property
    def is_restorable(self) -> bool:
        """True if a conversation with these messages, system prompt and tools can be continued without these
        fields: the protocol can express everything in them except cache breakpoints."""
        placed = (*self.system, *self.tools.values(), *self.blocks.values())
        plain = all(_PLAIN.issuperset(fields) for fields in placed)
        return plain and self.declared is None and self.search is None and not self.inline

    @property
    def unthinking(self) -> bool:
        """True if the client asks for no thinking, which is the default of this API."""
        return self.thinking is not None and self.thinking.get("type") == "disabled"


JOINT: Final = "\n\n"
"""The separator of the texts of a system prompt in `instructions`."""
NOTHING: Final = CarriedFields()


def is_native(request: CreateResponse) -> bool:
    """Return True if a client of this API made the request."""
    return request.native is not UNSET and request.native.dialect == DIALECT


def carried_by(request: CreateResponse) -> CarriedFields:
    """Return the fields for this API that a request carries."""
    return carried_in(request, NOTHING)
