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
    """Return the error for an argument that can't be used."""
    return StreamStateError(StreamStateError.INVALID_ARGUMENT, f"{call}: {what}", call=call)


def index_of(call: str, index: object) -> int:
    """Return the upstream's index of a tool call, which must be an int."""
    if isinstance(index, int):
        return index
    raise wrong_argument(call, f"expected an integer index, got {type(index).__name__}")


def fields_of(call: str, fields: object) -> dict[str, Any]:
    """Return the fields of an event or item, which must be a mapping."""
    if isinstance(fields, Mapping):
        return with_whole_characters(dict(fields))
    raise wrong_argument(call, f"expected a mapping of fields, got {type(fields).__name__}")


def text_of(call: str, delta: object) -> str:
    """Return a delta, which must be a string; None counts as empty."""
    if delta is None:
        return ""
    if isinstance(delta, str):
        return delta
    raise wrong_argument(call, f"expected a string delta, got {type(delta).__name__}")


def reason_of(call: str, reason: object) -> str | None:
    """Return the upstream's own word for why it stopped; None if it gave none."""
    if reason is None:
        return None
    if isinstance(reason, str):
        return repair_surrogates(reason)
    raise wrong_argument(call, f"expected a reason as a string, got {type(reason).__name__}")


def annotation_of(annotation: Annotation | Mapping[str, Any]) -> Annotation:
    """Return the citation given as a struct, whose fields are checked, or as a mapping of its fields and
    `type`."""
    if isinstance(annotation, Unknown):
        return annotation
    try:
        fields = dict(annotation) if isinstance(annotation, Mapping) else plain(annotation)
        built: Annotation = build(vocabulary.ANNOTATIONS, with_whole_characters(fields), Strict())
    except WireError as error:
        raise wrong_argument("annotation", error.message) from error
    except (TypeError, ValueError) as error:
        raise wrong_argument("annotation", str(error)) from error
    return annotation if isinstance(annotation, KnownAnnotation) else built  # with unknown fields


def kept_annotations(
    wire: Wire, annotations: Iterable[Annotation], diagnostics: Diagnostics
) -> list[Annotation]:
    """Return the citations that can be sent on the wire; each of the others is a loss. `openresponses` has
    only `url_citation` (law E10), but a client of another API also gets citations of types that are unknown
    here."""
    admitted: list[Annotation] = []
    for cited in annotations:
        own = wire.foreign and isinstance(cited, Unknown)
        if wire.openai_items or isinstance(cited, UrlCitation) or own:
            admitted.append(for_wire(wire, with_whole_characters(cited), "annotation", diagnostics))
        else:
            diagnostics.loss(f"annotation.{cited.type}", "not published, left out")
    return admitted


def for_wire(wire: Wire, value: T, where: str, diagnostics: Diagnostics) -> T:
    """Return the object as it can be sent on the wire: unchanged, or without its unknown fields if the wire
    has none (law E10). Each of these is a loss."""
    if wire.unknown_fields:
        return value
    names: list[str] = []
    result = without_extra(value, names)
    report_unknown(where, names, diagnostics)
    return result


def report_unknown(where: str, names: Iterable[str], diagnostics: Diagnostics) -> None:
    """Report the unknown fields that are left out, each as a loss."""
    for name in names:
        diagnostics.loss(f"{where}.{name[:LONGEST_SHOWN]}", "is not known to the client")


def logprobs_of(logprobs: Sequence[LogProb | Mapping[str, Any]] | None) -> list[LogProb]:
    """Return log probabilities, given as structs or mappings, as structs (schema LogProb)."""
    if not logprobs:
        return []
    try:
        entries = with_whole_characters(list(logprobs))
        return [each if isinstance(each, LogProb) else msgspec.convert(each, LogProb) for each in entries]
    except (msgspec.ValidationError, TypeError) as error:
        raise wrong_argument("text", f"logprobs: {error}") from error


def usage_of(usage: Usage | Mapping[str, Any] | None, diagnostics: Diagnostics) -> Usage | None:
    """Return usage that is given as a struct, or as a mapping with the names of the schema, of Chat
    Completions or of Anthropic, in which missing counts are 0. A value that can't be a count is an error;
    wrong sums are corrected, with a diagnostic."""
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
    numbers = {name: number for name, number in counts_in(usage).items() if number is not None}
    counts = {name: _count(name, number) for name, number in numbers.items()}
    counts = {"input_tokens": 0, "output_tokens": 0, **counts}
    return within_bounds(Usage.of(**counts, estimated=usage.get("estimated") is True), diagnostics)


def _is_plain(usage: Usage) -> bool:
    """Return True if the usage can be sent unchanged: it has no empty optional fields and no `rounds`, which
    are not sent."""
    estimated, written = usage.estimated, usage.input_tokens_details.cache_write_tokens
    return written != 0 and (estimated is True or estimated is UNSET) and usage.rounds is UNSET


def _count(name: str, number: object) -> int:
    most = most_of(name)
    count = count_of(number, most)
    if count is None:
        raise wrong_argument("usage", f"not token counts: {name} is not a whole number from 0 to {most}")
    return count
