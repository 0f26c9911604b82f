"""Reads the arguments of the machine's methods (citations, log probabilities, usage, reasons) into structs.

Each function raises StreamStateError (`bridge.stream.invalid_argument`), which names the method and the
field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from openresponses_bridge.diagnostics import LONGEST_SHOWN, Diagnostics
from openresponses_bridge.errors import StreamStateError, WireError
from openresponses_bridge.protocol import vocabulary
from openresponses_bridge.protocol.codec import plain, with_whole_characters, without_extra
from openresponses_bridge.protocol.content import Annotation, KnownAnnotation, LogProb, UrlCitation
from openresponses_bridge.protocol.lenient import Strict, build
from openresponses_bridge.protocol.unknown import Unknown
from openresponses_bridge.protocol.usage import (
    NAMES,
    Usage,
    count_of,
    counts_in,
    is_consistent,
    most_of,
    numbers_of,
    within_bounds,
)
from openresponses_bridge.state import OPENAI_SLUG, Wire
from openresponses_bridge.text import repair_surrogates

T = TypeVar("T")
EXTENSION: Final = re.compile(r"[A-Za-z0-9_-]+:[A-Za-z0-9_.:-]+")
_NOT_IN_A_TYPE: Final = re.compile(r"[^A-Za-z0-9_.:-]")


def extension_type(kind: str) -> str:
    """The type of an extension, `slug:name`, for a type that the wire does not have."""
    name = _NOT_IN_A_TYPE.sub("_", kind) or "unknown"
    return name if EXTENSION.fullmatch(name) else OPENAI_SLUG + name


def wrong_argument(call: str, what: str) -> StreamStateError:
    """The error for an argument that can't be used."""
    return StreamStateError(StreamStateError.INVALID_ARGUMENT, f"{call}: {what}", call=call)


def index_of(call: str, index: object) -> int:
    """The upstream's index of a tool call."""
    if isinstance(index, int):
        return index
    raise wrong_argument(call, f"expected an integer index, got {type(index).__name__}")


def fields_of(call: str, fields: object) -> dict[str, Any]:
    """The fields of an event or item given as a mapping."""
    if isinstance(fields, Mapping):
        return with_whole_characters(dict(fields))
    raise wrong_argument(call, f"expected a mapping of fields, got {type(fields).__name__}")


def text_of(call: str, delta: object) -> str:
    """A delta, which must be a string; None counts as empty."""
    if delta is None:
        return ""
    if isinstance(delta, str):
        return delta
    raise wrong_argument(call, f"expected a string delta, got {type(delta).__name__}")


def reason_of(call: str, reason: object) -> str | None:
    """Return why an upstream stopped, in its own word."""
    if reason is None:
        return None
    if isinstance(reason, str):
        return repair_surrogates(reason)
    raise wrong_argument(call, f"expected a reason as a string, got {type(reason).__name__}")


def annotation_of(annotation: Annotation | Mapping[str, Any]) -> Annotation:
    """A citation struct, whose fields are checked, or a mapping with them and `type`."""
    if isinstance(annotation, Unknown):
        return annotation
    try:
        fields = dict(annotation) if isinstance(annotation, Mapping) else plain(annotation)
        built: Annotation = build(vocabulary.ANNOTATIONS, with_whole_characters(fields), Strict())
    except WireError as error:
        raise wrong_argument("annotation", error.message) from error
    except (TypeError, ValueError) as error:
        raise wrong_argument("annotation", str(error)) from error
    return annotation if isinstance(annotation, KnownAnnotation) else built  # it has unknown fields too


def kept_annotations(
    wire: Wire, annotations: Iterable[Annotation], diagnostics: Diagnostics
) -> list[Annotation]:
    """The citations that the wire has; `openresponses` has `url_citation` only (law E10). The others are
    losses."""
    admitted: list[Annotation] = []
    for cited in annotations:
        own = wire.foreign and isinstance(cited, Unknown)
        if wire.openai_items or isinstance(cited, UrlCitation) or own:
            admitted.append(for_wire(wire, with_whole_characters(cited), "annotation", diagnostics))
        else:
            diagnostics.loss(f"annotation.{cited.type}", "not published, left out")
    return admitted


def for_wire(wire: Wire, value: T, where: str, diagnostics: Diagnostics) -> T:
    """The object without the unknown fields in it where the reader has no place for them (law E10): they are
    losses."""
    if wire.unknown_fields:
        return value
    found: list[str] = []
    kept = without_extra(value, found)
    report_unknown(where, found, diagnostics)
    return kept


def report_unknown(where: str, names: Iterable[str], diagnostics: Diagnostics) -> None:
    """Report the unknown fields that are left out, each as a loss."""
    for name in names:
        diagnostics.loss(f"{where}.{name[:LONGEST_SHOWN]}", "is not known to the client")


def logprobs_of(logprobs: Sequence[LogProb | Mapping[str, Any]] | None) -> list[LogProb]:
    """Log probabilities as structs or mappings (schema LogProb)."""
    if not logprobs:
        return []
    try:
        given = with_whole_characters(list(logprobs))
        return [each if isinstance(each, LogProb) else msgspec.convert(each, LogProb) for each in given]
    except (msgspec.ValidationError, TypeError) as error:
        raise wrong_argument("text", f"logprobs: {error}") from error


def usage_of(usage: Usage | Mapping[str, Any] | None, diagnostics: Diagnostics) -> Usage | None:
    """Usage as a struct, or as a mapping in the names of the schema, Chat Completions or Anthropic, where
    missing counts are 0. What can't be a count is refused; wrong sums are put right."""
    if usage is None:
        return None
    if type(usage) is Usage and _is_plain(usage) and is_consistent(usage):
        return usage
    if not isinstance(usage, Usage | Mapping):
        raise wrong_argument("usage", f"expected token counts, got {type(usage).__name__}")
    if isinstance(usage, Usage):
        counts = {name: _count(name, number) for name, number in numbers_of(usage).items()}
        return within_bounds(Usage.of(**counts, estimated=usage.estimated is True), diagnostics)
    if usage and NAMES.isdisjoint(usage):
        raise wrong_argument("usage", f"none of these names token counts: {', '.join(map(str, usage))}")
    given = {name: number for name, number in counts_in(usage).items() if number is not None}
    counts = {name: _count(name, number) for name, number in given.items()}
    counts = {"input_tokens": 0, "output_tokens": 0, **counts}
    return within_bounds(Usage.of(**counts, estimated=usage.get("estimated") is True), diagnostics)


def _is_plain(usage: Usage) -> bool:
    """Return True if the usage is sent as it is: empty optional fields, and rounds, would be left out."""
    estimated, written = usage.estimated, usage.input_tokens_details.cache_write_tokens
    return written != 0 and (estimated is True or estimated is UNSET) and usage.rounds is UNSET


def _count(name: str, number: object) -> int:
    most = most_of(name)
    count = count_of(number, most)
    if count is None:
        raise wrong_argument("usage", f"not token counts: {name} is not a whole number from 0 to {most}")
    return count
