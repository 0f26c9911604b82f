"""E10: which spelling a request gets."""

import json
import re
from typing import Any

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.wire import CLIENTS, choose_wire, shows_only_summaries
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
        ("Zed/1.4.2 (linux; x86_64)", "openai"),
        ("grok-shell/0.2.101 (linux; x86_64)", "openai"),
        ("grok-pager/0.2.93 grok-shell/0.2.93 (macos; aarch64)", "openai"),
        ("opencode/1.2.0 ai-sdk/provider-utils/4.0.50", "openai"),
        ("Cline/3.74.0", "openai"),
        ("RooCode/3.36.6", "openai"),
        ("Kilo-Code/7.2.0", "openai"),
        ("ai-sdk-openai/4.0.118 ai-sdk-provider-utils/5.0.81 node.js/v20.20.2", "openai"),
        ("ai-sdk/open-responses/2.0.36 ai-sdk/provider-utils/5.0.34 runtime/node.js/v20", "openai"),
        ("ai/7.0.173 ai-sdk-provider-utils/5.0.81 node.js/v20.20.2", "openai"),
        ("ai-sdk.next.openai/9", "openai"),
        ("async-openai/0.30", "openai"),
        ("my-app/1.0 ruby-openai/8.0", "openai"),
        ("Zedd/1.0", "openresponses"),
        ("my-Zed/1.0", "openresponses"),
        ("open-ai/1.0", "openresponses"),
        ("curl/8.0", "openresponses"),
        ("", "openresponses"),
    ],
)
def test_e10_known_clients(agent: str, expected: str) -> None:
    assert wire({"user-agent": agent}) == expected


@pytest.mark.parametrize("name", ["x-stainless-lang", "goose-session-id", "agent-session-id"])
def test_e10_sdk_under_another_name_is_known_by_its_header(name: str) -> None:
    assert wire({"user-agent": "my-app/1.0", name: "python"}) == "openai"


@pytest.mark.parametrize(
    ("header", "setting", "agent", "expected"),
    [
        (None, "auto", "curl/8", "openresponses"),
        (None, "auto", "codex/1", "openai"),
        (None, "openai", "curl/8", "openai"),
        (None, "openresponses", "codex/1", "openresponses"),
        ("openai", "openresponses", "curl/8", "openai"),
        (" OpenResponses ", "openai", "codex/1", "openresponses"),
        ("auto", "openai", "curl/8", "openresponses"),
        ("auto", "openresponses", "codex/1", "openai"),
    ],
)
def test_p38_header_before_setting_before_guess(
    header: str | None, setting: str, agent: str, expected: str
) -> None:
    headers = {"user-agent": agent} | ({} if header is None else {"openresponses-wire": header})
    assert choose_wire(decode_request("{}"), headers, setting) == expected


def test_p38_unknown_wire_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="openai, openresponses, auto") as refused:
        wire({"openresponses-wire": "chat"})
    assert refused.value.param == "openresponses-wire"


@pytest.mark.parametrize(
    ("agent", "streamed", "summaries"),
    [
        ("ai-sdk/openai/3.0.141 ai-sdk/provider-utils/4.0.66 runtime/node.js/v20", (True, False), True),
        ("ai-sdk/open-responses/1.0.39 ai-sdk/provider-utils/4.0.50", (True, False), False),
        ("opencode/1.18.33 ai-sdk/provider-utils/4.0.40 runtime/bun/1.3.14", (True, False), True),
        ("ai-sdk/openai-compatible/2.0", (True, False), False),
        ("ai-sdk-openai/4.0.118 ai-sdk-provider-utils/5.0.81 node.js/v20.20.2", (True, False), True),
        ("ai-sdk/open-responses/2.0.36 ai-sdk/provider-utils/5.0.34 runtime/node.js", (True, False), False),
        ("ai/7.0.173 ai-sdk-provider-utils/5.0.81 node.js/v20.20.2", (False,), True),
        ("ai/7.0.173 ai-sdk-provider-utils/5.0.81 node.js/v20.20.2", (True,), False),
        ("ai-sdk.openai.of-another-day/9", (True, False), True),
        ("OpenAI/Python 3.57.0", (True, False), False),
        ("codex_exec/0.171.0", (True, False), False),
        ("ai/6.0.326 ai-sdk/provider-utils/4.0.66", (False,), True),
        ("ai/6.0.326 ai-sdk/provider-utils/4.0.66", (True,), False),
        ("curl/8", (True, False), False),
    ],
)
def test_p38_who_shows_summaries_only(agent: str, streamed: tuple[bool, ...], summaries: bool) -> None:
    for each in streamed:
        assert shows_only_summaries({"user-agent": agent}, streamed=each) is summaries
    assert not shows_only_summaries({}, streamed=True)


@pytest.mark.parametrize(
    ("wire", "agent", "summaries"),
    [
        ("openai", "curl/8", True),
        ("openai", "codex_exec/0.171.0", False),
        ("openresponses", "ai-sdk-openai/4.0.118", False),
        ("auto", "ai-sdk-openai/4.0.118", True),
        ("auto", "curl/8", False),
    ],
)
def test_p38_the_wires_header_decides_the_form_of_reasoning_too(
    wire: str, agent: str, summaries: bool
) -> None:
    assert shows_only_summaries({"user-agent": agent}, streamed=True, asked=wire) is summaries


def test_each_known_client_says_when_it_was_seen() -> None:
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", each.on) for each in CLIENTS)
    assert all(each.seen for each in CLIENTS if each.package)
    assert all(each.package.startswith(("npm:", "pypi:")) for each in CLIENTS if each.package)


@pytest.mark.parametrize("recording", shared_files("client-requests", "codex_exec_gpt-5.5.jsonl"))
def test_e10_codex_gets_openai_by_its_request_alone(recording: Any) -> None:
    for line in recording.read_text().splitlines():
        record = json.loads(line)
        if record.get("method") == "POST" and record["path"].endswith("/responses"):
            body = record["body"] if isinstance(record["body"], str) else json.dumps(record["body"])
            assert choose_wire(decode_request(body), {}) == "openai"
