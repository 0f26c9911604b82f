"""Tables of the differences between models behind the Messages API, and between its servers."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.dialects.base import UnansweredCalls
from openresponses_bridge.models.identity import model_identity, nearest_model

Thinking = Literal["none", "budget", "adaptive"]
Unthinking = Literal["absent", "disabled", "between_tools", "impossible"]


class ModelFacts(Struct, frozen=True):
    """What one model accepts."""

    max_tokens: int
    """The output limit, in tokens."""
    thinking: Thinking = "none"
    """How a request asks for thinking: by a budget of tokens, by effort, or not at all."""
    structured: bool = False
    """Whether the model accepts JSON schemas for its output."""
    sampling: bool = True
    """Whether the model accepts `temperature` and `top_p`."""
    efforts: tuple[str, ...] = ()
    """The levels of effort that the model accepts."""
    known: bool = True
    """Whether these facts are known. `false`: they are guesses."""
    prefill: bool = True
    """Whether a conversation may end with the assistant's text, which the model then continues."""
    unthinking: Unthinking = "absent"
    """How a request turns thinking off: by not asking for it, by this `thinking.type`, or not at all."""
    forced_calls: bool = True
    """Whether a request may require a tool call."""
    system_turns: bool = False
    """Whether a system message may be within the conversation."""


class MessagesOptions(Struct, frozen=True, kw_only=True):
    """Options of an upstream, for differences between its servers."""

    facts: ModelFacts | None = None
    """What its models accept. Default: what is known of Anthropic's models, by name."""
    cache_control: dict[str, Any] | None = None
    """The `cache_control`, such as `{"type": "ephemeral"}`, that is set at the ends of tools, system prompt
    and conversation, unless the client has set its own. Default: none."""
    foreign_reasoning: Literal["refuse", "drop"] = "drop"
    """What is done with `encrypted_content` of reasoning that can't be opened here, because another server or
    another key sealed it: `drop` leaves it out, with a loss; `refuse` refuses the request."""
    unsigned_thinking: bool = False
    """Whether reasoning without a signature is sent. Servers other than Anthropic's may accept it."""
    unanswered_calls: UnansweredCalls = "refuse"
    """What is done with calls that have no output: `refuse` refuses the request, `answer` sends an output
    that says there is none."""
    web_search: bool = True
    """Whether the server has Anthropic's web search. If not, a search is a loss."""
    betas: bool = True
    """Whether a client's header `anthropic-beta` is sent."""
    stream: bool = True
    """Whether a stream is requested. If not, one whole answer is."""
    extra: dict[str, Any] = {}
    """Fields that are added to the body of every request. They replace fields of clients that are passed on,
    never one that the bridge itself makes."""


DEFAULT_OPTIONS: Final = MessagesOptions()
_EFFORTS = ("low", "medium", "high", "max")
_MORE_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_UNKNOWN_CLAUDE: Final = ModelFacts(
    32_000, "adaptive", True, False, _MORE_EFFORTS, known=False, prefill=False, system_turns=True
)
_UNKNOWN: Final = ModelFacts(8_192, "budget", known=False, unthinking="disabled")
_ADAPTIVE: Final = ModelFacts(128_000, "adaptive", True, False, _MORE_EFFORTS, prefill=False)
_INSTRUCTED: Final = replace(_ADAPTIVE, system_turns=True)
_FABLE_5: Final = replace(_INSTRUCTED, unthinking="impossible")

# An unknown model of a known family gets the facts of the newest model of that family, as a guess.
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
    "claude-opus-4-6": ModelFacts(128_000, "adaptive", True, True, _EFFORTS, prefill=False),
    "claude-opus-4-7": _ADAPTIVE,
    "claude-opus-4-8": _INSTRUCTED,
    "claude-opus-5": replace(_INSTRUCTED, unthinking="disabled"),
    "claude-opus-5-5": replace(_INSTRUCTED, unthinking="impossible", forced_calls=False),
    "claude-sonnet-4": ModelFacts(64_000, "budget"),
    "claude-sonnet-4-5": ModelFacts(64_000, "budget", True),
    "claude-sonnet-4-6": ModelFacts(64_000, "adaptive", True, True, _EFFORTS, prefill=False),
    "claude-sonnet-5": replace(_INSTRUCTED, unthinking="disabled"),
    "claude-sonnet-5-5": replace(_INSTRUCTED, unthinking="between_tools", forced_calls=False),
    "claude-haiku-4-5": ModelFacts(64_000, "budget", True),
    "claude-haiku-5-5": replace(_INSTRUCTED, unthinking="disabled"),
    "claude-fable-5": _FABLE_5,
    "claude-fable-5-1": replace(_FABLE_5, forced_calls=False),
    "claude-mythos-5": _FABLE_5,
    "claude-mythos-5-1": replace(_FABLE_5, forced_calls=False),
}


def facts_of(model: str) -> ModelFacts:
    """The facts of a model by its name, with any prefix of a cloud (`us.anthropic.claude-…`) and any spelling
    of versions (`4.5`, `4-5`)."""
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
