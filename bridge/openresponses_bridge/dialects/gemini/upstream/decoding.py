"""Decodes bytes to chunks. Before this, `FrameTemplate` handles chunks that are like the one before.

Strict: a chunk from the middle of a stream, with one piece of text or of thoughts and the counts so far.
Nearly every chunk is one, and needs no check besides its decoding. Lenient: all others, read field by field
in either spelling of its names; a field of another type is left out, with a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.gemini.types import COUNTS, UsageMetadata, spelled, spelled_part
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame
from openresponses_bridge.protocol.usage import UNBOUNDED, count_of

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class StrictPart(Struct, forbid_unknown_fields=True, gc=False):
    """A part that has only text."""

    text: str
    thought: bool = False


class StrictContent(Struct, forbid_unknown_fields=True, gc=False):
    """A content of the model with one such part."""

    parts: tuple[StrictPart]
    role: str | None = None


class StrictCandidate(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A first candidate that continues."""

    content: StrictContent
    index: int = 0
    safety_ratings: msgspec.Raw | None = None


class StrictUsage(UsageMetadata, forbid_unknown_fields=True, gc=False):
    """The counts so far, with further fields."""

    prompt_tokens_details: msgspec.Raw | None = None
    candidates_tokens_details: msgspec.Raw | None = None
    cache_tokens_details: msgspec.Raw | None = None
    tool_use_prompt_tokens_details: msgspec.Raw | None = None
    traffic_type: msgspec.Raw | None = None
    service_tier: msgspec.Raw | None = None

    def others(self) -> dict[str, Any]:
        """Return the further fields of the counts."""
        names = zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
        values = {name: getattr(self, field) for field, name in names if name not in COUNTS}
        return {name: decode_frame(bytes(each)) for name, each in values.items() if each is not None}


class StrictChunk(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A chunk with only that candidate."""

    candidates: tuple[StrictCandidate]
    usage_metadata: StrictUsage | None = None
    model_version: str | None = None
    create_time: str | None = None
    response_id: str | None = None


decode_strict: Final = msgspec.json.Decoder(StrictChunk).decode


def text_of(data: bytes) -> str:
    """Return the text of a chunk that is decoded strictly. Raises one of UNDECODABLE for any other chunk."""
    return decode_strict(data).candidates[0].content.parts[0].text


def unwrapped(value: Any) -> list[Any]:
    """Return the chunks of a payload: one object; an array of them, as a server sends without `alt=sse`; or
    either as `response` of another object, as Code Assist sends it and Gemini CLI records it."""
    if isinstance(value, dict) and isinstance(value.get("response"), dict | list):
        value = value["response"]
    return value if isinstance(value, list) else [value]


class LenientReader:
    """Reads JSON objects in either spelling of their names. A value of another type is a loss."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics

    def chunks(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the unchanged chunks of a payload (`unwrapped`). Raises WireError."""
        for each in unwrapped(decode_frame(data)):
            if not isinstance(each, dict):
                raise WireError(WireError.INVALID_SHAPE, f"expected a JSON object, got {type(each).__name__}")
            yield each

    def object(self, holder: dict[str, Any], name: str) -> dict[str, Any]:
        """Return an inner object; empty if there is none."""
        return spelled(self._typed(holder, name, dict) or {})

    def objects(self, holder: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of an array."""
        for each in self._typed(holder, name, list) or ():
            if isinstance(each, dict):
                yield spelled(each)
            else:
                self._lose(name, each)

    def parts(self, content: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the parts of a content."""
        for each in self._typed(content, "parts", list) or ():
            if isinstance(each, dict):
                yield spelled_part(each)
            else:
                self._lose("parts", each)

    def text(self, holder: dict[str, Any], name: str) -> str:
        """Return a text; empty if there is none."""
        return self._typed(holder, name, str) or ""

    def number(self, holder: dict[str, Any], name: str) -> int:
        """Return a number without a fraction, which may be written as text; 0 if there is none."""
        value = holder.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
            return int(value)
        if type(value) is float and value.is_integer():
            return int(value)
        if value is None or type(value) is int:
            return value or 0
        self._lose(name, value)
        return 0

    def usage(self, given: dict[str, Any]) -> UsageMetadata | None:
        """Return the counts in a chunk's `usageMetadata`; None if there is none. Values that can't be counts
        are left out, with a repair."""
        if not given:
            return None
        counts = UsageMetadata()
        names = zip(UsageMetadata.__struct_fields__, UsageMetadata.__struct_encode_fields__, strict=True)
        for field, name in names:
            value = given.get(name)
            count = count_of(value, UNBOUNDED)
            if count is not None:
                setattr(counts, field, count)
            elif value is not None:
                self._diagnostics.repair(f"usageMetadata.{name}", "can't be a count, left out")
        return counts

    def _typed(self, holder: dict[str, Any], name: str, kind: type[Any]) -> Any:
        value = holder.get(name)
        if value is None or isinstance(value, kind):
            return value
        if kind is list and isinstance(value, dict):
            self._diagnostics.repair(name, "read an object as the only one of its array")
            return [value]
        self._lose(name, value)
        return None

    def _lose(self, name: str, value: Any) -> None:
        self._diagnostics.loss(name, f"can't be read: {type(value).__name__}")
