"""Values of an SDK's own types, one for each of their fields: what a client can send, and what it can read.

Types are pydantic models, TypedDicts, enums, literals, unions, and containers of these. A value has one field
under test, and otherwise only the fields that its objects need to be accepted.
"""

from __future__ import annotations

import datetime
import types
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, Literal, NotRequired, Required, Union, get_args, get_origin
from typing import get_type_hints as hints_of

Path = tuple[str, ...]
Sample = tuple[Path, Any]
"""The path of a field, and a JSON value that has the field."""
Objects = Mapping[str, Mapping[str, Any]]
"""The name of a type → fields that every object of it gets."""
_VALUES: Final[dict[Any, Any]] = {
    bool: True,
    int: 3,
    float: 0.5,
    str: "text",
    bytes: "Ynl0ZXM=",
    datetime.datetime: "2026-01-02T03:04:05Z",
    Any: {"a": 1},
    object: {"a": 1},
    dict: {"a": 1},
    list: ["text"],
}


class TypedFields:
    """Makes a value for each field of a type, at any depth. `needed` has the other fields that objects need;
    `ready` has values by the names of types whose fields are not tried; `named` has values by the names of
    fields. With `whole`, objects have all fields that their types require."""

    def __init__(
        self,
        needed: Objects,
        ready: Mapping[str, Any],
        named: Mapping[str, Any] | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self._needed = needed
        self._ready = ready
        self._named = named or {}
        self._whole = whole
        self._firsts: dict[tuple[type[Any], str], Any] = {}

    def of(self, kind: Any, within: tuple[Any, ...] = ()) -> Iterator[Sample]:
        """(the path of a field, a JSON value of this type with only that field). A type is not searched again
        within itself."""
        name, origin, inner = getattr(kind, "__name__", ""), get_origin(kind), get_args(kind)
        if name in self._ready:
            yield (), self._ready[name]
        elif kind in _VALUES:
            yield (), _VALUES[kind]
        elif hasattr(kind, "__value__"):  # an alias of a type
            yield from self.of(kind.__value__, within)
        elif origin in (Annotated, Required, NotRequired):
            yield from self.of(inner[0], within)
        elif origin is Literal:
            yield (), inner[-1]
        elif origin in (Union, types.UnionType):
            yield from self._union(inner, within)
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            yield from ((path, {"a": value}) for path, value in self.of(inner[1], within))
        elif isinstance(origin, type) and issubclass(origin, Iterable):
            yield from ((path, [value]) for path, value in self.of(inner[0], within))
        elif isinstance(kind, type) and issubclass(kind, Enum):
            yield from (((), each.value) for each in list(kind)[-1:])
        elif isinstance(kind, type):
            yield from self._object(kind, within)

    def _union(self, kinds: Iterable[Any], within: tuple[Any, ...]) -> Iterator[Sample]:
        """The objects among the kinds, each with its fields; if there are none, the first kind."""
        samples = [sample for kind in kinds if kind is not types.NoneType for sample in self.of(kind, within)]
        objects = [sample for sample in samples if sample[0]]
        yield from objects or samples[:1]

    def _object(self, kind: Any, within: tuple[Any, ...]) -> Iterator[Sample]:
        needed = dict(self._needed.get(kind.__name__, {}))
        names = _fields_of(kind)
        if self._whole and kind not in within:
            for wire, (hint, required) in names.items():
                if required and wire not in needed:
                    needed[wire] = self._first(kind, wire, hint, (*within, kind))
        if not names:
            yield (), needed
        for wire, (hint, _) in names.items() if kind not in within else ():
            if wire in self._named:
                yield (wire,), needed | {wire: self._named[wire]}
                continue
            for path, value in self.of(hint, (*within, kind)):
                yield (wire, *path), needed | {wire: value}

    def _first(self, kind: type[Any], wire: str, hint: Any, within: tuple[Any, ...]) -> Any:
        """Any value of a field."""
        if wire in self._named:
            return self._named[wire]
        if (kind, wire) not in self._firsts:
            self._firsts[kind, wire] = next((value for _, value in self.of(hint, within)), None)
        return self._firsts[kind, wire]


@cache
def _fields_of(kind: Any) -> dict[str, tuple[Any, bool]]:
    """The name of each field on the wire → (its type, whether an object must have it)."""
    fields = getattr(kind, "model_fields", None)
    if fields is not None:
        return {each.alias or name: (each.annotation, each.is_required()) for name, each in fields.items()}
    known: frozenset[str] = getattr(kind, "__required_keys__", frozenset())
    hints = hints_of(kind, include_extras=True)
    marks = {name: get_origin(hint) for name, hint in hints.items()}
    return {
        name: (hint, marks[name] is Required or (name in known and marks[name] is None))
        for name, hint in hints.items()
    }
