"""Options of single models: from profiles and the config, by name."""

from typing import Any

import pytest

from openresponses_bridge.dialects.chat_completions import ChatOptions, ThinkingFields
from openresponses_bridge.seal import Sealer
from openresponses_server.settings import SettingsError, load_settings
from openresponses_server.upstreams.profiles import names, profile
from openresponses_server.upstreams.routing import build_router

TEMPLATE_OFF = ThinkingFields(chat_template_kwargs={"enable_thinking": False})
OFF = ThinkingFields(thinking={"type": "disabled"})


def options_of(model: str, **upstream: Any) -> ChatOptions:
    options = build_router(load_settings(upstreams=[upstream]), Sealer()).resolve(model).options
    assert isinstance(options, ChatOptions)
    return options


@pytest.mark.parametrize(
    ("name", "model", "off"),
    [
        ("vllm", "Qwen/Qwen3-32B", TEMPLATE_OFF),
        ("vllm", "openai/gpt-oss-20b", None),
        ("llamacpp", "qwen3-8b", TEMPLATE_OFF),
        ("moonshot", "kimi-k2.5", OFF),
        ("moonshot", "kimi-k3", OFF),
        ("moonshot", "kimi-k2-0905-preview", None),
        ("deepseek", "deepseek-v4-pro", OFF),
        ("qwen", "qwen3-max", ThinkingFields(enable_thinking=False)),
        ("openrouter", "any/model", ThinkingFields(reasoning={"enabled": False})),
    ],
)
def test_p6_how_thinking_is_turned_off(name: str, model: str, off: ThinkingFields | None) -> None:
    found = options_of(model, profile=name, api_key="${HOME}")
    assert found.thinking_off == off


def test_p6_the_levels_of_a_model() -> None:
    assert options_of("kimi-k3", profile="moonshot", api_key="${HOME}").efforts == {"low", "high", "max"}
    assert options_of("qwen/qwen3-32b", profile="groq", api_key="${HOME}").efforts == {"none", "default"}


def test_what_the_config_says_goes_over_the_profile() -> None:
    own = {"profile": "moonshot", "api_key": "${HOME}", "model_options": {"kimi-k3": {"efforts": ["high"]}}}
    assert options_of("kimi-k3", **own).efforts == {"high"}
    assert options_of("kimi-k3", **own).thinking_off == OFF
    assert options_of("kimi-k3", **own, options={"efforts": ["low"]}).efforts == {"high"}
    assert options_of("kimi-k3-turbo", **own, options={"efforts": ["low"]}).efforts == {"low"}


def test_options_that_are_wrong_are_found_at_once() -> None:
    wrong = {"url": "http://127.0.0.1:1", "model_options": {"m*": {"eforts": []}}}
    with pytest.raises(SettingsError) as raised:
        build_router(load_settings(upstreams=[wrong]), Sealer())
    assert raised.value.at == "$.upstreams[0].model_options.m*.eforts"


def test_p5_templates_that_take_one_system_message() -> None:
    one = {
        name
        for name in names()
        if "chat" in (found := profile(name).dialects)
        and found["chat"].options.get("system_messages") == "one"
    }
    assert one == {"vllm", "llamacpp", "lmstudio", "ollama", "qwen", "minimax", "gemini"}
