"""Token estimates: near recorded counts, in any script, in linear time."""

import json
from pathlib import Path

import pytest

from openresponses_bridge.dialects import anthropic_messages, chat_completions
from openresponses_bridge.dialects.base.surface import RequestHead
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.models.tokens import (
    TOKENS_PER_FILE,
    TOKENS_PER_IMAGE,
    request_tokens,
)
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.items import Message
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer
from tests.support.shared import shared_files
from tests.support.tokens import item_tokens, text_tokens

# recorded streams whose output is text or calls and nothing hidden
COUNTED = shared_files(
    "chat",
    "openai-python-2018*",
    "openai-python-7e5e*",
    "openai-python-a247*",
    "openai-python-c6aa*",
    "xai-*",
)


@pytest.mark.parametrize("path", COUNTED)
def test_estimate_is_near_the_recorded_count(path: Path) -> None:
    inbound = chat_completions.Inbound(machine := ResponseStreamStateMachine("m"))
    for line in path.read_bytes().splitlines():
        payload = line.removeprefix(b"data: ").strip()
        if payload.startswith(b"{"):
            inbound.feed(payload)
    inbound.close()
    response = machine.snapshot
    assert response.usage is not None
    estimate = sum(item_tokens(item) - 4 for item in response.output)
    assert response.usage.output_tokens * 0.6 <= estimate <= response.usage.output_tokens * 1.6


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", 0, 0),
        ("Hello, world!", 3, 5),
        ("The quick brown fox jumps over the lazy dog.", 9, 11),
        ("internationalisation", 3, 6),
        ("1234567890", 4, 4),
        ('{"name":"value","count":12}', 8, 14),
        ("今日はいい天気ですね", 6, 11),
        ("Привет, как дела?", 5, 9),
        ("😀😀😀", 3, 6),
        ("a\n\n\nb", 3, 4),
        ("////////////////////", 1, 8),
    ],
)
def test_texts_of_all_kinds(text: str, low: int, high: int) -> None:
    assert low <= text_tokens(text) <= high


def test_a_request_counts_everything_that_is_sent() -> None:
    body = {
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}}],
        "input": [
            {"type": "message", "role": "user", "content": "Hello"},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
                    {"type": "input_image", "image_url": "https://e.org/a.png"},
                    {"type": "input_file", "file_data": "AAAA"},
                ],
            },
            {"type": "reasoning", "summary": [], "encrypted_content": "x" * 400},
            {"type": "hosted_call", "count": 3, "done": True, "nothing": None},
        ],
    }
    bare = request_tokens(decode_request(json.dumps({"input": []})))
    assert bare == 0
    whole = request_tokens(decode_request(json.dumps(body)))
    media = TOKENS_PER_IMAGE["low"] + TOKENS_PER_IMAGE["auto"] + TOKENS_PER_FILE
    assert media + 100 < whole < media + 170


def test_text_input_and_history() -> None:
    request = decode_request(json.dumps({"input": "Hello"}))
    assert request_tokens(request) == 5
    past = Message("msg", "completed", "assistant", [])
    assert request_tokens(request, [past]) == 9


def test_growth_is_linear() -> None:
    small, large = "word " * 1_000, "word " * 10_000
    assert text_tokens(large) == 10 * text_tokens(small)
    assert text_tokens("x" * 100_000) > 9_000


SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": "Where"}}}
SAID = "Some words about the weather in Paris today, and more. " * 2
FUNCTION = {"name": "look", "description": "Looks at it", "parameters": SCHEMA}
CALL = {"name": "look", "arguments": '{"path":"a"}'}
ON_EVERY_SURFACE = {
    "responses": {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": SAID},
            {"role": "assistant", "content": "Fine."},
            {"type": "function_call", "call_id": "c1", **CALL},
            {"type": "function_call_output", "call_id": "c1", "output": "found it"},
            {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        ],
        "tools": [{"type": "function", **FUNCTION}],
    },
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": SAID},
            {
                "role": "assistant",
                "content": "Fine.",
                "tool_calls": [{"id": "c1", "type": "function", "function": CALL}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "found it"},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
    },
    "anthropic": {
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": SAID},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Fine."},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"path": "a"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "found it"},
                    {"type": "text", "text": "Hello"},
                ],
            },
        ],
        "tools": [{"name": "look", "description": "Looks at it", "input_schema": SCHEMA}],
    },
}
CLIENTS = {"chat": chat_completions, "anthropic": anthropic_messages}


def as_read(surface: str) -> CreateResponse:
    body = json.dumps({"model": "m", **ON_EVERY_SURFACE[surface]}).encode()
    if surface == "responses":
        return decode_request(body)
    api = CLIENTS[surface].DIALECT.surface
    assert api is not None
    return api.read(body, RequestHead(sealer=Sealer())).request


@pytest.mark.parametrize("surface", CLIENTS)
def test_one_request_is_estimated_alike_over_every_surface(surface: str) -> None:
    assert request_tokens(as_read(surface)) == request_tokens(as_read("responses"))


@pytest.mark.parametrize("text", ["a", " ", "-", "\n", "é", "\u200b", "....", "/"])
def test_no_text_is_less_than_a_token(text: str) -> None:
    assert text_tokens(text) == 1
