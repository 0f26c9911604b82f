"""Tables of the differences between Google's models: the thinking for an effort, and what they accept."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from msgspec import Struct

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import fitted_effort

Thinking = Literal["level", "budget", "off"]

_NAME: Final = re.compile(r"gemini-(?P<major>\d{1,2})(?:[.-](?P<minor>\d{1,2}))?(?![0-9])")


class ModelFacts(Struct, frozen=True):
    """The facts about one model: what it accepts."""

    thinking: Thinking = "level"
    """How a request asks for thinking: by a level, by a budget of tokens, or not at all."""
    efforts: tuple[str, ...] = ("minimal", "low", "medium", "high")
    """The levels of effort; `none` is among them if thinking can be turned off."""
    smallest: int = 0
    """The least tokens of a budget that thinks."""
    largest: int = 24_576
    """The most tokens of a budget."""
    media_in_outputs: bool = True
    """Whether the output of a call may have images and files; otherwise they stand beside it."""
    mixes_tools: bool = True
    """Whether functions and server tools may be declared together."""


_OLD: Final = ModelFacts("off", (), media_in_outputs=False, mixes_tools=False)
_EVERY: Final = ("none", "minimal", "low", "medium", "high")


def facts_of(model: str) -> ModelFacts:
    """Return the facts of a model by its name. A model without a version counts as the newest; other families
    think as their servers decide."""
    name = model.lower()
    match = _NAME.search(name)
    if match is None:
        return ModelFacts() if "gemini" in name else _OLD
    version = (int(match["major"]), int(match["minor"] or 0))
    if version >= (3, 0):
        is_pro = "pro" in name and "flash" not in name
        levels = ("low", "high") if version == (3, 0) else ("low", "medium", "high")
        return ModelFacts(efforts=levels) if is_pro else ModelFacts()
    if version < (2, 5):
        return _OLD
    budget = ModelFacts("budget", _EVERY, 1, media_in_outputs=False, mixes_tools=False)
    if "flash-lite" in name:
        return ModelFacts("budget", _EVERY, 512, media_in_outputs=False, mixes_tools=False)
    if "flash" in name:
        return budget
    return ModelFacts("budget", _EVERY[1:], 128, 32_768, media_in_outputs=False, mixes_tools=False)


# tokens, as at Google's own address for Chat; the largest for levels above high
_BUDGETS: Final = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}


def thinking_config(
    effort: str, thinking: Thinking, efforts: frozenset[str], facts: ModelFacts, diagnostics: Diagnostics
) -> dict[str, Any]:
    """Return the fields of `thinkingConfig` for an effort; {} if the model has no levels."""
    if thinking == "off":
        if effort != "none":
            diagnostics.loss("reasoning.effort", "the model does not think")
        return {}
    if thinking == "budget":
        if effort in ("xhigh", "max"):
            return {"thinkingBudget": facts.largest}
        level = fitted_effort(effort, efforts, diagnostics)
        budget = 0 if level is None else min(_BUDGETS[level], facts.largest)
        return {} if level is None else {"thinkingBudget": budget and max(budget, facts.smallest)}
    level = fitted_effort(effort, efforts, diagnostics)
    return {} if level is None else {"thinkingLevel": level.upper()}
