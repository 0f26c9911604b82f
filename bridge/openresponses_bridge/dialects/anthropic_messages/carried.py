"""Carries what only the Messages API can express past the protocol: written by `client/`, restored by
`upstream/`. For any other upstream these fields are losses."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Struct, field

from openresponses_bridge.protocol.request import CreateResponse, Native

DIALECT: Final = "anthropic"
CACHE: Final = "cache_control"
PASSED: Final = (CACHE, "context_management", "compaction", "inference_geo", "speed")
"""Fields of the body that go on to the API as they are. Others name things of an account (containers, files,
credits, servers to connect to), and the account is the operator's."""


def place(item: int, part: int | None = None) -> str:
    """The path of an item of the input, or of one of its parts, as a JSON name."""
    return f"{item}" if part is None else f"{item}.{part}"


class CarriedFields(Struct):
    """One request's. `body`: fields of the body. `thinking`, `output_config`: as the client has them, without
    the format. `system`: the blocks of the system prompt, whose texts `instructions` joins by `JOINT`.
    `tools`: fields of tools, by their names. `blocks`: fields of blocks, by their places. `inline`: items
    that are system messages and stay where they stand. `items`: how many items the input has: places are of
    no use when it has others. `names`: what it is called in reports of losses."""

    body: dict[str, Any] = field(default_factory=dict)
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] = field(default_factory=dict)
    system: list[dict[str, Any]] = field(default_factory=list)
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    blocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    inline: set[int] = field(default_factory=set)
    items: int = 0
    names: dict[str, None] = field(default_factory=dict)

    def add(self, where: str, fields: dict[str, Any], kind: str) -> None:
        """Fields of a block of this kind that have no counterpart."""
        if fields:
            self.blocks[where] = self.blocks.get(where, {}) | fields
            self.report(CACHE if name == CACHE else f"{kind}.{name[:64]}" for name in fields)

    def tool_fields(self, body: dict[str, Any]) -> dict[str, Any]:
        """The fields of the tool that has this body; a hosted one may be named by anything."""
        name = body.get("name")
        return self.tools.get(name, {}) if isinstance(name, str) else {}

    def report(self, names: Any) -> None:
        """These are lost anywhere else."""
        self.names.update(dict.fromkeys(names))

    @property
    def caches(self) -> bool:
        """Whether the client has placed points of the cache itself."""
        placed = (self.body, *self.system, *self.tools.values(), *self.blocks.values())
        return any(CACHE in fields for fields in placed)

    def native(self) -> Native:
        """For the request."""
        return Native(DIALECT, list(self.names), self)


JOINT: Final = "\n\n"
"""What stands between the texts of a system prompt."""
NOTHING: Final = CarriedFields()


def is_native(request: CreateResponse) -> bool:
    """Whether a client of this API made the request."""
    return request.native is not UNSET and request.native.dialect == DIALECT


def carried_by(request: CreateResponse) -> CarriedFields:
    """What a request carries for this API."""
    said = request.native.said if request.native is not UNSET and is_native(request) else None
    return said if isinstance(said, CarriedFields) else NOTHING
