"""What differs between the models behind the Messages API, and between servers that speak it: data."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.models.identity import model_identity, nearest_model

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

    `facts`: what its models take, instead of what is known of Anthropic's by their names.
    `cache_control`: put on the ends of tools, system prompt and conversation, as `{"type": "ephemeral"}`,
    unless a client of this API has placed its own.
    `foreign_reasoning`: what to do with `encrypted_content` that can't be opened here.
    `unsigned_thinking`: send reasoning that has no signature; servers other than Anthropic's may want it.
    `betas`: pass on what a client of this API sends in `anthropic-beta`.
    `stream`: ask for a stream; else for one whole answer.
    `extra`: fields of the body that no request of ours has (`top_k`, `stop_sequences`, …).
    """

    facts: ModelFacts | None = None
    cache_control: dict[str, Any] | None = None
    foreign_reasoning: Literal["refuse", "drop"] = "refuse"
    unsigned_thinking: bool = False
    betas: bool = True
    stream: bool = True
    extra: dict[str, Any] = {}


DEFAULT_OPTIONS: Final = MessagesOptions()
_EFFORTS = ("low", "medium", "high", "max")
_MORE_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_UNKNOWN_CLAUDE: Final = ModelFacts(32_000, "adaptive", True, False, _MORE_EFFORTS, known=False)
_UNKNOWN: Final = ModelFacts(8_192, "budget", known=False)

# A model that is not here, of a family that is, has the facts of that family's newest; those are a guess.
_FACTS: Final[dict[str, ModelFacts]] = {
    "claude-2": ModelFacts(4_096),
    "claude-3-haiku": ModelFacts(4_096),
    "claude-3-sonnet": ModelFacts(4_096),
    "claude-3-opus": ModelFacts(4_096),
    "claude-3-5-haiku": ModelFacts(8_192),
    "claude-3-5-sonnet": ModelFacts(8_192),
    "claude-3-7-sonnet": ModelFacts(64_000, "budget"),
    "claude-opus-4": ModelFacts(32_000, "budget"),
    "claude-opus-4-1": ModelFacts(32_000, "budget"),
    "claude-opus-4-5": ModelFacts(64_000, "budget", True),
    "claude-opus-4-6": ModelFacts(128_000, "adaptive", True, True, _EFFORTS),
    "claude-opus-4-7": ModelFacts(128_000, "adaptive", True, False, _MORE_EFFORTS),
    "claude-sonnet-4": ModelFacts(64_000, "budget"),
    "claude-sonnet-4-5": ModelFacts(64_000, "budget", True),
    "claude-sonnet-4-6": ModelFacts(64_000, "adaptive", True, True, _EFFORTS),
    "claude-haiku-4-5": ModelFacts(64_000, "budget", True),
}


def facts_of(model: str) -> ModelFacts:
    """The facts of a model by its name, whatever a cloud puts before it (`us.anthropic.claude-…`) and
    however it writes versions (`4.5`, `4-5`)."""
    name = model.lower()
    if "claude" not in name:
        return _UNKNOWN
    name = name[name.find("claude") :]
    nearest = nearest_model(name, _FACTS)
    if nearest is None:
        return _UNKNOWN_CLAUDE
    facts = _FACTS[nearest]
    version, other = (model_identity(each).version for each in (name, nearest))
    return facts if version == other else replace(facts, known=False)
