"""Options of single models: from profiles and the config, by name."""

import tomllib
from importlib import resources
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.chat_completions import ChatOptions, ThinkingFields
from openresponses_bridge.models.identity import nearest_model
from openresponses_bridge.protocol.codec import decode_json, decode_request, encode
from openresponses_bridge.seal import Sealer
from openresponses_server import upstreams
from openresponses_server.settings import SettingsError, load_settings
from openresponses_server.upstreams.profiles import names, profile
from openresponses_server.upstreams.routing.models import build_router

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
        ("moonshot", "kimi-k3", None),  # it always thinks
        ("moonshot", "kimi-k2-thinking", None),
        ("minimax", "MiniMax-M3", OFF),
        ("vllm", "moonshotai/Kimi-K2.5", ThinkingFields(chat_template_kwargs={"thinking": False})),
        ("vllm", "zai-org/GLM-4.7-FP8", TEMPLATE_OFF),
        ("moonshot", "kimi-k2-0905-preview", None),
        ("deepseek", "deepseek-v4-pro", OFF),
        ("qwen", "qwen3-max", ThinkingFields(enable_thinking=False)),
        ("openrouter", "any/model", ThinkingFields(reasoning={"enabled": False})),
    ],
)
def test_p6_how_thinking_is_turned_off(name: str, model: str, off: ThinkingFields | None) -> None:
    options = options_of(model, profile=name, api_key="${HOME}", dialect="chat")
    assert options.thinking_off == off


def test_p6_the_levels_that_a_server_takes() -> None:
    assert options_of("kimi-k3", profile="moonshot", api_key="${HOME}").efforts is None
    assert options_of("qwen/qwen3-32b", profile="groq", api_key="${HOME}").efforts == {"none", "default"}


@pytest.mark.parametrize(
    ("model", "behind_mistral"),
    [
        ("mistralai/mistral-large-2512", True),
        ("mistralai/devstral-small", True),
        ("mistralai/codestral-2508:floor", True),
        ("anthropic/claude-opus-5", False),
        ("nvidia/nemotron-3-nano", False),
    ],
)
def test_p19_models_of_mistral_behind_another_server(model: str, behind_mistral: bool) -> None:
    options = options_of(model, profile="openrouter", api_key="${HOME}")
    assert (options.call_ids == "[a-zA-Z0-9]{9}") is behind_mistral
    assert options.user_after_outputs is not behind_mistral


