"""Differences between the families of models behind Converse, by their names.

A model's id contains its maker, such as `us.anthropic.claude-…`, or is an ARN that ends like that. Nothing is
known from any other name, such as an application's inference profile; the options of the upstream decide
then.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from openresponses_bridge.dialects.bedrock_converse.options import ConverseOptions, Thinking


class ModelFacts(Struct, frozen=True):
    """The facts about one family."""

    thinking: Thinking = "off"
    """The way to ask for effort."""
    efforts: frozenset[str] | None = None
    """The levels that the models accept; None for any."""
    structured: bool = True
    """True if the models accept a schema for the answer."""
    top_k: str = "top_k"
    """The path of `top_k` in the model's own fields; "" if it has none."""


_NOVA_TOP_K: Final = "inferenceConfig.topK"
_GRADES: Final = frozenset({"low", "medium", "high"})
_LEVELS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
_BUDGET: Final = ModelFacts("budget", _LEVELS)
_OLDER: Final = ModelFacts("budget", _LEVELS, structured=False)
_SILENT: Final = ModelFacts(structured=False)
# part of a name → facts; the first part that the name contains counts
_FAMILIES: Final = (
    ("claude-3-7", _OLDER),
    ("claude-3", _SILENT),
    ("claude-v2", _SILENT),
    ("claude-instant", _SILENT),
    ("claude-sonnet-4-2025", _OLDER),
    ("claude-opus-4-2025", _OLDER),
    ("claude-opus-4-1", _OLDER),
    ("claude-sonnet-4-5", _BUDGET),
    ("claude-opus-4-5", _BUDGET),
    ("claude-haiku-4-5", _BUDGET),
    ("claude", ModelFacts("adaptive", _LEVELS)),
    ("nova-2", ModelFacts("reasoning_config", _GRADES, False, _NOVA_TOP_K)),
    ("amazon.nova", ModelFacts(structured=False, top_k=_NOVA_TOP_K)),
    ("amazon.titan", ModelFacts(structured=False, top_k="")),
    ("meta.llama", ModelFacts(structured=False, top_k="")),
    ("cohere.command", ModelFacts(structured=False, top_k="k")),
    ("ai21.", ModelFacts(structured=False, top_k="")),
    ("openai.gpt-oss", ModelFacts("reasoning_effort", _GRADES, top_k="")),
)
_UNKNOWN: Final = ModelFacts()
SMALLEST_BUDGET: Final = 1024
BUDGETS: Final = {
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}
"""Levels of effort → tokens of thinking."""
ANSWER_ROOM: Final = 1024
"""Tokens that thinking must leave for the answer."""


def facts_of(model: str, options: ConverseOptions) -> ModelFacts:
    """Return the facts of a model by its name, except those that the options set."""
    name = model.lower()
    family = next((facts for part, facts in _FAMILIES if part in name), _UNKNOWN)
    return ModelFacts(
        options.thinking or family.thinking,
        options.efforts or family.efforts,
        family.structured if options.structured is None else options.structured,
        family.top_k if options.top_k is None else options.top_k,
    )
