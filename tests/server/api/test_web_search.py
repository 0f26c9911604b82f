"""Searches of the web from a client to an upstream of another kind and back: those of Claude Code and of
Codex."""

import json
from typing import Any

import pytest

from openresponses_bridge.conformance import StreamValidator
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.anthropic import closed, opened, start, stop
from tests.support.serving import call, serving, stream
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk

Json = dict[str, Any]
QUESTION = "Perform a web search for the query: x"
# what Claude Code asks a model for its tool WebSearch
SEARCH: Json = {
    "model": "plain",
    "max_tokens": 1000,
    "system": "You are an assistant for performing a web search tool use",
    "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
    "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
    "tool_choice": {"type": "tool", "name": "web_search"},
}
PAGE = {"url": "https://a.example", "title": "A"}
CITED = {"type": "url_citation", "url_citation": {**PAGE, "start_index": 0, "end_index": 2}}
FOUND_BY_OPENAI = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x", "sources": [{"type": "url", "url": "https://a.example"}]},
}
SAID_BY_OPENAI = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [
        {
            "type": "output_text",
            "text": "Hi",
            "annotations": [{"type": "url_citation", **PAGE, "start_index": 0, "end_index": 2}],
        }
    ],
}


def of_openai() -> list[bytes]:
    """The frames of a search and an answer."""
    whole = {"id": "resp_1", "object": "response", "model": "m", "created_at": 1}
    output = [FOUND_BY_OPENAI, SAID_BY_OPENAI]
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    events: list[Json] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
    ]
    for index, item in enumerate(output):
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    done = {**whole, "status": "completed", "output": output, "usage": usage}
    events.append({"type": "response.completed", "response": done})
    return [
        b"data: " + json.dumps({**event, "sequence_number": number}).encode() + b"\n\n"
        for number, event in enumerate(events)
    ] + [DONE]


OF_CHAT = [chunk(content="Hi"), chunk(annotations=[CITED]), chunk("stop"), DONE]


@pytest.mark.parametrize(
    ("settings", "frames", "asked"),
    [
        (
            {"dialect": "chat", "options": {"web_search": "openrouter"}},
            OF_CHAT,
            {"type": "openrouter:web_search"},
        ),
        ({"dialect": "responses"}, of_openai(), {"type": "web_search"}),
    ],
    ids=["chat", "responses"],
)
def test_claude_code_finds_pages_at_other_upstreams(
    upstream: ScriptedUpstream, settings: Json, frames: list[bytes], asked: Json
) -> None:
    upstream.scripts["plain"] = Script(frames)
    upstream_settings = UpstreamSettings(url=upstream.url, models=["plain"], **settings)
    with serving(Settings(upstreams=[upstream_settings])) as base:
        answer = call(base, "POST", "/v1/messages", SEARCH).json
        streamed = call(base, "POST", "/v1/messages", {**SEARCH, "stream": True})
    assert upstream.last("plain").body["tools"] == [asked]
    kinds = {block["type"]: block for block in answer["content"]}
    result = kinds["web_search_tool_result"]
    assert [page["url"] for page in result["content"]] == ["https://a.example"]
    assert result["tool_use_id"] == kinds["server_tool_use"]["id"]
    assert kinds["text"]["citations"][0]["url"] == "https://a.example"
    assert answer["usage"]["server_tool_use"] == {"web_search_requests": 1}
    begun = [each["content_block"]["type"] for each in streamed.events if "content_block" in each]
    assert set(begun) == {"server_tool_use", "web_search_tool_result", "text"}


def test_codex_searches_with_anthropic_and_sends_what_was_found_back(upstream: ScriptedUpstream) -> None:
    page = {**PAGE, "type": "web_search_result", "encrypted_content": "Eq4="}
    used = {"id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    cited = {**PAGE, "type": "web_search_result_location", "cited_text": "w", "encrypted_index": "Eo8"}
    payloads = [
        start(),
        *[opened(0, "server_tool_use", **used), closed(0)],
        *[opened(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[page]), closed(1)],
        *[opened(2, "text", text="Hi", citations=[cited]), closed(2)],
        *stop(),
    ]
    upstream.scripts["plain"] = Script([b"data: " + each + b"\n\n" for each in payloads])
    upstream_settings = UpstreamSettings(url=upstream.url, dialect="anthropic", models=["plain"])
    tools = [{"type": "web_search", "external_web_access": True}]
    with serving(Settings(upstreams=[upstream_settings])) as base:
        for wire in ("openai", "openresponses"):
            reply = stream(base, {"openresponses-wire": wire}, model="plain", tools=tools, input="x")
            validator = StreamValidator(wire)  # type: ignore[arg-type]
            assert not [each for event in reply.events for each in validator.feed(json.dumps(event))]
            search, message = reply.final["output"]
            assert search["action"]["query"] == "x"
            question = {"type": "message", "role": "user", "content": "more"}
            stream(base, {}, model="plain", tools=tools, input=[question, search, message, question])
            sent = upstream.last("plain").body
            assert sent["tools"] == [{"type": "web_search_20250305", "name": "web_search"}]
            assert sent["messages"][1]["content"] == [
                {"type": "server_tool_use", **used},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [page]},
                {"type": "text", "text": "Hi", "citations": [cited]},
            ]