ALWAYS = "'none' sent as 'low'"
# (profile, model, effort asked for) → (fields of the body, the loss)
ASKED: dict[tuple[str, str, str], tuple[dict[str, Any], str | None]] = {
    ("moonshot", "kimi-k3", "medium"): ({"reasoning_effort": "high"}, "'medium' sent as 'high'"),
    ("moonshot", "kimi-k3", "xhigh"): ({"reasoning_effort": "max"}, "'xhigh' sent as 'max'"),
    ("moonshot", "kimi-k3", "none"): ({"reasoning_effort": "low"}, ALWAYS),
    ("openrouter", "moonshotai/kimi-k3", "none"): ({"reasoning_effort": "low"}, ALWAYS),
    ("openrouter", "z-ai/glm-5.3", "none"): ({"reasoning_effort": "low"}, ALWAYS),
    ("openrouter", "z-ai/glm-4.7", "none"): ({"reasoning": {"enabled": False}}, None),
    ("openrouter", "openai/gpt-5", "none"): (
        {"reasoning_effort": "minimal"},
        "'none' sent as 'minimal'",
    ),
    ("openrouter", "anthropic/claude-fable-5", "none"): ({"reasoning_effort": "low"}, ALWAYS),
    ("moonshot", "kimi-k2.5", "none"): ({"thinking": {"type": "disabled"}}, None),
    ("moonshot", "kimi-k2.5", "high"): (
        {"thinking": {"type": "enabled"}},
        "'high' left out, the model has no levels",
    ),
    ("moonshot", "kimi-k2-thinking", "none"): ({}, "'none' left out, the model has no levels"),
    ("deepseek", "deepseek-v4-pro", "low"): (
        {"reasoning_effort": "high", "thinking": {"type": "enabled"}},
        "'low' sent as 'high'",
    ),
    ("deepseek", "deepseek-v4-pro", "none"): ({"thinking": {"type": "disabled"}}, None),
    ("groq", "qwen/qwen3-32b", "high"): ({"reasoning_effort": "default"}, "'high' sent as 'default'"),
    ("groq", "openai/gpt-oss-120b", "max"): ({"reasoning_effort": "high"}, "'max' sent as 'high'"),
    ("gemini-chat", "gemini-3-pro-preview", "medium"): (
        {"reasoning_effort": "high"},
        "'medium' sent as 'high'",
    ),
    ("gemini-chat", "gemini-2.5-flash", "none"): ({"reasoning_effort": "none"}, None),
    ("gemini", "gemini-3-pro-preview", "medium"): (
        {"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True}}},
        "'medium' sent as 'high'",
    ),
    ("gemini", "gemini-3-flash-preview", "none"): (
        {"generationConfig": {"thinkingConfig": {"thinkingLevel": "MINIMAL"}}},
        "'none' sent as 'minimal'",
    ),
    ("gemini", "gemini-2.5-flash", "none"): (
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
        None,
    ),
    ("gemini", "gemini-2.5-pro", "max"): (
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 32768, "includeThoughts": True}}},
        None,
    ),
    ("gemini", "gemini-2.0-flash", "none"): ({}, None),
    ("vllm", "Qwen/Qwen3.5-35B-A3B-FP8", "none"): (
        {"chat_template_kwargs": {"enable_thinking": False}},
        None,
    ),
    ("ollama", "qwen3:8b", "none"): ({"reasoning_effort": "none"}, None),
    ("vllm", "someone/their-own", "xhigh"): ({"reasoning_effort": "xhigh"}, None),
    ("openai", "gpt-5.1", "max"): ({"reasoning": {"effort": "high"}}, "'max' sent as 'high'"),
    ("openai", "gpt-6-astra", "none"): ({"reasoning": {"effort": "low"}}, ALWAYS),
    ("openai", "gpt-5.6", "none"): ({"reasoning": {"effort": "none"}}, None),
    ("openai", "gpt-5.1", "brand-new"): ({"reasoning": {"effort": "brand-new"}}, None),
}
# a name as people run it → the entry of models.toml whose facts it has; None: no model that is known
NAMES: dict[str, str | None] = {
    "moonshotai/kimi-k2.5": "kimi-k2.5",
    "moonshotai.kimi-k2.5": "kimi-k2.5",
    "accounts/fireworks/models/kimi-k2p5": "kimi-k2.5",
    "Pro/moonshotai/Kimi-K2.5": "kimi-k2.5",
    "nvidia/Kimi-K2.5-NVFP4": "kimi-k2.5",
    "kimi-k2.5:cloud": "kimi-k2.5",
    "moonshotai/kimi-k2.55": None,
    "kimi-k25": None,
    "my-kimi-k2.5": None,
    "kimi-k2-0905-preview": "kimi-k2",
    "moonshotai/kimi-k2-thinking-maas": "kimi-k2-thinking",
    "kimi-k2-thinking-251104": "kimi-k2-thinking",
    "kimi-k3": "kimi-k3",
    "kimi-k3-mini": None,
    "Qwen/Qwen3.5-35B-A3B-FP8": "qwen3.5",
    "mlx-community/Qwen3.5-35B-A3B-4bit": "qwen3.5",
    "/models/Qwen3.5-27B-UD-Q4_K_XL.gguf": "qwen3.5",
    "qwen3.5:35b": "qwen3.5",
    "qwen3.5-plus-2026-02-15": "qwen3.5-plus",
    "Qwen/Qwen3-235B-A22B": "qwen3",
    "qwen.qwen3-coder-480b-a35b-v1:0": "qwen3-coder",
    "Qwen/Qwen2.5-72B-Instruct": None,
    "qwen3.5-omni": None,
    "zai-org/GLM-4.7-FP8": "glm-4.7",
    "z-ai/glm-4.6:free": "glm-4.6",
    "zai-glm-4.7": "glm-4.7",
    "glm-4-7-251222": "glm-4.7",
    "accounts/fireworks/models/glm-4p7": "glm-4.7",
    "glm-4.6v": "glm-4.6v",
    "unsloth/GLM-4.7-Flash-GGUF:Q4_K_M": "glm-4.7-flash",
    "zai-org/glm-5-maas": "glm-5",
    "glm-4.9": "glm-4.7",  # a newer one of the fourth generation is not of the fifth
    "glm-4-9b": None,
    "deepseek-v3-2-251201": "deepseek-v3.2",
    "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek-v3.2",
    "deepseek-v4-pro-0813": "deepseek-v4-pro",
    "deepseek-v4-flash:0731": "deepseek-v4-flash",
    "deepseek-r1-distill-qwen-32b": None,
    "deepseek-r1-0528-qwen3-8b": None,
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5",
    "minimax.minimax-m2.1": "minimax-m2.1",
    "minimax-m2-her": None,
    "XiaomiMiMo/MiMo-V2-Flash": "mimo-v2-flash",
    "xiaomi/mimo-v2.5-pro": "mimo-v2.5-pro",
    "gpt-5.4-2026-03-05": "gpt-5.4",
    "openai/gpt-5.4-mini": "gpt-5.4-mini",
    "gpt-5.4-audio": None,
    "gpt-5.6-sol": "gpt-5.6-sol",
    "claude-opus-4-8@default": "claude-opus-4-8",
    "claude-opus-4-6[1m]": "claude-opus-4-6",
    "us.anthropic.claude-opus-4-6-v1": "claude-opus-4-6",
    "global.anthropic.claude-opus-5": "claude-opus-5",
    "anthropic/claude-4.8-opus": "claude-opus-4-8",
    "claude-opus-5.5": "claude-opus-5-5",
    "google/gemini-3-flash-preview": "gemini-3-flash",
    "gemini-3-pro-image-preview": None,
}


