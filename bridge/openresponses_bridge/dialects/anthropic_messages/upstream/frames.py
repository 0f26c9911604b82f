"""Bytes → frames. One strict pass for what is well formed; what it refuses is read field by field.

The slow path takes a missing `type` from the SSE event's name, a delta's from its field, numbers from
strings, and half surrogate pairs (an emoji split between two deltas) as they are.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from msgspec import Struct

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame
from openresponses_bridge.surrogates import mended_json

_frames: msgspec.json.Decoder[t.KnownFrame] = msgspec.json.Decoder(t.KnownFrame)
strict = _frames.decode
"""One well-formed payload; raises one of NOT_STRICT for any other."""
NOT_STRICT = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def _by_tag(union: Any) -> dict[str, type[Struct]]:
    return {str(member.__struct_config__.tag): member for member in get_args(union)}


_FRAMES = _by_tag(t.KnownFrame)
_DELTAS = _by_tag(t.Delta)
_DELTA_OF_FIELD = {"text": "text_delta", "partial_json": "input_json_delta", "thinking": "thinking_delta"} | {
    "signature": "signature_delta",
    "citation": "citations_delta",
}
# fields have one type under each name, whatever struct they stand in
_TYPES: dict[str, type] = {
    "index": int,
    **dict.fromkeys(("content_block", "usage", "context_management", "error"), dict),
    **dict.fromkeys(("citation", "stop_details", "container"), dict),
    **dict.fromkeys(("text", "partial_json", "thinking", "signature", "encrypted_content"), str),
    **dict.fromkeys(("id", "model", "stop_reason", "stop_sequence"), str),
}


def lenient(data: bytes, event: str, diagnostics: Diagnostics) -> t.Frame:
    """A payload that `strict` refused. Raises WireError when it is not a JSON object."""
    value = decode_frame(data)
    if not isinstance(value, dict):
        raise WireError(WireError.INVALID_SHAPE, f"expected a JSON object, got {type(value).__name__}")
    return _read(value, event, diagnostics)


def _read(value: dict[str, Any], event: str, diagnostics: Diagnostics) -> t.Frame:
    kind = value.get("type")
    if not isinstance(kind, str):
        kind = event or _guess(value)
        diagnostics.repair("frame.type", "missing, taken from the event's name or the fields")
    struct = _FRAMES.get(kind)
    if struct is None:
        return t.UnknownFrame(kind)
    if struct is t.ContentBlockDelta:
        delta = _delta(value.get("delta"), diagnostics)
        return t.ContentBlockDelta(_index(value.get("index")), delta)
    if struct is t.ErrorFrame and isinstance(value.get("error"), str):
        return t.ErrorFrame({"message": value["error"]})
    frame: t.Frame = _build(struct, value, diagnostics, kind, whole=True)
    return frame


def _guess(value: dict[str, Any]) -> str:
    if "error" in value:
        return "error"
    return "message" if "content" in value and "role" in value else ""


def _delta(value: Any, diagnostics: Diagnostics) -> t.Delta | None:
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    if not isinstance(kind, str):
        kind = next((name for field, name in _DELTA_OF_FIELD.items() if field in value), "")
    struct = _DELTAS.get(kind)
    if struct is None:
        diagnostics.ignored(f"delta.{kind[:64]}", "not known")
        return None
    delta: t.Delta = _build(struct, value, diagnostics, kind, whole=struct is t.CitationsDelta)
    return delta


def _build(
    struct: type[Struct], value: dict[str, Any], diagnostics: Diagnostics, where: str, whole: bool
) -> Any:
    """`whole`: half surrogates can't find their other half later, so they are replaced."""
    known: dict[str, Any] = {}
    for name in struct.__struct_fields__:
        raw = value.get(name)
        if raw is None:
            continue
        if name == "index":
            known[name] = _index(raw)
        elif _fits(struct, name, raw):
            known[name] = mended_json(raw) if whole else raw
        else:
            diagnostics.loss(f"{where}.{name}", f"can't be read: {type(raw).__name__}")
    return struct(**known)


def _fits(struct: type[Struct], name: str, raw: Any) -> bool:
    if name == "content" and struct is t.WholeMessage:
        return isinstance(raw, list) and all(isinstance(block, dict) for block in raw)
    if name == "delta" or (name == "message" and struct is t.MessageStart):
        return isinstance(raw, dict)
    return isinstance(raw, _TYPES.get(name, str))


def _index(raw: Any) -> int:
    try:
        return int(raw)
    except (TypeError, ValueError, OverflowError):
        return t.NO_INDEX
