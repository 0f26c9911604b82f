"""The parts of a tool that are shown and stored."""

from __future__ import annotations

from typing import Any

import pytest

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_json, decode_request, encode
from openresponses_bridge.protocol.secrets import origin_of, request_without_secrets, without_secrets


def tool_of(given: dict[str, Any]) -> Any:
    (tool,) = decode_request(encode({"tools": [given]})).tools or ()
    return tool


MCP = {"type": "mcp", "server_label": "l", "require_approval": "never"}
DOMAINS = {"type": "allowlist", "allowed_domains": ["d"]}
AUTO = {"type": "container_auto", "memory_limit": "4g"}
SECRET = [{"domain": "d", "name": "n", "value": "v"}]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (MCP | {"authorization": "x", "headers": {"A": "b"}}, MCP),
        (MCP | {"server_url": "https://u:p@h:8/p?q#f"}, MCP | {"server_url": "https://h:8"}),
        (MCP | {"server_url": "no address"}, MCP),
        (MCP | {"server_url": "https://u:p/w@h"}, MCP),
        (MCP | {"proxy": "http://u:p@h/p"}, MCP | {"proxy": "http://h"}),
        (
            {"type": "shell", "environment": AUTO | {"network_policy": DOMAINS | {"domain_secrets": SECRET}}},
            {"type": "shell", "environment": AUTO | {"network_policy": DOMAINS}},
        ),
        ({"type": "shell", "environment": {"A": "b"}}, {"type": "shell"}),
        (
            {"type": "code_interpreter", "container": {"type": "auto", "env": {"A": "b"}}},
            {"type": "code_interpreter", "container": {"type": "auto"}},
        ),
        ({"type": "acme:t", "list": [{"apiKey": "x", "a": 1}]}, {"type": "acme:t", "list": [{"a": 1}]}),
        (MCP | {"authorization": {"type": "t", "token": "x"}}, MCP | {"authorization": {"type": "t"}}),
        (MCP | {"api_keys": ["x"], "Env": ["A=x"], "requestHeaders": {"A": "x"}}, MCP | {"api_keys": []}),
        (
            MCP | {"serverUrl": "https://h/x", "uri": "https://h?x"},
            MCP | dict.fromkeys(("serverUrl", "uri"), "https://h"),
        ),
        (MCP | {"urls": ["https://u:x@h/p", "postgres://u:x@h"]}, MCP | {"urls": ["https://h"]}),
        (MCP | {"parameters": {"api_key": "x"}}, MCP | {"parameters": {}}),
        (MCP | {"mcp_servers": [{"url": "h/x", "a": 1}]}, MCP | {"mcp_servers": [{"a": 1}]}),
        (MCP | {"tool": {"type": "mcp_server", "url": "h/x"}}, MCP | {"tool": {"type": "mcp_server"}}),
    ],
)
def test_what_is_shown_of_a_tool(given: dict[str, Any], shown: dict[str, Any]) -> None:
    assert decode_json(encode(without_secrets(tool_of(given)))) == shown
    for wire in ("openai", "openresponses"):
        request = decode_request(encode({"tools": [given], "input": "x"}))
        machine = ResponseStreamStateMachine("m", request, wire=wire)
        (echoed,) = decode_json(encode(machine.snapshot.tools))
        assert {**echoed, "type": shown["type"]} == shown


@pytest.mark.parametrize(
    "given",
    [
        {"type": "function", "name": "f", "parameters": {"properties": {"password": {"type": "string"}}}},
        {"type": "custom", "name": "c", "description": "See https://u:p@h/p"},
        {"type": "web_search", "filters": {"allowed_domains": ["d"]}, "search_context_size": "low"},
        {"type": "file_search", "filters": {"type": "eq", "key": "site", "value": "https://h/p?q"}},
        {"type": "tool_search", "execution": "client", "parameters": {"properties": {"env": {}}}},
        {"type": "image_generation", "input_image_mask": {"image_url": "data:image/png;base64,AAAA"}},
        {"type": "mcp", "server_label": "l", "server_url": "https://[::1]:8"},
        {"type": "shell", "environment": {"type": "local"}},
    ],
)
def test_a_tool_without_secrets_stays_as_it_is(given: dict[str, Any]) -> None:
    tool = tool_of(given)
    assert without_secrets(tool) is tool


def test_tools_and_unknown_fields_anywhere_in_a_request() -> None:
    secret = MCP | {"authorization": "x"}
    plain = {"type": "message", "role": "user", "content": "My password: x"}
    body = {
        "input": [plain, {"type": "additional_tools", "tools": [secret]}],
        "metadata": {"api_key": "the client's word"},
        "mcp_servers": [{"url": "https://h/p", "authorization_token": "x", "name": "n"}],
    }
    request = decode_request(encode(body))
    redacted = request_without_secrets(request)
    message, bearer = redacted.input or ()
    assert message is (request.input or ())[0]
    assert decode_json(encode(bearer))["tools"] == [MCP]
    assert redacted.metadata == body["metadata"]
    assert redacted.beyond
    assert redacted.beyond[0].fields == {"mcp_servers": [{"url": "https://h", "name": "n"}]}
    harmless = decode_request(encode({"input": [plain], "tools": [MCP], "mine": 1}))
    assert request_without_secrets(harmless) is harmless


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("HTTPS://H.example/p", "https://H.example"),
        ("wss://a@b@h:1?q", "wss://h:1"),
        ("http://[::1/p", None),
        ("http://h:99999", None),
        ("https://", None),
        ("ftp://h", None),
        ("", None),
    ],
)
def test_origins(address: str, origin: str | None) -> None:
    assert origin_of(address) == origin
