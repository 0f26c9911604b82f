"""What one server wants where servers of the dialect differ."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from openresponses_bridge.dialects.base import UnansweredCalls
from openresponses_bridge.schemas.rewriting import Form


class GeminiOptions(Struct, frozen=True, kw_only=True):
    """Options of an upstream, where servers differ."""

    schemas: Literal["parametersJsonSchema", "parameters"] = "parametersJsonSchema"
    """The field for the schemas of tools and answers: any JSON Schema, or the subset of OpenAPI's that
    `parameters` and `responseSchema` take. What the subset lacks is left out, with a loss."""
    schema_omit: frozenset[str] = frozenset()
    """More keywords that are left out of the schemas of tools and answers, each with a loss."""
    schema_forms: frozenset[Form] = frozenset()
    """What the schemas of tools and answers have to be rewritten to, each with a loss."""
    thinking: Literal["level", "budget", "off"] | None = None
    """How effort is asked for: by `thinkingLevel`, by `thinkingBudget`, or not at all. Default: as the
    model's name says."""
    efforts: frozenset[str] | None = None
    """The levels of `reasoning.effort` that the server accepts; for another one the nearest goes out, with a
    loss. Default: those of the model."""
    missing_signature: str | None = None
    """The thought signature of the first call of a content that has none, for models that require it."""
    candidates: bool = False
    """Whether the server gives several candidates to one request; otherwise it gets one request for each."""
    kept_files: Literal["send", "refuse"] = "send"
    """For files that Google keeps (`gs://`, uploaded ones): `send` their addresses, which the upstream reads
    with the rights of its key, or `refuse` them."""
    unanswered_calls: UnansweredCalls = "refuse"
    """For calls without an output: `refuse` the request, or `answer` them that there is none."""
    passes: frozenset[str] = frozenset()
    """Names of fields of the body that a client may give although the Responses API does not have them, which
    go out as they are, as `safetySettings` or `cachedContent`; with `*` all of them. None overrides what the
    bridge makes itself."""
    extra: dict[str, Any] = {}
    """Fields that are added to the body of every request, before what clients give; those of
    `generationConfig` are added to it."""
    omit: frozenset[str] = frozenset()
    """Names of fields of `generationConfig` that this upstream refuses; each use is a loss."""


DEFAULT_OPTIONS: Final = GeminiOptions()
