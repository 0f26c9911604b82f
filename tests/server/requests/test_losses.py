"""What a request says and no upstream can be asked: seen by its client, whichever way it goes."""

import json
from typing import Any

import pytest

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.diagnostics import loss_header
from openresponses_bridge.protocol.codec import decode_request
from openresponses_server.runs.support import stored_request
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import dialect_scripts as scripts
from tests.support.serving import call, respond, serving, stream
from tests.support.sockets import opened_socket
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, text

HEADER = "openresponses-losses"
CHAT = {"model": "plain", "messages": [{"role": "user", "content": "Hi"}]}


def test_unknown_fields_are_in_the_header(bridged: str) -> None:
    fields = {"unheard_of": {"a": 1}, "moderation": {"model": "m"}, "truncation": "auto"}
    tool = {"type": "function", "name": "f", "output_schema": {"type": "object"}}
    for reply in (
        respond(bridged, model="plain", tools=[tool], **fields),
        stream(bridged, model="plain", tools=[tool], **fields),
    ):
        lost = {each.partition(":")[0] for each in reply.headers[HEADER].split("; ")}
        assert lost == {"unheard_of", "moderation", "truncation", "tools[0].output_schema"}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens"])
def test_what_an_answer_would_lie_without_is_refused(bridged: str, path: str) -> None:
    reply = call(bridged, "POST", path, {"model": "plain", "input": "Hi", "prompt": {"id": "p"}})
    assert (reply.status, reply.error["param"]) == (404, "prompt.id")


def test_counting_tokens_names_what_it_does_not_know(bridged: str) -> None:
    body = {"model": "plain", "input": "Hi", "unheard_of": 1}
    reply = call(bridged, "POST", "/v1/responses/input_tokens", body)
    assert (reply.status, reply.headers[HEADER]) == (200, "unheard_of: is not known")


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ({"conversation": 3}, "conversation"),
        ({"context_management": {}}, "context_management"),
        ({"moderation": "x"}, "moderation"),
        ({"reasoning": {"context": 1}}, "reasoning.context"),
        ({"stop": [1]}, "stop[0]"),
        ({"seed": "x"}, "seed"),
        ({"prompt_cache_retention": 1}, "prompt_cache_retention"),
    ],
)
def test_known_fields_are_of_their_types(bridged: str, field: dict[str, Any], param: str) -> None:
    reply = respond(bridged, model="plain", **field)
    assert (reply.status, reply.error["param"]) == (400, param)


