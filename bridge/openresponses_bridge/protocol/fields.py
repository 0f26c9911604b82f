"""The values that each field of a struct accepts, read once from its annotation. `lenient` builds structs
with them."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard, Union, get_args, get_origin

import msgspec
from msgspec import Struct


class Field(NamedTuple):
    """One field of a struct.

    `key` is its name on the wire, `name` its name in the struct. `convert` converts a plain value to the
    field's type; it raises msgspec.ValidationError, and UnicodeEncodeError for half a surrogate pair, which
    can't be UTF-8. `nested` is the only untagged struct that the field accepts, `element` the only one in a
    list; `takes_int` is True if it accepts whole numbers; `choices` are its allowed texts, if not all are;
    `limits` are the fewest and most elements of its list. `zero` makes the zero value of its type; that of a
    struct has the zero values of its fields.
    """

    name: str
    key: str
    required: bool
    annotation: Any
    convert: Callable[[Any], Any]
    nested: type[Any] | None
    element: type[Any] | None
    takes_object: bool
    takes_list: bool
    takes_int: bool
    choices: tuple[str, ...]
    limits: tuple[int, int | None]
    zero: Callable[..., Any]


_FIELDS: dict[type[Any], tuple[Field, ...]] = {}


def fields_of(struct: type[Any]) -> tuple[Field, ...]:
    """Return the fields of a struct, in order."""
    known = _FIELDS.get(struct)
    if known is None:
        described = msgspec.structs.fields(struct)
        known = _FIELDS[struct] = tuple(map(_field, described))
    return known


def _field(info: msgspec.structs.FieldInfo) -> Field:
    annotation = info.type
    described = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    options = tuple(get_args(each)[0] if get_origin(each) is Annotated else each for each in described)
    objects = [each for each in options if is_struct(each)]
    lists = [at for at, each in enumerate(options) if get_origin(each) is list]
    elements = [each for at in lists if is_struct(each := get_args(options[at])[0])]
    return Field(
        info.name,
        info.encode_name,
        info.required,
        annotation,
        _converter(annotation),
        nested=_untagged(objects),
        element=_untagged(elements),
        takes_object=bool(objects),
        takes_list=bool(lists),
        takes_int=int in options,
        choices=tuple(word for each in options if get_origin(each) is Literal for word in get_args(each)),
        limits=_limits(described[lists[0]]) if lists else (0, None),
        zero=_zero(options),
    )


def _limits(annotation: Any) -> tuple[int, int | None]:
    metas = getattr(annotation, "__metadata__", ())
    return next(((meta.min_length or 0, meta.max_length) for meta in metas), (0, None))


def is_struct(annotation: Any) -> TypeGuard[type[Any]]:
    """Return True if it is a struct's class."""
    return isinstance(annotation, type) and issubclass(annotation, Struct)


def _untagged(structs: list[type[Any]]) -> type[Any] | None:
    # tagged ones are distinguished by their slot; several untagged ones can't be distinguished
    return structs[0] if len(structs) == 1 and structs[0].__struct_config__.tag is None else None


def _converter(annotation: Any) -> Callable[[Any], Any]:
    # A union is expensive to prepare, and msgspec.convert prepares it at each call; a decoder keeps it.
    decode = msgspec.json.Decoder(annotation).decode
    encode = msgspec.json.Encoder().encode
    return lambda value: decode(encode(value))


_ZEROS: dict[Any, Callable[[], Any]] = {
    str: str, int: int, float: float, bool: bool, list: list, dict: dict,
}  # fmt: skip


def _zero(options: tuple[Any, ...]) -> Callable[..., Any]:
    first = options[0]
    if type(None) in options or first is Any:
        return lambda: None
    if get_origin(first) is Literal:
        return lambda: get_args(first)[0]
    return first if is_struct(first) else _ZEROS[get_origin(first) or first]
