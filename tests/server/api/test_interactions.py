"""The Interactions API over HTTP: answers, stored ones and their streams again, errors, and other keys."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_bridge.dialects.interactions import from_interactions
from openresponses_server.runs.support import is_personal, lacks_secrets, stored_request
from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support import dialect_scripts as scripts
from tests.support.serving import PATIENT, Reply, call, serving
from tests.support.upstream import CUT, HANG, Script, ScriptedUpstream, refusal
from tests.support.waiting import wait_until

PATH = "/v1beta/interactions"
HELLO: dict[str, Any] = {"model": "demo", "input": "Hello"}
WEATHER: dict[str, Any] = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
CALLS = (
    ("call_1", "get_weather", '{"location": "Lima"}'),
    ("call_2", "get_weather", '{"location": "Oslo"}'),
)
ALICE, BOB = {"x-goog-api-key": "key-of-alice"}, {"x-goog-api-key": "key-of-bob"}
DIALECTS = ("chat", "anthropic", "responses")


def create(base: str, body: dict[str, Any], **headers: str) -> Reply:
    return call(base, "POST", PATH, body, headers)


def get(base: str, id: str, query: str = "", **headers: str) -> Reply:
    return call(base, "GET", f"{PATH}/{id}{query}", None, headers)


def sent(reply: Reply) -> list[Any]:
    """The events of a stream."""
    *frames, done, rest = reply.body.decode().split("\n\n")
    assert (done, rest) == ("event: done\ndata: [DONE]", "")
    lines = [each.split("\n") for each in frames if not each.startswith(":")]
    events = [json.loads(data.removeprefix("data: ")) for _, data in lines]
    assert [name for name, _ in lines] == [f"event: {each['event_type']}" for each in events]
    return events


def output_of(interaction: Any) -> str:
    contents = [each for step in interaction["steps"] for each in step.get("content", ())]
    return "".join(each["text"] for each in contents)


def text_of(events: list[Any]) -> str:
    return "".join(each["delta"].get("text", "") for each in events if each["event_type"] == "step.delta")


@pytest.fixture(scope="module")
def owned() -> Iterator[str]:
    keys = [hashed(each["x-goog-api-key"]) for each in (ALICE, BOB)]
    with serving(Settings(store="memory://", api_keys=keys)) as base:
        yield base


@pytest.mark.parametrize("version", ["v1beta", "v1"])
def test_one_answer(demo: str, version: str) -> None:
    reply = call(demo, "POST", f"/{version}/interactions", HELLO)
    assert reply.status == 200
    interaction = reply.json
    assert output_of(interaction) == "You said: Hello"
    assert (interaction["object"], interaction["status"], interaction["model"]) == (
        "interaction",
        "completed",
        "demo",
    )
    assert interaction["usage"]["total_tokens"] == sum(
        interaction["usage"][f"total_{kind}_tokens"] for kind in ("input", "output")
    )
    assert get(demo, interaction["id"]).json == interaction


def test_a_stream_has_what_one_answer_has(demo: str) -> None:
    events = sent(create(demo, {**HELLO, "stream": True}))
    kinds = [each["event_type"] for each in events if each["event_type"] != "step.delta"]
    assert kinds == [
        "interaction.created",
        "interaction.status_update",
        "step.start",
        "step.stop",
        "interaction.completed",
    ]
    assert text_of(events) == "You said: Hello"
    whole = get(demo, events[0]["interaction"]["id"]).json
    assert output_of(whole) == "You said: Hello"
    assert events[-1]["interaction"] == {name: value for name, value in whole.items() if name != "steps"}


def test_a_stream_is_resumed_behind_each_of_its_events(demo: str) -> None:
    events = sent(create(demo, {**HELLO, "stream": True}))
    id = events[0]["interaction"]["id"]
    assert sent(get(demo, id, "?stream=true")) == events
    for number, event in enumerate(events):
        rest = sent(get(demo, id, f"?stream=true&last_event_id={event['event_id']}"))
        assert rest == events[number + 1 :]


@pytest.mark.parametrize("last", ["999999.0", "x", "-1.0", "1", "1.0.0", "9" * 400 + ".0", "%00"])
def test_an_event_that_nobody_saw_is_refused(demo: str, last: str) -> None:
    id = create(demo, HELLO).json["id"]
    reply = get(demo, id, f"?stream=true&last_event_id={last}")
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_value")


def test_an_event_without_a_stream_and_an_odd_flag_are_refused(demo: str) -> None:
    id = create(demo, HELLO).json["id"]
    for query in ("?last_event_id=1.0", "?stream=maybe"):
        assert get(demo, id, query).status == 400


def test_the_input_is_not_sent_back(demo: str) -> None:
    id = create(demo, HELLO).json["id"]
    assert get(demo, id, "?include_input=false").status == 200
    refused = get(demo, id, "?include_input=true")
    assert (refused.status, refused.json["error"]["message"].startswith("include_input")) == (400, True)


def test_an_interaction_goes_on_with_another_one(demo: str) -> None:
    first = create(demo, HELLO).json
    second = create(demo, {"model": "demo", "input": "Again", "previous_interaction_id": first["id"]}).json
    assert output_of(second) == "You said: Again\nBefore that you said: Hello"
    assert second["previous_interaction_id"] == first["id"]


def test_responses_and_interactions_are_the_same_ones(demo: str) -> None:
    first = call(demo, "POST", "/v1/responses", {"model": "demo", "input": "Hello"}).json
    assert output_of(get(demo, first["id"]).json) == "You said: Hello"
    second = create(demo, {"model": "demo", "input": "Again", "previous_interaction_id": first["id"]}).json
    stored = call(demo, "GET", f"/v1/responses/{second['id']}").json
    assert "Before that you said: Hello" in stored["output"][0]["content"][0]["text"]


def test_what_is_not_stored_is_not_found(demo: str) -> None:
    interaction = create(demo, {**HELLO, "store": False}).json
    assert get(demo, interaction["id"]).status == 404


def test_in_the_background(stored: str) -> None:
    queued = create(stored, {**HELLO, "background": True}).json
    assert queued["status"] == "queued"
    wait_until(lambda: get(stored, queued["id"]).json["status"] == "completed")
    assert output_of(get(stored, queued["id"]).json) == "You said: Hello"
    events = sent(create(stored, {**HELLO, "background": True, "stream": True}))
    assert text_of(events) == "You said: Hello"
    assert sent(get(stored, events[0]["interaction"]["id"], "?stream=true")) == events


def test_in_the_background_needs_the_store(demo: str) -> None:
    assert create(demo, {**HELLO, "background": True, "store": False}).status == 400


def test_one_in_progress_is_cancelled(many: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-1"] = Script([*scripts.piece("chat"), HANG])
    id = create(many, {"model": "chat-1", "input": "Hi", "background": True}).json["id"]
    wait_until(lambda: output_of(get(many, id).json) == "Hel")
    assert get(many, id).json["status"] == "in_progress"
    cancelled = call(many, "POST", f"{PATH}/{id}/cancel", {})
    assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
    assert call(many, "POST", f"{PATH}/{id}/cancel", {}).json["status"] == "cancelled"
    end = sent(get(many, id, "?stream=true"))[-1]
    assert (end["event_type"], end["interaction"]["status"]) == ("interaction.completed", "cancelled")


def test_a_whole_one_is_not_cancelled(demo: str) -> None:
    id = create(demo, HELLO).json["id"]
    refused = call(demo, "POST", f"{PATH}/{id}/cancel", {})
    assert (refused.status, refused.json["error"]["code"]) == (400, "response_not_cancellable")


def test_a_deleted_one_is_gone(demo: str) -> None:
    id = create(demo, HELLO).json["id"]
    deleted = call(demo, "DELETE", f"{PATH}/{id}")
    assert (deleted.status, deleted.json) == (200, {})
    for reply in (get(demo, id), get(demo, id, "?stream=true"), call(demo, "DELETE", f"{PATH}/{id}")):
        assert (reply.status, reply.json["error"]["code"]) == (404, "response_not_found")


def test_another_key_can_do_nothing_with_an_interaction(owned: str) -> None:
    interaction = create(owned, HELLO, **ALICE).json
    id = interaction["id"]
    for reply in (
        get(owned, id, **BOB),
        get(owned, id, "?stream=true", **BOB),
        get(owned, id, "?stream=true&last_event_id=1.0", **BOB),
        call(owned, "POST", f"{PATH}/{id}/cancel", {}, BOB),
        call(owned, "DELETE", f"{PATH}/{id}", None, BOB),
    ):
        assert (reply.status, reply.json["error"]["code"]) == (404, "response_not_found")
    going_on = create(owned, {**HELLO, "previous_interaction_id": id}, **BOB)
    assert (going_on.status, id in going_on.json["error"]["message"]) == (400, True)
    assert get(owned, id, **ALICE).json == interaction
    assert get(owned, id).status == create(owned, HELLO).status == 401
    assert call(owned, "GET", f"{PATH}/{id}?key=key-of-alice").json == interaction


@pytest.mark.parametrize("id", ["resp_0", "../responses", "a%2Fb", "%00", "x" * 3000, "interactions/1"])
def test_an_unknown_id_is_not_found(demo: str, id: str) -> None:
    assert get(demo, id).status == 404
    assert call(demo, "DELETE", f"{PATH}/{id}").status == 404


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
def test_calls_and_their_results(
    many: str, upstream: ScriptedUpstream, dialect: str, *, stream: bool
) -> None:
    model = f"{dialect}-1"
    upstream.scripts[model] = Script(scripts.call(dialect, *CALLS))
    request = {"model": model, "input": "Weather?", "tools": [WEATHER], "stream": stream}
    reply = create(many, request)
    if stream:
        events = sent(reply)
        starts = [each["step"] for each in events if each["event_type"] == "step.start"]
        ids = {each["index"]: each["step"]["id"] for each in events if each["event_type"] == "step.start"}
        arguments = dict.fromkeys(ids, "")
        for each in events:
            if each["event_type"] == "step.delta":
                arguments[each["index"]] += each["delta"]["arguments"]
        calls = [(ids[index], "get_weather", json.loads(text)) for index, text in arguments.items()]
        assert {step["type"] for step in starts} == {"function_call"}
        id, status = events[0]["interaction"]["id"], events[-1]["interaction"]["status"]
    else:
        steps = reply.json["steps"]
        calls = [(step["id"], step["name"], step["arguments"]) for step in steps]
        id, status = reply.json["id"], reply.json["status"]
    assert calls == [(call_id, name, json.loads(arguments)) for call_id, name, arguments in CALLS]
    assert status == "requires_action"
    upstream.scripts[model] = Script(scripts.text(dialect, "Both ", "are mild."))
    results = [
        {"type": "function_result", "call_id": "call_1", "name": "get_weather", "result": "12 degrees"},
        {"type": "function_result", "call_id": "call_2", "result": [{"type": "text", "text": "9 degrees"}]},
    ]
    answer = create(many, {**request, "stream": False, "input": results, "previous_interaction_id": id})
    assert (answer.status, output_of(answer.json)) == (200, "Both are mild.")
    body = json.dumps(upstream.received[-1].body)
    assert "12 degrees" in body
    assert "9 degrees" in body


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_have_its_shape(many: str, upstream: ScriptedUpstream, *, stream: bool) -> None:
    upstream.scripts["chat-1"] = refusal(429, message="Slow down.", code="rate_limit_exceeded")
    reply = create(many, {"model": "chat-1", "input": "Hi", "stream": stream})
    assert reply.status == 429
    assert reply.json["error"].keys() == {"code", "message"}
    assert "Slow down." in reply.json["error"]["message"]


def test_an_answer_that_was_cut_fails(many: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-1"] = Script([*scripts.piece("chat"), CUT])
    events = sent(create(many, {"model": "chat-1", "input": "Hi", "stream": True}))
    error, end = events[-2:]
    assert (error["event_type"], error["error"]["code"]) == ("error", "upstream_disconnected")
    assert (end["event_type"], end["interaction"]["status"]) == ("interaction.completed", "failed")
    whole = get(many, end["interaction"]["id"]).json
    assert (whole["status"], whole["errors"], output_of(whole)) == ("failed", [error["error"]], "Hel")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"model": "demo"}, "input"),
        ({"model": "demo", "input": []}, "input"),
        ({"model": "demo", "input": 3}, "input"),
        ({"model": "demo", "input": ["Hi"]}, "input[0]"),
        ({"model": "demo", "input": [{"type": "text"}]}, "input[0].text"),
        ({"model": "demo", "input": [{"type": "text", "text": "Hi"}, {"type": "thing"}]}, "input[1].type"),
        ({"model": "demo", "input": {"type": "image"}}, "input"),
        ({"model": "demo", "input": {"type": "image", "data": "!!"}}, "input.data"),
        ({"model": "demo", "input": {"type": "image", "uri": "file:///etc/passwd"}}, "input.uri"),
        ({"model": "demo", "input": {"type": "document", "uri": "files/1"}}, "input.uri"),
        ({"model": "demo", "input": [{"type": "function_call", "id": "", "name": "f"}]}, "input[0].id"),
        ({"model": "demo", "input": [{"type": "function_result", "result": "r"}]}, "input[0].call_id"),
        ({**HELLO, "tools": [{"type": "function"}]}, "tools[0].name"),
        ({**HELLO, "generation_config": {"max_output_tokens": 0}}, "generation_config.max_output_tokens"),
        ({**HELLO, "generation_config": {"tool_choice": "sometimes"}}, "generation_config.tool_choice"),
        ({**HELLO, "agent": "deep-research"}, "agent"),
        ({"agent": "demo", "input": "Hi"}, "agent"),
        ({**HELLO, "cached_content": "cachedContents/1"}, "cached_content"),
    ],
)
def test_a_wrong_field_is_named(demo: str, body: dict[str, Any], where: str) -> None:
    reply = create(demo, body)
    assert (reply.status, reply.json["error"]["message"].startswith(where)) == (400, True), reply.json


def test_what_is_deep_or_huge_is_refused_or_answered(demo: str) -> None:
    deep: Any = "x"
    for _ in range(100):
        deep = {"a": deep}
    steps = [
        {"type": "google_search_call", "id": "s", "arguments": {"queries": [deep]}},
        *[HELLO_STEP] * 2000,
    ]
    assert create(demo, {"model": "demo", "input": steps}).status == 200
    for _ in range(50):
        deep = {"a": deep}
    assert create(demo, {"model": "demo", "input": [{**steps[0], "arguments": deep}]}).status == 400


HELLO_STEP: Any = {"type": "user_input", "content": [{"type": "text", "text": "Hello"}]}


def test_an_upstream_of_its_own_names_what_is_lost(many: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-1"] = Script(scripts.text("chat", "Hello"))
    config = {"thinking_level": "low", "speech_config": {"voice": "a"}}
    request = {
        "model": "chat-1",
        "input": "Hi",
        "generation_config": config,
        "safety_settings": [{"type": "x"}],
    }
    lost = create(many, request).headers["openresponses-losses"]
    assert "generation_config.speech_config" in lost
    assert "safety_settings" in lost


def test_labels_are_kept_with_it(demo: str) -> None:
    interaction = create(demo, {**HELLO, "labels": {"team": "a"}}).json
    assert get(demo, interaction["id"]).json["labels"] == {"team": "a"}


@pytest.fixture
def google(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server over an upstream of the API itself."""
    reached = UpstreamSettings(name="g", url=upstream.url, dialect="interactions", api_key="secret")
    with serving(Settings(store="memory://", upstreams=[reached], timeouts=PATIENT)) as base:
        yield base


