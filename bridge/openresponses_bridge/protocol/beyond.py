"""Finds the fields of a request that the protocol does not have, and restores them for upstreams that know
them.

The typed decoders skip such fields. Most requests have none: a second decoder, which rejects unknown names,
shows that. When it rejects a request, a walk over the parsed request finds the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar, Union

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from openresponses_bridge.protocol import vocabulary
from openresponses_bridge.protocol.fields import Field, fields_of
from openresponses_bridge.protocol.request import ForeignFields, Place
from openresponses_bridge.protocol.response import OURS
from openresponses_bridge.protocol.vocabulary import Slot

T = TypeVar("T", bound=Struct)
_Kind = Slot | type[Any]
_LONGEST_NAME: Final = 64  # characters of a foreign name in a report


class _Known(NamedTuple):
    """The names of a struct's fields, and the fields whose objects have known names too."""

    names: frozenset[str]
    objects: dict[str, _Kind]


_KNOWN: dict[type[Any], _Known] = {}
_NAMES: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def decode_exact(
    decoder: msgspec.json.Decoder[T], struct: type[T], data: bytes | str, value: dict[str, Any] | None
) -> T:
    """Decode a request and keep its unknown fields in `beyond`. Raises what the decoder raises. `value` is
    the parsed request, if it was parsed before."""
    request: T = decoder.decode(data)
    if has_known_names(struct, data):
        return with_beyond(request, [])
    return with_beyond(request, fields_beyond(struct, msgspec.json.decode(data) if value is None else value))


def has_known_names(struct: type[Any], data: bytes | str) -> bool:
    """Whether a request that was decoded as `struct` has no other fields. False also when only a walk can
    decide, since the request has objects of unknown types. Raises UnicodeError as decoding does."""
    names = _NAMES.get(struct)
    if names is None:
        names = _NAMES[struct] = msgspec.json.Decoder(_names_of_struct(struct, ()))
    try:
        names.decode(data)
    except msgspec.ValidationError:
        return False
    return True


def fields_beyond(struct: type[Any], value: dict[str, Any]) -> list[ForeignFields]:
    """The fields of a parsed request that `struct` does not have, in the order in which they were sent,
    except those that are null. The request has been decoded as a `struct` before, so its known fields have
    the right types."""
    found: list[ForeignFields] = []
    _walk(struct, value, (), found)
    return found


def with_beyond(request: T, found: list[ForeignFields]) -> T:
    """The request with these fields in `beyond`. A client's own `beyond` and `native` are discarded."""
    if getattr(request, "native", UNSET) is not UNSET:
        request = replace(request, native=UNSET)
    if not found and getattr(request, "beyond", UNSET) is UNSET:
        return request
    return replace(request, beyond=found or UNSET)


def name_of(place: Place, name: str = "") -> str:
    """`tools[0].name`; a long name is cut."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return f"{path}.{name[:_LONGEST_NAME]}".strip(".")


def names_of(beyond: list[ForeignFields] | UnsetType) -> Iterator[str]:
    """The names of all these fields, with their places."""
    for place, fields in beyond or ():
        # a field's name may be empty
        yield from (name_of(place, name or '""') for name in fields)


def restore_fields(body: dict[str, Any], beyond: list[ForeignFields] | UnsetType) -> list[str]:
    """Add the fields to the objects that they came in, unless those have a field of that name. Returns the
    names of the fields whose object no longer exists."""
    lost: list[str] = []
    for found in beyond or ():
        node = _at(body, found.place)
        if isinstance(node, dict):
            node.update({name: value for name, value in found.fields.items() if name not in node})
        else:
            lost += names_of([found])
    return lost


def _at(body: dict[str, Any], place: Place) -> Any:
    """The value at this place. Objects on the way that are missing are created: an object without other
    fields may have been left out."""
    node: Any = body
    may_make = all(isinstance(step, str) for step in place)
    for step in place:
        if may_make and isinstance(node, dict) and node.get(str(step)) is None:
            node[str(step)] = {}
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            return None
    return node


def _walk(kind: _Kind, value: dict[str, Any], place: Place, found: list[ForeignFields]) -> None:
    struct = _struct_of(kind, value) if isinstance(kind, Slot) else kind
    if struct is None:
        return  # kept as it came, with all its fields
    known = _KNOWN.get(struct) or _known(struct)
    if not known.names.issuperset(value):
        foreign = ((name, value[name]) for name in value if name not in known.names)
        kept = {name: what for name, what in foreign if what is not None and not name.startswith(OURS)}
        if kept:
            found.append(ForeignFields(place, kept))
    for name, within in known.objects.items():
        inner = value.get(name)
        if isinstance(inner, dict):
            _walk(within, inner, (*place, name), found)
        elif isinstance(inner, list):
            for index, element in enumerate(inner):
                if isinstance(element, dict):
                    _walk(within, element, (*place, name, index), found)


def _struct_of(slot: Slot, value: dict[str, Any]) -> type[Any] | None:
    tag = value.get("type")
    if tag is None and slot.infer is not None:
        tag = slot.infer(value)
    return slot.structs.get(tag) if isinstance(tag, str) else None


def _known(struct: type[Any]) -> _Known:
    slots = vocabulary.CHILDREN.get(struct, {})
    fields = _fields(struct)
    within = ((each.name, slots.get(each.name) or each.element or each.nested) for each in fields)
    names = {each.name for each in fields} | _echoed(struct)
    if struct.__struct_config__.tag_field is not None:
        names.add(struct.__struct_config__.tag_field)
    objects = {name: kind for name, kind in within if kind is not None}
    known = _KNOWN[struct] = _Known(frozenset(names), objects)
    return known


def _echoed(struct: type[Any]) -> set[str]:
    """The names of the fields that the same object has in an output: clients send outputs back unchanged."""
    tag = struct.__struct_config__.tag
    pairs = ((vocabulary.INPUT_ITEMS, vocabulary.ITEMS), (vocabulary.INPUT_PARTS, vocabulary.PARTS))
    outputs = (outputs.structs.get(tag) for inputs, outputs in pairs if inputs.structs.get(tag) is struct)
    return {name for output in outputs if output for name in output.__struct_encode_fields__}


def _fields(struct: type[Any]) -> list[Field]:
    """The struct's fields that are encoded under their own names: all but the bridge's own."""
    return [each for each in fields_of(struct) if each.name in struct.__struct_encode_fields__]


def _names_of_struct(struct: type[Any], within: tuple[type[Any], ...]) -> type[Any]:
    """A struct with the same names. Values are skipped, except objects of known structs."""
    config = struct.__struct_config__
    names, objects = _known(struct)
    fields: list[Any] = [(name, Raw, None) for name in names - objects.keys() - {config.tag_field}]
    fields += [(name, _names_of_kind(kind, (*within, struct)), None) for name, kind in objects.items()]
    return msgspec.defstruct(
        f"{struct.__name__}Names",
        fields,
        tag=config.tag,
        tag_field=config.tag_field,
        forbid_unknown_fields=True,
    )


def _names_of_kind(kind: _Kind, within: tuple[type[Any], ...]) -> Any:
    structs = kind.structs.values() if isinstance(kind, Slot) else (kind,)
    # a struct that can contain itself is left to the walk
    known = tuple(_names_of_struct(each, within) for each in structs if each not in within)
    one: Any = Union[known]  # noqa: UP007 - the number of members varies
    return one | list[one] | str | None
