"""Facts that are read from the names of models."""

import pytest

from openresponses_bridge.models.identity import model_identity, nearest_model

# name → (provider, family, version, date, variant, tag)
NAMES = {
    "anthropic:claude-sonnet-4": ("anthropic", "claude-sonnet", "4", "", "", ""),
    "anthropic/claude-sonnet-4.5-20250929": ("anthropic", "claude-sonnet", "4.5", "2025-09-29", "", ""),
    "claude-opus-4-1-20250805": ("", "claude-opus", "4.1", "2025-08-05", "", ""),
    "us.anthropic.claude-3-5-sonnet-20241022-v2:0": (
        "anthropic",
        "claude-sonnet",
        "3.5",
        "2024-10-22",
        "",
        "",
    ),
    "openai/gpt-5.1-codex": ("openai", "gpt-codex", "5.1", "", "", ""),
    "gpt-4o-mini-2024-07-18": ("", "gpt-4o-mini", "", "2024-07-18", "", ""),
    "gpt-3.5-turbo-0125": ("", "gpt-turbo", "3.5", "0125", "", ""),
    "gpt-4-1106-preview": ("", "gpt", "4", "1106", "preview", ""),
    "o3-mini": ("", "o3-mini", "", "", "", ""),
    "models/gemini-2.0-flash": ("", "gemini-flash", "2.0", "", "", ""),
    "gemini-2.5-flash-preview-05-20": ("", "gemini-flash", "2.5", "05-20", "preview", ""),
    "llama3.1:8b-instruct-q4_K_M": ("", "llama", "3.1", "", "", "8b-instruct-q4_K_M"),
    "qwen2.5-coder:32b": ("", "qwen-coder", "2.5", "", "", "32b"),
    "openrouter/meta-llama/llama-3.3-70b-instruct:free": (
        "meta-llama",
        "llama",
        "3.3",
        "",
        "70b-instruct",
        "free",
    ),
    "accounts/fireworks/models/deepseek-v3": ("fireworks", "deepseek", "3", "", "", ""),
    "mistral-large-2411": ("", "mistral-large", "", "2411", "", ""),
    "claude-sonnet-4@20250514": ("", "claude-sonnet", "4", "2025-05-14", "", ""),
    "azure/gpt-35-turbo": ("azure", "gpt-turbo", "3.5", "", "", ""),
    "Meta-Llama-3.1-8B-Instruct": ("", "llama", "3.1", "", "8b-instruct", ""),
    "accounts/fireworks/models/llama-v3p1-8b-instruct": (
        "fireworks",
        "llama",
        "3.1",
        "",
        "8b-instruct",
        "",
    ),
    "grok-3": ("", "grok", "3", "", "", ""),
    "deepseek-chat": ("", "deepseek", "", "", "chat", ""),
    "mine": ("", "mine", "", "", "", ""),
    "4": ("", "4", "4", "", "", ""),
    "": ("", "", "", "", "", ""),
}


@pytest.mark.parametrize("name", NAMES)
def test_name_is_read_into_its_parts(name: str) -> None:
    read = model_identity(name)
    assert (read.provider, read.family, read.version, read.date, read.variant, read.tag) == NAMES[name]
    assert read.id == name


KNOWN = (
    "claude-3-5-sonnet",
    "claude-sonnet-4",
    "claude-opus-4",
    "claude-opus-4-1",
    "claude-opus-4-7",
    "gpt-4.1",
    "gpt-5",
    "gpt-5-mini",
    "gpt-4o",
    "gpt-4o-2024-05-13",
    "gpt-oss",
    "llama-3.1",
    "llama-3.1-8b",
)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("claude-opus-4-1", "claude-opus-4-1"),
        ("us.anthropic.claude-opus-4-20250514-v1:0", "claude-opus-4"),
        ("anthropic:claude-sonnet-4", "claude-sonnet-4"),
        # a name that only begins like a known one is a newer model, not that one
        ("claude-opus-4-8", "claude-opus-4-7"),
        ("claude-opus-5", "claude-opus-4-7"),
        ("gpt-5.9", "gpt-5"),
        ("gpt-5.9-mini", "gpt-5-mini"),
        # one that is older than all that are known of its family
        ("gpt-3", None),
        ("claude-opus-3", None),
        # a date of its own, then the name without one
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("gpt-4o-2024-11-20", "gpt-4o"),
        ("openai/gpt-oss-120b:free", "gpt-oss"),
        ("llama3.1:70b", "llama-3.1"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        # other families, however alike
        ("gpt-5-nano", None),
        ("gpt-4o-audio", None),
        ("claude-opus", "claude-opus-4-7"),
        ("", None),
        (f"gpt-{'9' * 5000}", "gpt-5"),
    ],
)
def test_facts_are_those_of_the_nearest_model_and_none_are_inherited_by_a_prefix(
    name: str, nearest: str | None
) -> None:
    assert nearest_model(name, KNOWN) == nearest
