"""What callers may hand to the machine beside text → the structs it works with.

Each raises StreamStateError (`bridge.stream.invalid_argument`) naming the call and the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bridge.errors import StreamStateError
from bridge.protocol import vocabulary
from bridge.protocol.content import Annotation, KnownAnnotation, LogProb
from bridge.protocol.lenient import SchemaError, Strict, build
from bridge.protocol.unknown import Unknown
from bridge.protocol.usage import Usage


def wrong_argument(call: str, what: str) -> StreamStateError:
    """The error for an argument that can't be used."""
    return StreamStateError(StreamStateError.INVALID_ARGUMENT, f"{call}: {what}", call=call)


def text_of(call: str, delta: object) -> str:
    """A delta, which must be a string; None counts as empty."""
    if delta is None:
        return ""
    if isinstance(delta, str):
        return delta
    raise wrong_argument(call, f"expected a string delta, got {type(delta).__name__}")


def annotation_of(annotation: Annotation | Mapping[str, Any]) -> Annotation:
    """A citation struct, or a mapping with its fields and `type`."""
    if isinstance(annotation, KnownAnnotation | Unknown):
        return annotation
    try:
        built: Annotation = build(vocabulary.ANNOTATIONS, dict(annotation), Strict())
    except (SchemaError, TypeError, ValueError) as error:
        raise wrong_argument("annotation", str(error)) from error
    return built


def logprobs_of(logprobs: Sequence[LogProb | Mapping[str, Any]] | None) -> list[LogProb]:
    """Log probabilities as structs or mappings (schema LogProb)."""
    try:
        return [
            each if isinstance(each, LogProb) else msgspec.convert(each, LogProb) for each in logprobs or ()
        ]
    except (msgspec.ValidationError, TypeError) as error:
        raise wrong_argument("text", f"logprobs: {error}") from error


def usage_of(usage: Usage | Mapping[str, Any] | None) -> Usage | None:
    """Usage as a struct, or as a mapping in the schema's names; missing counts are 0."""
    if usage is None or isinstance(usage, Usage):
        return usage
    try:
        given = dict(usage)
        incoming = dict(given.get("input_tokens_details") or {})
        outgoing = dict(given.get("output_tokens_details") or {})
        return Usage.of(
            int(given.get("input_tokens") or 0),
            int(given.get("output_tokens") or 0),
            cached_tokens=int(incoming.get("cached_tokens") or 0),
            reasoning_tokens=int(outgoing.get("reasoning_tokens") or 0),
            total_tokens=None if given.get("total_tokens") is None else int(given["total_tokens"]),
        )
    except (TypeError, ValueError) as error:
        raise wrong_argument("usage", f"not token counts: {error}") from error
