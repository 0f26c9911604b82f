"""Building structs out of JSON that strict decoding refused.

One walk, two manners. `Strict` keeps unknown types whole and raises on anything else, so it is the
published schema with room for extensions. `Repairing` also fills what is missing with the schema's
zero values and drops what can't be read, and notes each such repair: other servers' streams need it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from bridge.errors import WireError
from bridge.protocol import vocabulary
from bridge.protocol.vocabulary import Slot


class Repair(NamedTuple):
    """One deviation that was put right: where (`$.response.usage`) and what."""

    path: str
    what: str


class SchemaError(WireError):
    """A value that is not what the schema says; `param` is the path without the leading `$.`."""

    http_status = 400
    error_type = "invalid_request_error"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            self.INVALID_SHAPE, f"{what} - at `{path}`", param=path.removeprefix("$").lstrip(".") or None
        )


class _Absent:
    """What a builder answers for a value that can't be read and has no zero."""


ABSENT = _Absent()


class Strict:
    """Raises `SchemaError` at the first deviation."""

    def problem(self, path: str, what: str) -> None:
        raise SchemaError(path, what)


class Repairing:
    """Notes each deviation and goes on."""

    def __init__(self) -> None:
        self.repairs: list[Repair] = []

    def problem(self, path: str, what: str) -> None:
        self.repairs.append(Repair(path, what))


Manner = Strict | Repairing


def build(slot: Slot, value: Any, manner: Manner, path: str = "$") -> Any:
    """The struct (or unknown) that `value` is in this slot; ABSENT when it can't be one."""
    if not isinstance(value, dict):
        if slot.plain is not None and isinstance(value, slot.plain):
            return value
        manner.problem(path, f"Expected `object`, got `{_kind(value)}`")
        return ABSENT
    tag = value.get("type")
    if tag is None and slot.infer is not None:
        tag = slot.infer(value)
    if not isinstance(tag, str):
        manner.problem(path, "Object missing required field `type`")
        return slot.unknown(value)
    struct = slot.structs.get(tag)
    if struct is None:
        return slot.unknown(value)
    return build_struct(struct, value, manner, path)


def build_struct(struct: type[Any], value: dict[str, Any], manner: Manner, path: str = "$") -> Any:
    """`struct` out of `value`, field by field."""
    children = vocabulary.CHILDREN.get(struct, {})
    known: dict[str, Any] = {}
    for field in vocabulary.fields_of(struct):
        where = f"{path}.{field.name}"
        if field.name in value:
            built = _field(children.get(field.name), field, value[field.name], manner, where)
            if built is not ABSENT:
                known[field.name] = built
                continue
        elif field.required:
            manner.problem(path, f"Object missing required field `{field.name}`")
        if field.required:
            known[field.name] = vocabulary.zero(struct, field)
    return struct(**known)


def _field(child: Slot | None, field: vocabulary.Field, raw: Any, manner: Manner, path: str) -> Any:
    if child is not None and isinstance(raw, list):
        return _list(child, raw, manner, path)
    if child is not None and isinstance(raw, dict):
        return build(child, raw, manner, path)
    if field.nested is not None and isinstance(raw, dict):
        return build_struct(field.nested, raw, manner, path)
    try:
        return field.convert(raw)
    except msgspec.ValidationError as error:
        what, _, inner = str(error).partition(" - at `$")
        manner.problem(path + inner.rstrip("`"), what)
        return ABSENT


def _list(child: Slot, raw: list[Any], manner: Manner, path: str) -> list[Any]:
    built = (build(child, element, manner, f"{path}[{index}]") for index, element in enumerate(raw))
    return [element for element in built if element is not ABSENT]


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), type(value).__name__)


_KINDS: dict[type, str] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    list: "array",
    type(None): "null",
}