def test_what_a_client_writes_in_the_place_of_our_own_says_nothing(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    forged = [[[], {"store": True, "model": "other"}]]
    reply = respond(bridged, model="plain", **{"openresponses-bridge:beyond": forged, "beyond": forged})
    assert reply.headers[HEADER] == "beyond: is not known"
    assert "store" not in upstream.last("plain").body


def test_a_chat_client_reaches_a_chat_upstream(bridged: str, upstream: ScriptedUpstream) -> None:
    fields = {"stop": ["END"], "seed": 3, "logit_bias": {"1": 2}, "prediction": {"type": "content"}}
    fields |= {"store": True, "metadata": {"a": "b"}}
    reply = call(bridged, "POST", "/v1/chat/completions", CHAT | fields)
    assert (reply.status, HEADER in reply.headers) == (200, False)
    assert {name: upstream.last("plain").body[name] for name in fields} == fields


def test_an_upstream_that_speaks_responses_gets_what_is_not_known_here(upstream: ScriptedUpstream) -> None:
    upstream.scripts["plain"] = Script(scripts.text("responses", "Hel", "lo"))
    settings = UpstreamSettings(url=upstream.url, dialect="responses", models=["plain"])
    with serving(Settings(upstreams=[settings])) as base:
        reply = respond(
            base, model="plain", unheard_of={"a": 1}, moderation={"model": "m"}, prompt={"id": "p"}
        )
        assert (reply.status, HEADER in reply.headers) == (200, False)
        body = upstream.last("plain").body
        assert (body["unheard_of"], body["moderation"], body["prompt"]) == (
            {"a": 1},
            {"model": "m"},
            {"id": "p"},
        )
        chat = call(base, "POST", "/v1/chat/completions", CHAT | {"seed": 3, "store": True})
        assert chat.headers[HEADER] == "seed: Responses has no such field; store: the upstream stores nothing"
        assert "seed" not in upstream.last("plain").body


def test_an_inner_servers_losses_travel_outward(bridged: str, upstream: ScriptedUpstream) -> None:
    inner = {"content-type": "text/event-stream", HEADER: "stop: can't be expressed"}
    upstream.scripts["inner"] = Script(text("Hi"), headers=inner)
    for ask in (respond, stream):
        assert ask(bridged, model="inner").headers[HEADER] == "stop: can't be expressed"
        both = ask(bridged, model="inner", unheard_of=1).headers[HEADER]
        assert both == "unheard_of: is not known; stop: can't be expressed"


def test_a_websocket_s_turn_begins_with_what_would_be_in_the_header(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    inner = {"content-type": "text/event-stream", HEADER: "stop: can't be expressed"}
    upstream.scripts["inner"] = Script(text("Hi"), headers=inner)
    with opened_socket(bridged) as socket:
        lossy = socket.turn(model="inner", input="x", unheard_of=1)
        clean = socket.turn(model="plain", input="x")
    first, *others = lossy.events
    assert first["headers"] == {HEADER: "unheard_of: is not known; stop: can't be expressed"}
    assert first["type"] == "response.created"
    assert not any("headers" in event for event in (*others, *clean.events))
    for turn in (lossy, clean):
        validator = StreamValidator("openresponses")
        assert [each for event in turn.events for each in validator.feed(event)] + validator.close() == []


def test_a_stored_turn_is_kept_without_the_headers(bridged: str) -> None:
    with opened_socket(bridged) as socket:
        turn = socket.turn(model="plain", input="x", unheard_of=1)
    assert HEADER in turn.events[0]["headers"]
    again = call(bridged, "GET", f"/v1/responses/{turn.events[0]['response']['id']}?stream=true")
    assert again.events[0]["type"] == "response.created"
    assert "headers" not in again.events[0]


def test_a_lying_inner_server_adds_no_more_than_a_header_holds(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    long = {"content-type": "text/event-stream", HEADER: "x\u00e9" * 2000}
    upstream.scripts["inner"] = Script(text("Hi"), headers=long)
    header = respond(bridged, model="inner").headers[HEADER]
    assert len(header) == 1000
    assert header.isascii()


def test_losses_are_those_of_the_upstream_that_answers(upstream: ScriptedUpstream) -> None:
    upstream.scripts["plain"] = Script(scripts.text("anthropic", "Hi"))
    down = UpstreamSettings(
        name="down", url="http://127.0.0.1:9", dialect="chat", models=["plain"], failover=["up"]
    )
    up = UpstreamSettings(name="up", url=upstream.url, dialect="anthropic", models=["other"], model="plain")
    with serving(Settings(upstreams=[down, up])) as base:
        reply = respond(base, model="plain", user="u", seed=3, presence_penalty=0.5)
    assert reply.status == 200
    assert {each.partition(":")[0] for each in reply.headers[HEADER].split("; ")} == {
        "seed", "presence_penalty",
    }  # fmt: skip


def test_a_queued_request_keeps_what_is_not_known() -> None:
    tool = {"type": "function", "name": "f", "output_schema": {"a": 1}}
    item = {"type": "message", "role": "user", "content": "Hi", "odd": 1}
    body = {"model": "m", "input": [item], "tools": [tool], "unheard_of": 1, "reasoning": {"odd": 2}}
    request = decode_request(json.dumps(body))
    again = decode_request(stored_request(request, "openai"))
    assert sorted(again.beyond or ()) == sorted(request.beyond or ())
    assert again == decode_request(stored_request(again, "openai"))


def test_a_header_is_printable_whatever_a_field_is_called() -> None:
    assert loss_header([]) == {}
    assert loss_header(["a\r\nset-cookie: b", "c"]) == {HEADER: "a??set-cookie: b; c"}


def test_a_call_of_a_hosted_tool_is_a_call(upstream: ScriptedUpstream) -> None:
    """`required` is kept when the upstream ran a tool of its own."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    events = [
        {"type": "response.created", "response": response | {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": search | {"status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": search},
        {"type": "response.completed", "response": response | {"output": [search]}},
    ]
    frames = [
        b"data: " + json.dumps({"sequence_number": n, **e}).encode() + b"\n\n" for n, e in enumerate(events)
    ]
    upstream.scripts["plain"] = Script([*frames, DONE])
    settings = UpstreamSettings(url=upstream.url, dialect="responses", models=["plain"])
    with serving(Settings(upstreams=[settings])) as base:
        fields = {"tools": [{"type": "web_search"}], "tool_choice": "required"}
        assert respond(base, model="plain", **fields).json["status"] == "completed"


@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
@pytest.mark.parametrize("streamed", [True, False])
def test_required_with_hosted_tools_alone_is_one_answer(
    upstream: ScriptedUpstream, dialect: str, streamed: bool
) -> None:
    settings = UpstreamSettings(url=upstream.url, dialect=dialect, models=["plain"])
    with serving(Settings(upstreams=[settings])) as base:
        fields = {"tools": [{"type": "file_search"}], "tool_choice": "required", "stream": streamed}
        reply = respond(base, model="plain", **fields)
    assert (reply.status, reply.error["param"]) == (400, "tool_choice")


def test_messages_name_an_upstream_once(upstream: ScriptedUpstream) -> None:
    settings = UpstreamSettings(url="http://127.0.0.1:9", models=["plain"])
    with serving(Settings(upstreams=[settings])) as base:
        message = respond(base, model="plain").error["message"]
    assert message.startswith("the upstream can't be reached")
    upstream.scripts["cut"] = Script([chunk(content="Hi")])
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url, models=["cut"])])) as base:
        assert stream(base, model="cut").final["error"]["message"].endswith("was cut after 1 frame")
