"""Upstreams' descriptions of their models, in the layout of each."""

import json
from typing import Any

import pytest

from openresponses_server.settings import Capabilities
from openresponses_server.upstreams.catalog import MOST_MODELS, ReportedModel, reported_models

# an entry of a list → (title, what is known by it); fields and shapes are each server's, the values are ours
ENTRIES: dict[str, tuple[dict[str, Any], str, Capabilities]] = {
    "ours": (
        {"context_window": 10, "max_output_tokens": 5, "capabilities": {"tools": False, "images": True}},
        "",
        Capabilities(context_window=10, max_output_tokens=5, tools=False, images=True),
    ),
    "openrouter": (
        {
            "name": "Vendor: Model",
            "context_length": 10,
            "architecture": {"input_modalities": ["text", "image"]},
            "top_provider": {"context_length": 8, "max_completion_tokens": 4},
            "supported_parameters": ["temperature", "tools", "reasoning"],
        },
        "Vendor: Model",
        Capabilities(context_window=10, max_output_tokens=4, tools=True, images=True, reasoning=True),
    ),
    "openrouter, text only": (
        {"architecture": {"input_modalities": ["text"]}, "supported_parameters": ["temperature"]},
        "",
        Capabilities(tools=False, images=False, reasoning=False),
    ),
    "ours, calls in whole answers": (
        {"capabilities": {"tools": True, "streaming_tool_calls": False}},
        "",
        Capabilities(tools=True, streaming_tool_calls=False),
    ),
    "vllm": ({"max_model_len": 10}, "", Capabilities(context_window=10)),
    "groq": (
        {"context_window": 10, "max_completion_tokens": 5},
        "",
        Capabilities(context_window=10, max_output_tokens=5),
    ),
    "mistral": (
        {"max_context_length": 10, "capabilities": {"function_calling": True, "vision": False}},
        "",
        Capabilities(context_window=10, tools=True, images=False),
    ),
    "lm studio": ({"max_context_length": 10, "capabilities": ["tool_use"]}, "", Capabilities(10, tools=True)),
    "llama.cpp": ({"meta": {"n_ctx_train": 10}}, "", Capabilities(context_window=10)),
    "anthropic": (
        {
            "display_name": "Model 1",
            "max_input_tokens": 10,
            "max_tokens": 5,
            "capabilities": {"image_input": {"supported": True}, "thinking": {"supported": True}},
        },
        "Model 1",
        Capabilities(10, 10, 5, images=True, reasoning=True),
    ),
    "gemini": (
        {"displayName": "Model 2", "inputTokenLimit": 10, "outputTokenLimit": 5},
        "Model 2",
        Capabilities(10, 10, 5),
    ),
    "copilot": (
        {
            "capabilities": {
                "limits": {"max_context_window_tokens": 10, "max_prompt_tokens": 8, "max_output_tokens": 2},
                "supports": {"tool_calls": True, "vision": False},
            }
        },
        "",
        Capabilities(10, 8, 2, tools=True, images=False),
    ),
    "vercel": (
        {"context_window": 10, "max_tokens": 5, "tags": ["vision", "tool-use"]},
        "",
        Capabilities(10, None, 5, tools=True, images=True),
    ),
    "fireworks": (
        {"context_length": 10, "supports_tools": True, "supports_image_input": False},
        "",
        Capabilities(10, tools=True, images=False),
    ),
    "nothing": ({}, "", Capabilities()),
    "lies": (
        {
            "context_window": -1,
            "max_output_tokens": 10**30,
            "max_tokens": True,
            "context_length": "10",
            "capabilities": {"tools": "yes", "limits": [1], "supports": None},
            "tags": [{}, 7],
            "supported_parameters": {"tools": True},
            "display_name": ["x"],
            "architecture": 5,
        },
        "",
        Capabilities(),
    ),
    "a limit of zero": ({"context_length": 0, "max_model_len": 10}, "", Capabilities(context_window=10)),
}


@pytest.mark.parametrize("server", ENTRIES)
@pytest.mark.parametrize("place", ["data", "models", ""])
def test_limits_and_abilities_are_read_in_every_layout(server: str, place: str) -> None:
    entry, title, known = ENTRIES[server]
    listed: Any = [{"id": "m", **entry}]
    body = json.dumps({place: listed} if place else listed).encode()
    assert reported_models(body) == [ReportedModel("m", title, known)]


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"5", b"{}", b'{"data": 5}', b"[1, null, []]", b'{"data": [{"id": ""}, {}]}']
)
def test_anything_else_is_an_empty_list(body: bytes) -> None:
    assert reported_models(body) == []


def test_a_list_is_bounded_and_a_name_is_there_once() -> None:
    entries = [{"id": "m", "context_window": 5}, {"id": "m"}, {"id": "x" * 1000}]
    entries += [{"id": str(number)} for number in range(MOST_MODELS + 10)]
    models = reported_models(json.dumps(entries).encode())
    assert models[0] == ReportedModel("m", "", Capabilities(context_window=5))
    assert len(models) == MOST_MODELS - 2
