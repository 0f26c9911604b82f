"""Protocol values without half surrogate pairs: strict decoders refuse them, escaped or not."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from openresponses_bridge.protocol.unknown import Unknown, enc_hook
from openresponses_bridge.text import repair_surrogates

T = TypeVar("T")
_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode


def with_whole_characters(value: T) -> T:
    """The value, or where a text in it holds half a pair, a copy with U+FFFD in its place."""
    try:
        _encode(value)
    except UnicodeEncodeError:
        return _repaired(value)  # type: ignore[no-any-return]
    return value


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return repair_surrogates(value)
    if isinstance(value, list):
        return [_repaired(element) for element in value]
    if isinstance(value, dict):
        return {_repaired(name): _repaired(element) for name, element in value.items()}
    if isinstance(value, Unknown):
        return type(value)(_repaired(value.raw))
    if isinstance(value, Struct):
        fields = {name: _repaired(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    return value
