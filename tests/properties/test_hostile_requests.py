"""Whatever type of value a client puts into a field of its request, the request is translated for an upstream
or refused: nothing else is raised, and the shown and stored forms of the request can be decoded again."""

import json
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.anthropic_messages.models import MessagesOptions
from openresponses_bridge.dialects.base import RequestContext
from openresponses_bridge.dialects.chat_completions import ChatOptions
from openresponses_bridge.dialects.responses.request import ResponsesOptions
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.seal import Sealer
from openresponses_server.runs.support import stored_request
from tests.support.hostile_values import changed_at, places

TEXT = {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation", "url": "u"}]}
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}
SEARCH = {"type": "tool_search_call", "id": "x", "call_id": "c", "arguments": {}, "execution": "client"}
FOUND = {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [FUNCTION]}
SHELL = {"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 0}}
EXEC = {"type": "exec", "command": ["ls"], "env": {"a": "b"}, "timeout_ms": 1}
PATCH = {"type": "update_file", "path": "p", "diff": "d"}


def called(kind: str, output: Any = "o", **more: Any) -> list[dict[str, Any]]:
    """A call and its output."""
    head = {"type": f"{kind}_call", "id": "x", "call_id": "c", "status": "completed"}
    return [head | more, {"type": f"{kind}_call_output", "id": "y", "call_id": "c", "output": output}]


INPUTS: list[list[dict[str, Any]]] = [
    [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
                {"type": "input_file", "file_data": "data:a/b;base64,AA", "filename": "f", "file_url": "u"},
            ],
        }
    ],
    [
        {"type": "message", "role": "assistant", "id": "msg_1", "content": [TEXT], "phase": "commentary"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "r"}]},
    ],
    [
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "reasoning_text", "text": "t"}],
            "encrypted_content": "e",
        }
    ],
    called("function", [{"type": "input_text", "text": "a"}], name="f", arguments="{}", namespace="n"),
    called("custom_tool", name="f", input="i"),
    called("shell", [SHELL], action={"commands": ["ls"], "timeout_ms": 1}),
    called("local_shell", action=EXEC),
    called("apply_patch", operation=PATCH),
    called("computer", {"type": "computer_screenshot", "image_url": "u"}, action={"type": "click"}),
    [SEARCH, FOUND],
    [{"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}],
    [{"type": "mcp_approval_response", "id": "r", "approval_request_id": "r", "approve": True}],
    [{"type": "additional_tools", "tools": [{"type": "mcp", "server_label": "a", "authorization": "x"}]}],
    [{"type": "item_reference", "id": "x"}, {"type": "compaction", "encrypted_content": "e"}],
    [{"type": "acme:item", "id": "i", "name": "n", "content": ["x"]}],
]
TOOLS: list[dict[str, Any]] = [
    FUNCTION | {"description": "d", "strict": True},
    {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
    {"type": "namespace", "name": "n", "description": "d", "tools": [FUNCTION]},
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "mcp", "server_label": "s", "server_url": "https://h/p", "headers": {"a": "b"}},
    {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
]
CHOICES: list[Any] = [
    "required",
    {"type": "function", "name": "f"},
    {"type": "custom", "name": "c"},
    {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
]
SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
FIELDS: dict[str, Any] = {
    "model": "m",
    "instructions": "i",
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "text": {"format": SCHEMA, "verbosity": "low"},
    "temperature": 1.0,
    "max_output_tokens": 100,
    "reasoning": {"effort": "low", "summary": "auto"},
    "stop": ["a"],
    "stream_options": {"include_obfuscation": True},
    "truncation": "auto",
    "beyond": [{"place": ["tools"], "fields": {}}],
    "native": {"dialect": "chat", "names": []},
}
UPSTREAMS = [
    ("chat", ChatOptions()),
    (
        "chat",
        ChatOptions(
            system_messages="one",
            reasoning_field="reasoning",
            missing_signature="s",
            missing_reasoning="r",
            efforts=frozenset({"low"}),
            schema_omit=frozenset({"title"}),
            schema_forms=frozenset({"const_as_enum", "types_as_nullable", "object_root"}),
            prefill=False,
            wrap_arguments=True,
            unanswered_calls="answer",
            call_ids="[a-z]{9}",
        ),
    ),
    ("chat", ChatOptions(tools_field="functions", schema_forms=frozenset({"types_as_any_of"}))),
    ("anthropic", MessagesOptions(unanswered_calls="answer", unsigned_thinking=True)),
    ("responses", ResponsesOptions(supersets=True)),
    ("responses", ResponsesOptions(unanswered_calls="answer", encrypted_reasoning=True, item_ids=False)),
]


REQUESTS: dict[str, list[dict[str, Any]]] = {
    "input": [{"input": [*each, {"role": "user", "content": "And?"}]} for each in INPUTS],
    "tools": [{"input": "x", "tools": [each]} for each in TOOLS],
    "tool_choice": [{"input": "x", "tools": TOOLS[:2], "tool_choice": each} for each in CHOICES],
    "fields": [{"input": "x", name: value} for name, value in FIELDS.items()],
}


@pytest.mark.parametrize("part", REQUESTS)
def test_no_type_of_a_value_raises_but_a_refusal(part: str) -> None:
    accepted = 0
    wholes = REQUESTS[part]
    for request in (each for whole in wholes for place in places(whole) for each in changed_at(whole, place)):
        try:
            body = decode_request(json.dumps(request))
        except BridgeError:
            continue
        accepted += 1
        for wire in ("openai", "openresponses"):
            encode(ResponseStreamStateMachine("m", body, wire=wire).start())
        decode_request(stored_request(body, "openai"))
        for dialect, options in UPSTREAMS:
            side = dialects()[dialect].upstream
            assert side is not None
            try:
                side.request(body, RequestContext((), "m", options, Sealer(), ToolIdentityMap()))
            except BridgeError:
                continue
            except Exception as error:
                raise AssertionError(f"{dialect} of {json.dumps(request)}") from error
    assert accepted
