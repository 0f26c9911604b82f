"""Objects outside the vocabulary, kept unchanged.

Extensions (`slug:name`), progress events of hosted tools and new objects of newer servers become one of these
wrappers. They encode to exactly the JSON value that they were decoded from. New fields of known objects are
in their `extra`.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType, field

OURS: Final = "openresponses-bridge:"
"""Prefix of the fields that the bridge itself writes. Such fields of a client are ignored."""
EXTRA: Final = f"{OURS}extra"
"""The name of `Extensible.extra` while the codec decodes or encodes; no JSON outside has this name."""
Extra = dict[str, Any] | UnsetType


class Extensible(Struct, frozen=True, kw_only=True):
    """A known object. `extra` has the fields that its struct does not have, UNSET if there are none; in JSON
    they are fields of the object like all others."""

    extra: Extra = field(default=UNSET, name=EXTRA)


class Unknown:
    """A JSON object of a type that this vocabulary does not have. `raw` is the whole object."""

    __slots__ = ("raw",)

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    @property
    def type(self) -> str:
        kind = self.raw.get("type")
        return kind if isinstance(kind, str) else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and type(other) is type(self) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash((type(self), self.type))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"


class UnknownEvent(Unknown):
    """An extension or unlisted event. It has at least `type` and `sequence_number`."""

    __slots__ = ()

    @property
    def sequence_number(self) -> int:
        """The event's number, -1 when it has none."""
        number = self.raw.get("sequence_number")
        return number if isinstance(number, int) else -1


class UnknownItem(Unknown):
    """An extension item, or the item of a tool that has no struct here."""

    __slots__ = ()

    @property
    def id(self) -> str:
        value = self.raw.get("id")
        return value if isinstance(value, str) else ""

    @property
    def status(self) -> str | None:
        value = self.raw.get("status")
        return value if isinstance(value, str) else None


class UnknownPart(Unknown):
    """A content part of an unlisted type."""

    __slots__ = ()


class UnknownAnnotation(Unknown):
    """A citation of an unlisted type."""

    __slots__ = ()


class UnknownTool(Unknown):
    """A hosted or extension tool, kept as declared."""

    __slots__ = ()


class UnknownToolChoice(Unknown):
    """A tool choice beyond the published three (`{"type": "custom"}`, `{"type": "mcp"}` …)."""

    __slots__ = ()


class UnknownFormat(Unknown):
    """A text format beyond text, json_object and json_schema (a grammar, say)."""

    __slots__ = ()


def enc_hook(value: object) -> Any:
    """Encode an Unknown as the object that it was decoded from: msgspec's encoder hook."""
    if isinstance(value, Unknown):
        return value.raw
    raise NotImplementedError(f"cannot encode {type(value).__name__}")
