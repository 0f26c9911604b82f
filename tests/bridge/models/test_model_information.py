"""A model as VS Code shows it."""

from typing import Any

import pytest

from openresponses_bridge.models.information import UNKNOWN_CONTEXT, UNKNOWN_OUTPUT, EnrichedModelData


def test_information_has_vs_codes_names() -> None:
    model = EnrichedModelData.of(
        "claude-opus-4-1-20250805",
        "anthropic",
        title="Claude Opus 4.1",
        context_window=200_000,
        max_output_tokens=32_000,
        tools=True,
        images=True,
        reasoning=True,
        efforts=("none", "low", "xhigh"),
        pricing="$15 in, $75 out per 1M tokens",
    )
    assert model.information() == {
        "id": "claude-opus-4-1-20250805",
        "name": "Claude Opus 4.1",
        "family": "claude-opus",
        "version": "4.1",
        "maxInputTokens": 168_000,
        "maxOutputTokens": 32_000,
        "capabilities": {"imageInput": True, "toolCalling": True},
        "tooltip": "claude-opus-4-1-20250805: 168,000 tokens in, 32,000 out",
        "detail": "anthropic",
        "isUserSelectable": True,
        "pricing": "$15 in, $75 out per 1M tokens",
        "configurationSchema": {
            "properties": {
                "reasoningEffort": {
                    "type": "string",
                    "title": "Thinking Effort",
                    "enum": ["auto", "none", "low", "xhigh"],
                    "enumItemLabels": ["Auto", "None", "Low", "Extra high"],
                    "default": "auto",
                    "group": "navigation",
                }
            }
        },
    }


@pytest.mark.parametrize(
    ("known", "efforts"),
    [
        ({}, ()),
        ({"reasoning": True}, ("low", "medium", "high")),
        ({"reasoning": False, "efforts": ("low",)}, ()),
        ({"reasoning": True, "efforts": ()}, ()),
        ({"efforts": ("high", "max")}, ("high", "max")),
    ],
)
def test_efforts_can_be_chosen_where_there_are_some(known: dict[str, Any], efforts: tuple[str, ...]) -> None:
    model = EnrichedModelData.of("mine", "here", **known)
    assert model.efforts == efforts
    assert ("configurationSchema" in model.information()) == bool(efforts)


@pytest.mark.parametrize(
    ("known", "limits", "abilities"),
    [
        ({}, (UNKNOWN_CONTEXT - UNKNOWN_OUTPUT, UNKNOWN_OUTPUT, False), (True, False)),
        ({"context_window": 4096}, (2048, 4096, True), (True, False)),
        ({"context_window": 4096, "max_output_tokens": 9999}, (2048, 4096, True), (True, False)),
        ({"max_input_tokens": 1000, "max_output_tokens": 100}, (1000, 100, True), (True, False)),
        (
            {"context_window": 400, "max_input_tokens": 300, "max_output_tokens": 100},
            (300, 100, True),
            (True, False),
        ),
        (
            {"tools": False, "images": True},
            (UNKNOWN_CONTEXT - UNKNOWN_OUTPUT, UNKNOWN_OUTPUT, False),
            (False, True),
        ),
    ],
)
def test_limits_are_numbers_whatever_is_known(
    known: dict[str, Any], limits: tuple[int, int, bool], abilities: tuple[bool, bool]
) -> None:
    model = EnrichedModelData.of("mine", "here", **known)
    assert (model.max_input_tokens, model.max_output_tokens, model.limits_known) == limits
    assert (model.tools, model.images) == abilities
    assert ("not known" in model.information()["tooltip"]) is not model.limits_known


def test_an_alias_has_the_family_of_its_model() -> None:
    model = EnrichedModelData.of("fast", "here", model="gpt-4o-mini-2024-07-18")
    assert (model.id, model.name, model.family, model.version) == (
        "fast",
        "fast",
        "gpt-4o-mini",
        "2024-07-18",
    )
