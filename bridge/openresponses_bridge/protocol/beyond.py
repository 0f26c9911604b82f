"""Finds the fields that the protocol does not have, and keeps them for readers that know them.

The typed decoders skip such fields. Most requests and events have none: a second decoder, which rejects
unknown names, shows that. When it rejects one, a walk over the parsed JSON finds the fields. Those of an
`Extensible` object go into its `extra`, those of the other objects of a request into its `beyond`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar, Union

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from openresponses_bridge.diagnostics import LONGEST_SHOWN
from openresponses_bridge.protocol import vocabulary
from openresponses_bridge.protocol.fields import Field, fields_of
from openresponses_bridge.protocol.request import ForeignFields, Place
from openresponses_bridge.protocol.secrets import fields_without_secrets
from openresponses_bridge.protocol.unknown import EXTRA, OURS, Extensible, enc_hook
from openresponses_bridge.protocol.vocabulary import Slot

T = TypeVar("T", bound=Struct)
Kind = Slot | type[Any]
_INPUT: Final = ("input",)
# limits of the unknown fields of one object from an upstream
_MOST_FIELDS: Final = 32
_LONGEST_NAME: Final = 64
_MOST_BYTES: Final = 64 * 1024
_DEEPEST: Final = 32

_encode: Final = msgspec.json.Encoder(enc_hook=enc_hook).encode


class _Known(NamedTuple):
    """The names of a struct's fields, and the fields whose objects have known names too."""

    names: frozenset[str]
    objects: dict[str, Kind]


_BUILDING: Final = Lock()
"""Locked while a decoder is built: msgspec takes a struct that another thread has built only in part for a
whole one, and ends the process."""
_KNOWN: Final[dict[tuple[type[Any], bool], _Known]] = {}
_NAMES: Final[dict[tuple[type[Any], tuple[type[Any], ...], bool], type[Any]]] = {}


class UnknownFields:
    """The unknown fields in JSON of one kind. `received` is True for JSON from an upstream: secrets are left
    out, only a limited amount is kept, and fields of objects that can't keep them are skipped. Otherwise the
    JSON is a client's."""

    def __init__(self, kind: Kind, *, received: bool) -> None:
        self._kind = kind
        self._received = received
        self._names: msgspec.json.Decoder[Any] | None = None

    def may_be_in(self, data: bytes | str) -> bool:
        """Return True if JSON that was decoded as this kind has other fields. True also when only a walk can
        decide, since it has objects of unknown types. Raises UnicodeError as decoding does."""
        if self._names is None:
            with _BUILDING:
                if self._names is None:
                    kind = _names_of_kind(self._kind, (), self._received)
                    self._names = msgspec.json.Decoder(kind)
        try:
            self._names.decode(data)
        except msgspec.ValidationError:
            return True
        return False

    def kept(self, value: dict[str, Any]) -> tuple[dict[str, Any], list[ForeignFields]]:
        """Return (the parsed JSON with its unknown fields where the decoders find them, the fields in the
        order in which they were sent, without null ones). Fields that are not `carried` are a client's in
        objects without `extra`, and an upstream's that are too many, too large or too deep."""
        foreign: list[ForeignFields] = []
        return self._walk(self._kind, value, (), foreign), foreign

    def _walk(
        self, kind: Kind, value: dict[str, Any], place: Place, all_foreign: list[ForeignFields]
    ) -> dict[str, Any]:
        struct = _struct_of(kind, value) if isinstance(kind, Slot) else kind
        if struct is None:
            return value  # kept unchanged, with all its fields
        known = _known(struct, self._received)
        changed: dict[str, Any] = {}
        if not known.names.issuperset(value):
            if EXTRA in value:
                value = {name: each for name, each in value.items() if name != EXTRA}
            foreign = {
                name: each
                for name, each in value.items()
                if name not in known.names and each is not None and not name.startswith(OURS)
            }
            if foreign:
                changed = self._keep(struct, foreign, place, all_foreign)
        for name, within in known.objects.items():
            inner = value.get(name)
            if isinstance(inner, dict):
                replacement: Any = self._walk(within, inner, (*place, name), all_foreign)
                if replacement is not inner:
                    changed[name] = replacement
            elif isinstance(inner, list):
                elements = [
                    self._walk(within, each, (*place, name, index), all_foreign)
                    if isinstance(each, dict)
                    else each
                    for index, each in enumerate(inner)
                ]
                if any(one is not other for one, other in zip(elements, inner, strict=True)):
                    changed[name] = elements
        return {**value, **changed} if changed else value

    def _keep(
        self, struct: type[Any], foreign: dict[str, Any], place: Place, all_foreign: list[ForeignFields]
    ) -> dict[str, Any]:
        """Return the `extra` of an object of this struct, if it can have one; adds to `all_foreign`."""
        if not issubclass(struct, Extensible):
            if not self._received:
                all_foreign.append(ForeignFields(place, foreign))
            return {}
        if not self._received:
            all_foreign.append(ForeignFields(place, foreign, carried=True))
            return {EXTRA: foreign}
        shown, over = bounded_fields(foreign)
        if over:
            all_foreign.append(ForeignFields(place, {name: foreign[name] for name in over}))
        if shown:
            all_foreign.append(ForeignFields(place, shown, carried=True))
        return {EXTRA: shown} if shown else {}


