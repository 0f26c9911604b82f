"""What one server wants where servers of the dialect differ."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from openresponses_bridge.dialects.base import UnansweredCalls
from openresponses_bridge.schemas.rewriting import Form


class InteractionsOptions(Struct, frozen=True, kw_only=True):
    """Options of an upstream, where servers differ."""

    schema_omit: frozenset[str] = frozenset()
    """Keywords that are left out of the schemas of tools and answers, each with a loss."""
    schema_forms: frozenset[Form] = frozenset()
    """What the schemas of tools and answers have to be rewritten to, each with a loss."""
    efforts: frozenset[str] = frozenset({"minimal", "low", "medium", "high"})
    """The levels of `reasoning.effort` that the server accepts; for another one the nearest goes out, with a
    loss."""
    kept_files: Literal["send", "refuse"] = "send"
    """For files that Google keeps (`gs://`, uploaded ones): `send` their addresses, which the upstream reads
    with the rights of its key, or `refuse` them."""
    unanswered_calls: UnansweredCalls = "refuse"
    """For calls without an output: `refuse` the request, or `answer` them that there is none."""
    passes: frozenset[str] = frozenset()
    """Names of fields of the body that a client may give although the Responses API does not have them, which
    go out as they are, as `safety_settings`; with `*` all of them. None overrides what the bridge makes
    itself."""
    extra: dict[str, Any] = {}
    """Fields that are added to the body of every request, before what clients give; those of
    `generation_config` are added to it."""
    omit: frozenset[str] = frozenset()
    """Names of fields of `generation_config` that this upstream refuses; each use is a loss."""


DEFAULT_OPTIONS: Final = InteractionsOptions()
