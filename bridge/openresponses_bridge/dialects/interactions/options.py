"""What one server wants where servers of the dialect differ."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from openresponses_bridge.dialects.base import UnansweredCalls
from openresponses_bridge.schemas.rewriting import Form


class InteractionsOptions(Struct, frozen=True, kw_only=True):
    """Options of an upstream, for differences between its servers."""

    schema_omit: frozenset[str] = frozenset()
    """Keywords that are removed from the schemas of tools and answers, each with a loss."""
    schema_forms: frozenset[Form] = frozenset()
    """How the schemas of tools and answers are rewritten, each with a loss."""
    efforts: frozenset[str] = frozenset({"minimal", "low", "medium", "high"})
    """The levels of `reasoning.effort` that the server accepts. Any other level is replaced by the nearest
    one, with a loss."""
    kept_files: Literal["send", "refuse"] = "send"
    """What is done with files that Google keeps (`gs://`, uploaded ones): `send` sends their addresses, which
    the upstream reads with the rights of its key; `refuse` refuses the request."""
    unanswered_calls: UnansweredCalls = "refuse"
    """What is done with calls that have no output: `refuse` refuses the request, `answer` sends an output
    that says there is none."""
    passes: frozenset[str] = frozenset()
    """The names of fields of the body that clients may send although the Responses API does not have them,
    such as `safety_settings`. They are sent unchanged. `*` stands for all. No such field replaces one that
    the bridge itself makes."""
    extra: dict[str, Any] = {}
    """Fields that are added to the body of every request. They replace fields of clients that are passed on,
    never one that the bridge itself makes. Those of `generation_config` are added one by one. `stream` is
    refused: the client decides that."""
    omit: frozenset[str] = frozenset()
    """The names of fields of `generation_config` that this upstream refuses. Each use is a loss."""

    def __post_init__(self) -> None:
        if "stream" in self.extra:  # where a whole answer is asked for, the body has none, which it would add
            raise ValueError("extra: stream is made by the bridge itself")


DEFAULT_OPTIONS: Final = InteractionsOptions()
