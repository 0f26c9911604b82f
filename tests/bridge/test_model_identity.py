"""Names of models, read."""

import pytest

from bridge.model_identity import model_identity, same_model

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


def test_the_same_model_by_any_name() -> None:
    assert same_model("anthropic/claude-sonnet-4-20250514", "anthropic:claude-sonnet-4")
    assert same_model("openai/gpt-4o", "gpt-4o-2024-08-06")
    assert not same_model("gpt-4o", "gpt-4o-mini")
    assert not same_model("claude-sonnet-4", "claude-sonnet-4.5")
    assert not same_model("llama3.1:8b", "llama3.1:70b")