def streamed(*events: Any) -> Script:
    frames = [f"event: {each['event_type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]
    return Script(frames)


THOUGHT: Any = {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]}
SEARCH: Any = [
    {"type": "google_search_call", "id": "s", "arguments": {"queries": ["a"]}, "signature": "eA=="},
    {"type": "google_search_result", "call_id": "s", "result": [{"search_suggestions": "<b>"}]},
]
SAID: Any = {"type": "model_output", "content": [{"type": "text", "text": "Yes."}]}


def test_n1_what_google_wants_back_goes_back_as_it_came(google: str, upstream: ScriptedUpstream) -> None:
    steps = [THOUGHT, *SEARCH, SAID]
    upstream.scripts["m"] = streamed(
        {"event_type": "interaction.created", "interaction": {"id": "v1_a", "status": "in_progress"}},
        *(
            event
            for index, step in enumerate(steps)
            for event in (
                {"event_type": "step.start", "index": index, "step": step},
                {"event_type": "step.stop", "index": index},
            )
        ),
        {"event_type": "interaction.completed", "interaction": {"id": "v1_a", "status": "completed"}},
    )
    config = {"thinking_summaries": "auto"}
    request = {"model": "m", "input": "Why?", "generation_config": config, "safety_settings": [{"type": "x"}]}
    first = create(google, request).json
    assert first["steps"] == steps
    sent = upstream.received[-1]
    assert sent.path.endswith("/v1/interactions")
    assert sent.headers["x-goog-api-key"] == "secret"
    assert (sent.body["safety_settings"], sent.body["generation_config"]) == ([{"type": "x"}], config)
    hello = {"type": "user_input", "content": [{"type": "text", "text": "Why?"}]}
    more = {"type": "user_input", "content": [{"type": "text", "text": "More"}]}
    create(google, {"model": "m", "input": "More", "previous_interaction_id": first["id"]})
    assert upstream.received[-1].body["input"] == [hello, *steps, more]
    create(google, {"model": "m", "input": [hello, *first["steps"], more], "store": False})
    assert upstream.received[-1].body["input"] == [hello, *steps, more]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_other_clients_over_an_upstream_of_it(google: str, upstream: ScriptedUpstream, path: str) -> None:
    upstream.scripts["m"] = Script(scripts.text("interactions", "Hel", "lo"))
    fields = (
        {"input": "Hi"} if path.endswith("responses") else {"messages": [{"role": "user", "content": "Hi"}]}
    )
    reply = call(google, "POST", path, {"model": "m", "stream": True, **fields})
    assert (reply.status, b"Hel" in reply.body) == (200, True)
    input = upstream.received[-1].body["input"]
    assert input == [{"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}]


def test_an_upstream_of_it_that_refuses(google: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = refusal(400, message="Bad thing.", code="invalid_request")
    reply = create(google, {"model": "m", "input": "Hi"})
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")


def test_an_upstream_of_it_whose_stream_ends_early(google: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(scripts.text("interactions", "Hel", "lo")[:-2])
    events = sent(create(google, {"model": "m", "input": "Hi", "stream": True}))
    assert events[-1]["interaction"]["status"] == "failed"
    assert text_of(events) == "Hello"


def test_a_model_made_in_the_background_by_an_upstream_of_it(google: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(scripts.text("interactions", "Hel", "lo"))
    tools = [{"type": "url_context"}]
    id = create(google, {"model": "m", "input": "Hi", "background": True, "tools": tools}).json["id"]
    wait_until(lambda: get(google, id).json["status"] == "completed")
    assert upstream.received[-1].body["tools"] == tools


@pytest.mark.parametrize(
    ("field", "lacks"),
    [({}, False), ({"safety_settings": [{"type": "x"}]}, True), ({"labels": {"team": "a"}}, False)],
)
def test_n3_another_worker_makes_none_without_its_own_fields(field: dict[str, Any], lacks: bool) -> None:
    """What only Google's API has of a request is not stored: such a one is its own worker's."""
    request, _ = from_interactions({**HELLO, "background": True, **field})
    assert is_personal(request) is lacks
    assert lacks_secrets(stored_request(request, "openresponses")) is lacks


def test_n1_the_signature_of_a_call_goes_back(google: str, upstream: ScriptedUpstream) -> None:
    signed = {"type": "function_call", "id": "c", "name": "look", "arguments": {}, "signature": "c2ln"}
    upstream.scripts["m"] = streamed(
        {"event_type": "step.start", "index": 0, "step": signed},
        {"event_type": "step.stop", "index": 0},
        {"event_type": "interaction.completed", "interaction": {"status": "requires_action"}},
    )
    first = create(google, {"model": "m", "input": "Look"}).json
    assert first["steps"] == [signed]
    result = {"type": "function_result", "call_id": "c", "result": "seen"}
    create(google, {"model": "m", "input": [result], "previous_interaction_id": first["id"]})
    assert upstream.received[-1].body["input"][1] == signed
    hello = {"type": "user_input", "content": [{"type": "text", "text": "Look"}]}
    create(google, {"model": "m", "input": [hello, signed, result], "store": False})
    assert upstream.received[-1].body["input"][1] == signed
