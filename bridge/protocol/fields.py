"""What each field of a struct takes, read once from its annotation: `lenient` builds by it."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct


class Field(NamedTuple):
    """One field of a struct.

    `convert` makes a plain value one of the field's or raises msgspec.ValidationError. `nested` is
    the one untagged struct that it takes, `element` the one that it takes a list of; `limits` are
    the fewest and most elements of its list. `zero` makes the zero value of its type.
    """

    name: str
    required: bool
    convert: Callable[[Any], Any]
    nested: type[Any] | None
    element: type[Any] | None
    takes_object: bool
    takes_list: bool
    limits: tuple[int, int | None]
    zero: Callable[[], Any]


_FIELDS: dict[type[Any], tuple[Field, ...]] = {}


def fields_of(struct: type[Any]) -> tuple[Field, ...]:
    """The fields of a struct, in its order."""
    known = _FIELDS.get(struct)
    if known is None:
        described = msgspec.structs.fields(struct)
        known = _FIELDS[struct] = tuple(_field(each.name, each.required, each.type) for each in described)
    return known


def _field(name: str, required: bool, annotation: Any) -> Field:
    bare, metas = _bare(annotation)
    options = get_args(bare) if get_origin(bare) in (Union, UnionType) else (bare,)
    objects = [each for each in options if _is_struct(each)]
    lists = [get_args(each)[0] for each in options if get_origin(each) is list]
    elements = [each for each in lists if _is_struct(each)]
    return Field(
        name,
        required,
        _converter(annotation),
        nested=_untagged(objects),
        element=_untagged(elements),
        takes_object=bool(objects),
        takes_list=bool(lists),
        limits=next(((meta.min_length or 0, meta.max_length) for meta in metas), (0, None)),
        zero=_zero(options),
    )


def _bare(annotation: Any) -> tuple[Any, tuple[Meta, ...]]:
    if get_origin(annotation) is not Annotated:
        return annotation, ()
    bare, *metas = get_args(annotation)
    return bare, tuple(metas)


def _is_struct(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Struct)


def _untagged(structs: list[type[Any]]) -> type[Any] | None:
    # tagged ones are told apart by their slot, several untagged ones can't be told apart at all
    return structs[0] if len(structs) == 1 and structs[0].__struct_config__.tag is None else None


def _converter(annotation: Any) -> Callable[[Any], Any]:
    # A union is expensive to prepare, and msgspec.convert prepares it at each call: a decoder keeps it.
    decode = msgspec.json.Decoder(annotation).decode
    encode = msgspec.json.Encoder().encode

    def convert(value: Any) -> Any:
        try:
            return decode(encode(value))
        except UnicodeEncodeError:  # half a surrogate pair has no UTF-8
            return msgspec.convert(value, annotation)

    return convert


_ZEROS: dict[Any, Callable[[], Any]] = {
    str: str, int: int, float: float, bool: bool, list: list, dict: dict,
}  # fmt: skip


def _zero(options: tuple[Any, ...]) -> Callable[[], Any]:
    first = options[0]
    if type(None) in options or first is Any:
        return lambda: None
    if get_origin(first) is Literal:
        return lambda: get_args(first)[0]
    if _is_struct(first):
        return lambda: first(**{each.name: each.zero() for each in fields_of(first) if each.required})
    return _ZEROS[get_origin(first) or first]