SHIPPED = tomllib.loads(resources.files(upstreams).joinpath("models.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_p6_whose_facts_a_name_has(name: str) -> None:
    assert nearest_model(name, SHIPPED) == NAMES[name]


def test_each_model_of_the_table_is_itself() -> None:
    assert [nearest_model(name.upper(), SHIPPED) for name in SHIPPED] == list(SHIPPED)


FIELDS = (
    *("reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "enable_thinking"),
    "generationConfig",
)


@pytest.mark.parametrize(("name", "model", "effort"), ASKED, ids=" ".join)
def test_p6_what_becomes_of_a_level(name: str, model: str, effort: str) -> None:
    settings = load_settings(upstreams=[{"profile": name, "api_key": "${HOME}"}])
    target = build_router(settings, Sealer()).resolve(model)
    request = decode_request(encode({"model": model, "input": "q", "reasoning": {"effort": effort}}))
    sent = target.prepare(request, [], ToolIdentityMap())
    body = decode_json(sent.body)
    expected, loss = ASKED[name, model, effort]
    assert {field: body[field] for field in FIELDS if field in body} == expected
    assert [case.what for case in sent.diagnostics if case.where == "reasoning.effort"] == (
        [] if loss is None else [loss]
    )


def test_what_the_config_says_goes_over_the_profile() -> None:
    own = {"profile": "moonshot", "api_key": "${HOME}", "model_options": {"kimi-k3": {"efforts": ["high"]}}}
    assert options_of("kimi-k3", **own).efforts == {"high"}
    assert options_of("kimi-k3", **own).missing_reasoning == " "
    assert options_of("kimi-k3", **own, options={"efforts": ["low"]}).efforts == {"high"}
    assert options_of("kimi-k3-turbo", **own, options={"efforts": ["low"]}).efforts == {"low"}


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("tags", [[], [["<think>", ""]], [["", "</think>"]]])
def test_think_tags_that_can_not_be_any_are_found_at_once(dialect: str, tags: list[list[str]]) -> None:
    wrong = {"url": "http://127.0.0.1:1", "dialect": dialect, "options": {"think_tags": tags}}
    with pytest.raises(SettingsError, match="pairs of an opening and a closing tag"):
        build_router(load_settings(upstreams=[wrong]), Sealer())


@pytest.mark.parametrize("dialect", ["chat", "interactions"])
@pytest.mark.parametrize("place", ["options", "model_options"])
def test_a_field_that_the_bridge_makes_is_found_at_once(dialect: str, place: str) -> None:
    options = {"extra": {"stream": True}}
    value = options if place == "options" else {"m*": options}
    wrong = {"url": "http://127.0.0.1:1", "dialect": dialect, place: value}
    with pytest.raises(SettingsError, match="extra: stream is made by the bridge itself"):
        build_router(load_settings(upstreams=[wrong]), Sealer())


def test_options_that_are_wrong_are_found_at_once() -> None:
    wrong = {"url": "http://127.0.0.1:1", "model_options": {"m*": {"eforts": []}}}
    with pytest.raises(SettingsError) as raised:
        build_router(load_settings(upstreams=[wrong]), Sealer())
    assert raised.value.at == "$.upstreams[0].model_options.m*.eforts"


def test_p5_templates_that_take_one_system_message() -> None:
    one = {
        name
        for name in names()
        if "chat" in (dialects := profile(name).dialects)
        and dialects["chat"].options.get("system_messages") == "one"
    }
    one_only = {"vllm", "sglang", "vertex", "llamacpp", "lmstudio", "ollama", "qwen", "minimax"}
    assert one == one_only | {"gemini-chat", "mistral", "transformers"}
