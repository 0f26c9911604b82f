"""Carries fields that only one API has through the protocol: the `client/` of its dialect writes them, its
`upstream/` restores them. At any other upstream they are losses, or they are refused if the rest of the
request would mean something else without them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from msgspec import UNSET, Struct, field

from openresponses_bridge.protocol.request import CreateResponse, Native


def place(item: int, part: int | None = None) -> str:
    """Return the path of an item of the input, or of one of its parts, as a JSON name."""
    return f"{item}" if part is None else f"{item}.{part}"


class BaseCarried(Struct, kw_only=True):
    """The base of the fields that a dialect carries; `dialect` is its name."""

    dialect: ClassVar[str]

    items: int = 0
    """The number of items in the input. The places of fields are invalid if an input has another number."""
    names: dict[str, None] = field(default_factory=dict)
    """The names of the fields in reports of losses."""
    needed: dict[str, str] = field(default_factory=dict)
    """The paths of fields without which the rest means something else → the reasons why other upstreams
    refuse them."""

    @property
    def unthinking(self) -> bool:
        """True if the client wants an answer without thinking, which is the default of its API."""
        return False

    def report(self, names: Iterable[str]) -> None:
        """Add names of fields that any other upstream loses."""
        self.names.update(dict.fromkeys(names))

    def native(self) -> Native:
        """Return the value of `CreateResponse.native`."""
        return Native(self.dialect, list(self.names), self, self.unthinking, self.needed)


C = TypeVar("C", bound=Struct)


def carried_in(request: CreateResponse, nothing: C) -> C:
    """Return the fields of this type that a request carries; `nothing` if it has none."""
    fields = request.native.said if request.native is not UNSET else None
    return fields if isinstance(fields, type(nothing)) else nothing
