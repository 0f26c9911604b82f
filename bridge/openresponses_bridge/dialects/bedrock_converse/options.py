"""What one server wants where servers and models of the dialect differ."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from openresponses_bridge.dialects.base import UnansweredCalls

Thinking = Literal["adaptive", "budget", "reasoning_config", "reasoning_effort", "off"]


class ConverseOptions(Struct, frozen=True, kw_only=True):
    """Options of an upstream, for differences between its servers and models."""

    thinking: Thinking | None = None
    """How effort is requested, in `additionalModelRequestFields`: `adaptive` and `budget` as Claude's
    `thinking`, `reasoning_config` as Nova's, `reasoning_effort` as OpenAI's, `off` not at all. Default: by
    the model's name."""
    efforts: frozenset[str] | None = None
    """The levels of `reasoning.effort` that the server accepts. Any other level is replaced by the nearest
    one, with a loss. Default: those of the model."""
    structured: bool | None = None
    """Whether the model accepts a schema for the answer (`outputConfig`). Default: by the model's name."""
    top_k: str | None = None
    """The path of `top_k` in `additionalModelRequestFields`; `""` for a model without it. Default: by the
    model's name."""
    cache_points: bool = False
    """Whether cache points are set at the ends of tools, system prompt and conversation, unless the client
    has set its own."""
    s3: Literal["refuse", "send"] = "refuse"
    """What is done with files at an address of S3 (`s3://…`): `refuse` refuses the request; `send` sends the
    address, which the upstream reads with the rights of its credentials."""
    unanswered_calls: UnansweredCalls = "refuse"
    """What is done with calls that have no output: `refuse` refuses the request, `answer` sends an output
    that says there is none."""
    passes: frozenset[str] = frozenset()
    """The names of fields of the body that clients may send although the Responses API does not have them,
    such as `guardrailConfig` or `additionalModelRequestFields`. They are sent unchanged. `*` stands for all.
    No such field replaces one that the bridge itself makes."""
    extra: dict[str, Any] = {}
    """Fields that are added to the body of every request. They replace fields of clients that are passed on,
    never one that the bridge itself makes. Those of `inferenceConfig` and `additionalModelRequestFields` are
    added one by one."""


DEFAULT_OPTIONS: Final = ConverseOptions()