def bounded_fields(received: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return, for the unknown fields from an upstream, (those that are kept, without secrets; the names of
    those that are too many, too large or too deep)."""
    small = {name: each for name, each in received.items() if _is_small(name, each)}
    fields = dict(list(small.items())[:_MOST_FIELDS])
    over = list(received.keys() - fields.keys())[:_MOST_FIELDS] if len(fields) < len(received) else []
    return fields_without_secrets(fields), over


def _is_small(name: str, value: Any) -> bool:
    level, depth = [value], 0
    while level:
        if (depth := depth + 1) > _DEEPEST:
            return False
        level = [inner for each in level for inner in _elements(each)]
    try:
        return len(name) <= _LONGEST_NAME and len(_encode(value)) <= _MOST_BYTES
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def _elements(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


_REQUESTS: Final[dict[type[Any], UnknownFields]] = {}


def decode_exact(
    decoder: msgspec.json.Decoder[T], struct: type[T], data: bytes | str, value: dict[str, Any] | None
) -> T:
    """Decode a request and keep its unknown fields. Raises what the decoder raises. `value` is the parsed
    request, if it was parsed before."""
    request: T = decoder.decode(data)
    unknown = _REQUESTS.get(struct) or unknown_of(struct)
    if not unknown.may_be_in(data):
        return request
    value = msgspec.json.decode(data) if value is None else value
    extended, foreign = unknown.kept(value)
    if extended is not value:
        request = decoder.decode(_encode(extended))
    return with_beyond(request, foreign)


def unknown_of(struct: type[Any]) -> UnknownFields:
    """Return the `UnknownFields` of requests of this struct."""
    unknown = _REQUESTS.get(struct)
    if unknown is None:
        unknown = _REQUESTS[struct] = UnknownFields(struct, received=False)
    return unknown


def with_beyond(request: T, fields: list[ForeignFields]) -> T:
    """Return the request with these fields in `beyond`. A client's own `beyond` and `native` are
    discarded."""
    if getattr(request, "native", UNSET) is not UNSET:
        request = replace(request, native=UNSET)
    if not fields and getattr(request, "beyond", UNSET) is UNSET:
        return request
    return replace(request, beyond=fields or UNSET)


def name_of(place: Place, name: str = "") -> str:
    """Return a name such as `tools[0].name`; a long one is cut."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return f"{path}.{name[:LONGEST_SHOWN]}".strip(".")


def names_of(beyond: list[ForeignFields] | UnsetType) -> Iterator[str]:
    """Yield the names of all these fields with their places; names in items of the input once each."""
    seen = set[str]()
    for place, fields, _ in beyond or ():
        for name in fields:
            if place[:1] != _INPUT or name not in seen:
                yield name_of(place, name or '""')  # the name of a field may be empty
            if place[:1] == _INPUT:
                seen.add(name)


def restore_fields(body: dict[str, Any], beyond: list[ForeignFields] | UnsetType) -> list[str]:
    """Add the fields to the objects that they came from, unless those have a field of that name. Returns the
    names of the fields whose object no longer exists."""
    lost: list[str] = []
    for foreign in beyond or ():
        node = _at(body, foreign.place)
        if isinstance(node, dict):
            node.update({name: value for name, value in foreign.fields.items() if name not in node})
        else:
            lost += names_of([foreign])
    return lost


def _at(body: dict[str, Any], place: Place) -> Any:
    """Return the value at this place. Missing objects on the way are created, since one without other fields
    may have been left out."""
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


def _struct_of(slot: Slot, value: dict[str, Any]) -> type[Any] | None:
    tag = value.get("type")
    if tag is None and slot.infer is not None:
        tag = slot.infer(value)
    return slot.structs.get(tag) if isinstance(tag, str) else None


def _known(struct: type[Any], received: bool) -> _Known:
    known = _KNOWN.get((struct, received))
    if known is not None:
        return known
    slots = vocabulary.CHILDREN.get(struct, {})
    fields = _fields(struct)
    within = ((each.key, slots.get(each.name) or each.element or each.nested) for each in fields)
    names = {each.key for each in fields} | _echoed(struct)
    if struct.__struct_config__.tag_field is not None:
        names.add(struct.__struct_config__.tag_field)
    objects = {
        name: kind for name, kind in within if kind is not None and not (received and _keeps_nothing(kind))
    }
    known = _KNOWN[struct, received] = _Known(frozenset(names), objects)
    return known


def _keeps_nothing(kind: Kind, within: tuple[type[Any], ...] = ()) -> bool:
    """Return True if no object in values of this kind can have an `extra`."""
    structs = kind.structs.values() if isinstance(kind, Slot) else (kind,)
    for struct in structs:
        if issubclass(struct, Extensible):
            return False
        slots = vocabulary.CHILDREN.get(struct, {})
        inner = (slots.get(each.name) or each.element or each.nested for each in fields_of(struct))
        if struct not in within and not all(
            each is None or _keeps_nothing(each, (*within, struct)) for each in inner
        ):
            return False
    return True


def _echoed(struct: type[Any]) -> set[str]:
    """Return the names of the fields that the same object has in an output, since clients send outputs back
    unchanged."""
    tag = struct.__struct_config__.tag
    pairs = ((vocabulary.INPUT_ITEMS, vocabulary.ITEMS), (vocabulary.INPUT_PARTS, vocabulary.PARTS))
    outputs = (outputs.structs.get(tag) for inputs, outputs in pairs if inputs.structs.get(tag) is struct)
    return {each.key for output in outputs if output for each in _fields(output)}


def _fields(struct: type[Any]) -> list[Field]:
    """Return the struct's fields that peers send: all except `extra` and, in a request, the bridge's own."""
    if issubclass(struct, Extensible):
        return [each for each in fields_of(struct) if each.key != EXTRA]
    return [each for each in fields_of(struct) if each.name in struct.__struct_encode_fields__]


def _names_of_kind(kind: Kind, within: tuple[type[Any], ...], received: bool) -> Any:
    structs = kind.structs.values() if isinstance(kind, Slot) else (kind,)
    # a struct that may contain itself is left to the walk
    known = tuple(_names_of_struct(each, within, received) for each in structs if each not in within)
    one: Any = Union[known]  # noqa: UP007 - the number of members varies
    return one | list[one] | str | None


def _names_of_struct(struct: type[Any], within: tuple[type[Any], ...], received: bool) -> type[Any]:
    """Return a struct with the same names. Values are skipped, except objects of known structs."""
    if (names_struct := _NAMES.get((struct, within, received))) is not None:
        return names_struct
    config = struct.__struct_config__
    names, objects = _known(struct, received)
    nested = (*within, struct) if _contains_itself(struct) else within
    fields: list[Any] = []
    for name in names - {config.tag_field}:
        kind = _names_of_kind(objects[name], nested, received) if name in objects else Raw
        # not every name is valid in Python
        fields.append((f"field_{len(fields)}", kind, msgspec.field(default=None, name=name)))
    names_struct = _NAMES[struct, within, received] = msgspec.defstruct(
        f"{struct.__name__}Names",
        fields,
        tag=config.tag,
        tag_field=config.tag_field,
        forbid_unknown_fields=True,
    )
    return names_struct


def _contains_itself(struct: type[Any]) -> bool:
    slots = vocabulary.CHILDREN.get(struct, {}).values()
    return any(struct in slot.structs.values() for slot in slots)
