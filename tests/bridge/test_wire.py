"""E10: which spelling a request gets."""

import json
from typing import Any

import pytest

from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.wire import choose_wire
from tests.support.shared import shared_files


def wire(headers: dict[str, str] | None = None, **request: Any) -> str:
    return choose_wire(decode_request(json.dumps(request)), headers or {})


@pytest.mark.parametrize(
    "request_",
    [
        {"tools": [{"type": "custom", "name": "x"}]},
        {"tools": [{"type": "shell"}]},
        {"tools": [{"type": "local_shell"}]},
        {"tools": [{"type": "apply_patch"}]},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{"type": "namespace", "name": "n", "tools": []}]},
        {"tools": [{"type": "tool_search"}]},
        {"input": [{"type": "additional_tools", "tools": []}]},
        {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "x", "input": "y"}]},
        {"input": [{"type": "custom_tool_call_output", "call_id": "c", "output": "y"}]},
    ],
    ids=str,
)
def test_e10_openai_only_tools_and_items_get_openai(request_: dict[str, Any]) -> None:
    assert wire(**request_) == "openai"


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"input": "x"},
        {"tools": [{"type": "function", "name": "f"}], "input": [{"role": "user", "content": "x"}]},
        {"tools": [{"type": "acme:search"}], "input": [{"type": "acme:thing", "id": "1"}]},
        {"input": [{"type": "item_reference", "id": "x"}, {"id": "y"}]},
        {"input": [{"type": "reasoning", "summary": []}, {"type": "compaction", "encrypted_content": "x"}]},
    ],
    ids=str,
)
def test_e10_published_and_extension_types_get_openresponses(request_: dict[str, Any]) -> None:
    assert wire(**request_) == "openresponses"


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("codex_exec/0.169.0 (Debian)", "openai"),
        ("codex_cli_rs/0.80.0", "openai"),
        ("OpenAI/Python 3.52.0", "openai"),
        ("AsyncOpenAI/Python 3.52.0", "openai"),
        ("OpenAI/JS 7.55.0", "openai"),
        ("Agents/Python 0.24.0", "openai"),
        ("ai-sdk/openai/3.0 ai-sdk/provider-utils/4.0", "openai"),
        ("ai-sdk/open-responses/1.0.39 ai-sdk/provider-utils/4.0.50", "openai"),
        ("ai/6.0.12 runtime/node.js/22", "openai"),
        ("open-ai/1.0", "openresponses"),
        ("curl/8.0", "openresponses"),
        ("", "openresponses"),
    ],
)
def test_e10_known_clients(agent: str, expected: str) -> None:
    assert wire({"user-agent": agent}) == expected


def test_e10_sdk_under_another_name_is_known_by_its_header() -> None:
    assert wire({"user-agent": "my-app/1.0", "x-stainless-lang": "python"}) == "openai"


@pytest.mark.parametrize("recording", shared_files("client-requests", "codex_exec_gpt-5.5.jsonl"))
def test_e10_codex_gets_openai_by_its_request_alone(recording: Any) -> None:
    for line in recording.read_text().splitlines():
        record = json.loads(line)
        if record.get("method") == "POST" and record["path"].endswith("/responses"):
            body = record["body"] if isinstance(record["body"], str) else json.dumps(record["body"])
            assert choose_wire(decode_request(body), {}) == "openai"
