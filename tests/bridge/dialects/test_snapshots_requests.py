"""Requests in and out of each dialect, with what was lost on the way, and what is refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from openresponses_bridge.dialects.anthropic_messages import MessagesOptions, from_messages, to_messages
from openresponses_bridge.dialects.chat_completions import ChatOptions, from_chat, to_chat
from openresponses_bridge.dialects.responses import to_responses
from openresponses_bridge.dialects.vscode import decode_chat, from_vscode, to_vscode
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from tests.support import anthropic_rules, chat_rules
from tests.support.snapshots import snapshots

Json = dict[str, Any]

WEATHER = {
    "type": "function", "name": "get_weather", "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}  # fmt: skip
PIXEL = "data:image/png;base64,iVBORw0KGgo="
CALL = {"type": "function_call", "call_id": "call_a", "name": "get_weather", "arguments": '{"city":"Paris"}'}
RESULT = {"type": "function_call_output", "call_id": "call_a", "output": "18 °C, clear"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}

REQUESTS: dict[str, Json] = {
    "plain": {"input": "Hello!"},
    "settings": {
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": "Hello!"}],
        "max_output_tokens": 64,
        "temperature": 0.5,
        "stream": True,
        "store": False,
        "metadata": {"team": "a"},
        "text": {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA}},
    },
    "tools": {
        "input": [
            {"type": "message", "role": "user", "content": "Weather in Paris?"},
            CALL,
            RESULT,
            {"type": "message", "role": "user", "content": "And in Rome?"},
        ],
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "name": "get_weather"},
        "parallel_tool_calls": False,
    },
    "agents": {
        "input": [
            {"type": "additional_tools", "role": "developer", "tools": [WEATHER]},
            {"type": "configuration_update", "reasoning": {"effort": "low"}},
            {
                "type": "agent_message",
                "author": "/main",
                "recipient": "/main/weather",
                "content": [
                    {"type": "input_text", "text": "Payload:"},
                    {"type": "encrypted_content", "encrypted_content": "Is it warm in Paris?"},
                ],
            },
            {
                "type": "tool_search_call",
                "execution": "client",
                "call_id": "call_s",
                "arguments": {"query": "sun"},
            },
            {
                "type": "tool_search_output",
                "execution": "client",
                "call_id": "call_s",
                "tools": [{"type": "namespace", "name": "mcp__sky", "tools": [{**WEATHER, "name": "sun"}]}],
            },
            {"type": "program", "id": "p1", "call_id": "call_p", "code": "return 1", "fingerprint": "f"},
            {"type": "program_output", "id": "p2", "call_id": "call_p", "result": "1", "status": "completed"},
            {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
        ],
        "tools": [{"type": "tool_search", "execution": "client"}],
    },
    "tools_of_openai": {
        "input": "Tidy up.",
        "tools": [
            {"type": "custom", "name": "sql", "description": "Runs SQL."},
            {"type": "apply_patch"},
            {"type": "web_search"},
        ],
    },
    "image": {
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": PIXEL, "detail": "low"},
                ],
            }
        ]
    },
    "reasoning": {
        "input": [
            {"type": "message", "role": "user", "content": "2+2?"},
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "Adding up."}],
                "content": [{"type": "reasoning_text", "text": "Two and two make four."}],
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]},
            {"type": "message", "role": "user", "content": "Sure?"},
        ],
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    },
}


def chat_out(request: Any) -> Any:
    return to_chat(request, options=ChatOptions(reasoning_field="reasoning_content"))


def messages_out(request: Any) -> Any:
    return to_messages(request, options=MessagesOptions(unsigned_thinking=True))


Translate = Callable[[Any], Any]
OUT: dict[str, tuple[str, Translate]] = {
    "chat_completions": ("m", chat_out),
    "anthropic_messages": ("claude-sonnet-4-5", messages_out),
    "responses": ("m", to_responses),
    "vscode": ("m", to_vscode),
}
RULES: dict[str, Callable[[Json], list[str]]] = {
    "chat_completions": chat_rules.violations,
    "anthropic_messages": anthropic_rules.violations,
    "responses": lambda body: [] if decode_request(encode(body)) else ["can't be read"],
    "vscode": lambda body: [] if decode_chat(encode(body)) else ["can't be read"],
}


def plain(value: Any) -> Any:
    return json.loads(encode(value))


def asked(request: Any) -> Json:
    """A request of ours as JSON, without the fields that are not set."""
    return {name: value for name, value in plain(request).items() if value is not None}


def notes(diagnostics: Any) -> list[str]:
    return [f"{case.kind}: {case.where}: {case.what}" for case in diagnostics]


# thinking that Anthropic did not sign is what the case is about, and what its own servers would refuse
KNOWN = {("anthropic_messages", "reasoning"): ["_thinking: thinking without its signature"]}


@snapshots("{dialect}/requests_out/{case}.json", dialect=OUT, case=REQUESTS)
def test_requests_out(snapshot: SnapshotAssertion, dialect: str, case: str) -> None:
    model, translate = OUT[dialect]
    body, diagnostics = translate(decode_request(encode({"model": model, **REQUESTS[case]})))
    assert RULES[dialect](plain(body)) == KNOWN.get((dialect, case), [])
    assert {"request": REQUESTS[case], "sent": body, "notes": notes(diagnostics)} == snapshot


# what some servers want of the same request
SERVERS: dict[str, tuple[str, ChatOptions]] = {
    "functions": ("tools", ChatOptions(tools_field="functions")),
    "choices": ("plain", ChatOptions(takes_n=True)),
}


@snapshots("chat_completions/requests_out/{case}.json", case=SERVERS)
def test_requests_out_for_some_servers(snapshot: SnapshotAssertion, case: str) -> None:
    asked, options = SERVERS[case]
    request = decode_request(encode({"model": "m", **REQUESTS[asked]}))
    body, diagnostics = to_chat(request, options=options, choices=2)
    assert {"request": REQUESTS[asked], "sent": body, "notes": notes(diagnostics)} == snapshot


_CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER["parameters"]}}
_CHAT_CALL = {
    "id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
}  # fmt: skip
IN: dict[str, dict[str, Json]] = {
    "chat_completions": {
        "plain": {"model": "m", "messages": [{"role": "user", "content": "Hello!"}]},
        "settings": {
            "model": "m",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}],
            "max_tokens": 64, "temperature": 0.5, "seed": 7, "stop": ["END"], "n": 2, "stream": True,
            "stream_options": {"include_usage": True}, "response_format": {"type": "json_object"},
        },
        "tools": {
            "model": "m",
            "messages": [
                {"role": "user", "content": "Weather in Paris?"},
                {"role": "assistant", "content": None, "tool_calls": [_CHAT_CALL]},
                {"role": "tool", "tool_call_id": "call_a", "content": "18 °C"},
            ],
            "tools": [_CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": False,
        },
        "image": {
            "model": "m",
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                ]},
            ],
        },
        "legacy_functions": {
            "model": "m",
            "messages": [
                {"role": "user", "content": "Weather in Paris?"},
                {"role": "assistant", "content": None, "function_call": _CHAT_CALL["function"]},
                {"role": "function", "name": "get_weather", "content": "18 °C"},
            ],
            "functions": [_CHAT_TOOL["function"]], "function_call": {"name": "get_weather"},
        },
    },
    "anthropic_messages": {
        "plain": {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "Hello!"}]},
        "settings": {
            "model": "m", "max_tokens": 4096, "temperature": 0.5, "top_k": 5, "stop_sequences": ["END"],
            "stream": True, "thinking": {"type": "enabled", "budget_tokens": 2048},
            "metadata": {"user_id": "u1"},
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": "Hello!"}],
        },
        "tools": {
            "model": "m", "max_tokens": 64,
            "messages": [
                {"role": "user", "content": "Weather in Paris?"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "I look it up.", "signature": "c2lnbmVk"},
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "call_a", "name": "get_weather", "input": {"city": "Paris"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call_a", "content": "18 °C"},
                    {"type": "text", "text": "In words, please."},
                ]},
            ],
            "tools": [{"name": "get_weather", "input_schema": WEATHER["parameters"]}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
        "image": {
            "model": "m", "max_tokens": 64,
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "source": {
                        "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=",
                    }},
                ]},
            ],
        },
    },
    "vscode": {
        "plain": {
            "model": "m",
            "messages": [
                {"role": 1, "content": [{"type": "LanguageModelTextPart", "value": "Hello!"}]},
            ],
        },
        "tools": {
            "model": "m",
            "messages": [
                {"role": 3, "content": [{"type": "LanguageModelTextPart", "value": "Be brief."}]},
                {"role": 1, "content": [{"type": "LanguageModelTextPart", "value": "Weather in Paris?"}]},
                {"role": 2, "content": [
                    {"type": "LanguageModelToolCallPart", "callId": "gw-call_a", "name": "get_weather",
                     "input": {"city": "Paris"}},
                ]},
                {"role": 1, "content": [
                    {"type": "LanguageModelToolResultPart", "callId": "gw-call_a", "content": [
                        {"type": "LanguageModelTextPart", "value": "18 °C"},
                    ]},
                ]},
            ],
            "tools": [{"name": "get_weather", "inputSchema": WEATHER["parameters"]}],
            "toolMode": 2,
            "modelOptions": {"temperature": 0.5, "reasoning_effort": "low", "seed": 7},
        },
    },
}  # fmt: skip
READ: dict[str, Translate] = {
    "chat_completions": from_chat,
    "anthropic_messages": from_messages,
    "vscode": lambda body: from_vscode(decode_chat(encode(body))),
}
_CASES = [f"{dialect}/requests_in/{case}" for dialect, cases in IN.items() for case in cases]


@snapshots("{path}.json", path=_CASES)
def test_requests_in(snapshot: SnapshotAssertion, path: str) -> None:
    dialect, _, case = path.split("/")
    request, diagnostics = READ[dialect](IN[dialect][case])
    assert decode_request(encode(asked(request))), "what was read is a request of ours"
    assert {"received": IN[dialect][case], "request": asked(request), "notes": notes(diagnostics)} == snapshot


_NO_ANSWER = [{"type": "message", "role": "user", "content": "Hi"}, CALL]
REFUSED_OUT: dict[str, Json] = {
    "nothing to answer": {"input": []},
    "a call without its output": {"input": _NO_ANSWER},
    "an output without its call": {"input": [RESULT]},
    "a choice of a tool that is not there": {
        "input": "Hi", "tools": [WEATHER], "tool_choice": {"type": "function", "name": "other"},
    },
}  # fmt: skip
REFUSED_IN: dict[str, dict[str, Any]] = {
    "chat_completions": {
        "no JSON": b"{",
        "no messages": {"model": "m"},
        "a role that is unknown": {"model": "m", "messages": [{"role": "robot", "content": "Hi"}]},
        "an output without its call": {
            "model": "m", "messages": [{"role": "tool", "tool_call_id": "call_a", "content": "x"}],
        },
        "a temperature that is not a number": {
            "model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": "hot",
        },
    },
    "anthropic_messages": {
        "no JSON": b"{",
        "no messages": {"model": "m", "max_tokens": 64},
        "no limit": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
        "a role that is unknown": {
            "model": "m", "max_tokens": 64, "messages": [{"role": "robot", "content": "Hi"}],
        },
    },
}  # fmt: skip


@snapshots("{dialect}/requests_refused.txt", dialect=OUT)
def test_requests_refused(snapshot: SnapshotAssertion, dialect: str) -> None:
    model, translate = OUT[dialect]
    lines = ["Ours, which the target can't be asked:"]
    for what, fields in REFUSED_OUT.items():
        request = decode_request(encode({"model": model, **fields}))
        lines.append(f"  {what}: {outcome(translate, request)}")
    for what, body in REFUSED_IN.get(dialect, {}).items():
        lines += [] if what != "no JSON" else ["Theirs, which can't be read:"]
        with pytest.raises(InvalidRequestError):
            READ[dialect](body)
        lines.append(f"  {what}: {outcome(READ[dialect], body)}")
    assert "\n".join(lines) + "\n" == snapshot


def outcome(translate: Translate, given: Any) -> str:
    try:
        translate(given)
    except InvalidRequestError as error:
        return f"{error.http_status} {error.code}, param {error.param}: {error.message}"
    return "is sent"
