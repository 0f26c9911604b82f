"""What one server wants where servers and models of the dialect differ."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from openresponses_bridge.dialects.base import UnansweredCalls

Thinking = Literal["adaptive", "budget", "reasoning_config", "reasoning_effort", "off"]


class ConverseOptions(Struct, frozen=True, kw_only=True):
    """Options of an upstream, where servers and models differ."""

    thinking: Thinking | None = None
    """How effort is asked for, in `additionalModelRequestFields`: `adaptive` and `budget` as Claude's
    `thinking`, `reasoning_config` as Nova's, `reasoning_effort` as OpenAI's, or not at all. Default: as the
    model's name says."""
    efforts: frozenset[str] | None = None
    """The levels of `reasoning.effort` that the server accepts; for another one the nearest goes out, with a
    loss. Default: those of the model."""
    structured: bool | None = None
    """Whether it takes a schema for the answer (`outputConfig`). Default: as the model's name says."""
    top_k: str | None = None
    """The path of `top_k` in `additionalModelRequestFields`, "" for a model without it. Default: as the
    model's name says."""
    cache_points: bool = False
    """Set cache points at the ends of tools, system prompt and conversation, unless the client has set its
    own."""
    s3: Literal["refuse", "send"] = "refuse"
    """For files at an address of S3 (`s3://…`): `refuse` them, or `send` the address, which the upstream
    reads with the rights of its credentials."""
    unanswered_calls: UnansweredCalls = "refuse"
    """For calls without an output: `refuse` the request, or `answer` them that there is none."""
    passes: frozenset[str] = frozenset()
    """Names of fields of the body that a client may give although the Responses API does not have them, which
    go out as they are, as `guardrailConfig` or `additionalModelRequestFields`; with `*` all of them. None
    overrides what the bridge makes itself."""
    extra: dict[str, Any] = {}
    """Fields that are added to the body of every request, before what clients give; those of
    `inferenceConfig` and `additionalModelRequestFields` are added to them."""


DEFAULT_OPTIONS: Final = ConverseOptions()
