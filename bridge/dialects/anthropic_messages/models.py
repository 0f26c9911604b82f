"""What differs between the models behind the Messages API, and between servers that speak it: data."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

Thinking = Literal["none", "budget", "adaptive"]


class ModelFacts(Struct, frozen=True):
    """One model. `max_tokens` is its output limit in tokens; `thinking` how it is asked to think: with a
    budget of tokens or by effort; `structured` whether it takes JSON schemas; `sampling` whether it takes
    temperature and top_p; `efforts` the levels it knows. `known`: these are its facts, not a guess."""

    max_tokens: int
    thinking: Thinking = "none"
    structured: bool = False
    sampling: bool = True
    efforts: tuple[str, ...] = ()
    known: bool = True


class MessagesOptions(Struct, frozen=True, kw_only=True):
    """What one upstream wants where servers differ.

    `facts`: instead of the table's. `cache_control`: put on the ends of tools, system prompt and
    conversation, as `{"type": "ephemeral"}`. `foreign_reasoning`: what to do with `encrypted_content`
    that can't be opened here. `unsigned_thinking`: send reasoning that has no signature (servers other
    than Anthropic's may want it). `extra`: fields of the body that no request of ours has (`top_k`,
    `stop_sequences`, …).
    """

    facts: ModelFacts | None = None
    cache_control: dict[str, Any] | None = None
    foreign_reasoning: Literal["refuse", "drop"] = "refuse"
    unsigned_thinking: bool = False
    stream: bool = True
    extra: dict[str, Any] = {}


DEFAULT_OPTIONS: Final = MessagesOptions()
_EFFORTS = ("low", "medium", "high", "max")
_MORE_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_UNKNOWN_CLAUDE: Final = ModelFacts(32_000, "adaptive", True, False, _MORE_EFFORTS, known=False)
_UNKNOWN: Final = ModelFacts(8_192, "budget", known=False)

# a model's name begins with → its facts; the longest beginning counts
_FACTS: dict[str, ModelFacts] = {
    "claude-2": ModelFacts(4_096),
    "claude-3-": ModelFacts(4_096),
    "claude-3-5-": ModelFacts(8_192),
    "claude-3-7-": ModelFacts(64_000, "budget"),
    "claude-opus-4": ModelFacts(32_000, "budget"),
    "claude-opus-4-1": ModelFacts(32_000, "budget"),
    "claude-opus-4-5": ModelFacts(64_000, "budget", True),
    "claude-opus-4-6": ModelFacts(128_000, "adaptive", True, True, _EFFORTS),
    "claude-opus-4-7": ModelFacts(128_000, "adaptive", True, False, _MORE_EFFORTS),
    "claude-sonnet-4": ModelFacts(64_000, "budget"),
    "claude-sonnet-4-5": ModelFacts(64_000, "budget", True),
    "claude-sonnet-4-6": ModelFacts(64_000, "adaptive", True, True, _EFFORTS),
    "claude-haiku-4-5": ModelFacts(64_000, "budget", True),
    "claude-": _UNKNOWN_CLAUDE,
}


def facts_of(model: str) -> ModelFacts:
    """The facts of a model by its name, whatever a cloud puts before it (`us.anthropic.claude-…`) and
    however it writes versions (`4.5`, `4-5`)."""
    name = model.lower().replace(".", "-")
    name = name[max(name.find("claude"), 0) :]
    beginnings = [beginning for beginning in _FACTS if name.startswith(beginning)]
    return _FACTS[max(beginnings, key=len)] if beginnings else _UNKNOWN
