"""What a request asks for as a constraint on what comes back: tools, formats, input that is too long."""

import json
from typing import Any

import pytest

from openresponses_server.requests.answer_format import FenceFilter
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.schema import event_violations
from tests.support.serving import call, respond, serving, stream
from tests.support.sockets import opened_socket
from tests.support.upstream import DONE, Script, ScriptedUpstream, Step, chunk, refusal, text
from tests.support.upstream import call as tool_call

TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("look", "run", "stop")
]
ONLY_LOOK = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]}


def calling(*names: str, said: str = "") -> Script:
    """A model that says something and calls these tools, whatever the request says."""
    steps: list[Step] = [chunk(content=said)] if said else []
    for index, name in enumerate(names):
        steps += [
            tool_call(index, "", name, f"call_{index}"),
            tool_call(index, '{"n":'),
            tool_call(index, "1}"),
        ]
    return Script([*steps, chunk("tool_calls"), DONE])


def made(response: dict[str, Any]) -> list[str]:
    return [item["name"] for item in response["output"] if item["type"] == "function_call"]


# ── which tools ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("choice", "left"),
    [
        (None, ["look", "run", "look"]),
        ("auto", ["look", "run", "look"]),
        ("required", ["look", "run", "look"]),
        ("none", []),
        (ONLY_LOOK, ["look", "look"]),
        (ONLY_LOOK | {"mode": "required"}, ["look", "look"]),
        (ONLY_LOOK | {"mode": "none"}, []),
        ({"type": "allowed_tools", "tools": [{"name": "run"}, {"name": "look"}]}, ["look", "run", "look"]),
        ({"type": "function", "name": "run"}, ["run"]),
    ],
    ids=str,
)
def test_calls_outside_the_choice_never_show(
    bridged: str, upstream: ScriptedUpstream, choice: Any, left: list[str]
) -> None:
    upstream.scripts["wild"] = calling("look", "run", "look", said="Well.")
    reply = stream(bridged, model="wild", tools=TOOLS, tool_choice=choice)
    assert made(reply.final) == left
    assert reply.final["status"] == "completed"
    assert [event_violations(event) for event in reply.events] == [[]] * len(reply.events)
    # the tools are sent as they were declared
    assert [tool["name"] for tool in reply.final["tools"]] == ["look", "run", "stop"]
    whole = respond(bridged, model="wild", tools=TOOLS, tool_choice=choice).json
    assert made(whole) == left


def test_constraints_hold_on_a_websocket(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["wild"] = calling("look", "run", said="Well.")
    with opened_socket(bridged) as socket:
        turn = socket.turn(model="wild", input="x", tools=TOOLS, tool_choice=ONLY_LOOK)
    assert made(turn.final) == ["look"]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "name": "look"}, ONLY_LOOK | {"mode": "required"}]
)
def test_call_that_must_be_made_and_was_not_is_a_failure(
    bridged: str, upstream: ScriptedUpstream, choice: Any, streamed: bool
) -> None:
    upstream.scripts["tame"] = Script(text("I'd rather not."))
    if streamed:
        response = stream(bridged, model="tame", tools=TOOLS, tool_choice=choice).final
    else:
        response = respond(bridged, model="tame", tools=TOOLS, tool_choice=choice).json
    assert (response["status"], response["error"]["code"]) == ("failed", "model_error")
    assert "tool_choice" in response["error"]["message"]
    assert response["output"][0]["content"][0]["text"] == "I'd rather not."


def test_forced_function_is_not_replaced_by_another(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["wild"] = calling("run")
    reply = respond(bridged, model="wild", tools=TOOLS, tool_choice={"type": "function", "name": "look"})
    assert (reply.status, reply.error["type"], reply.error["code"]) == (500, "model_error", "model_error")


def test_answer_of_nothing_but_refused_calls_is_a_failure(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["wild"] = calling("run")
    response = stream(bridged, model="wild", tools=TOOLS, tool_choice="none").final
    assert (response["status"], response["error"]["code"]) == ("failed", "model_error")


def test_what_is_cut_is_incomplete_and_not_blamed(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["cut"] = Script(text("I wi", finish_reason="length"))
    response = stream(bridged, model="cut", tools=TOOLS, tool_choice="required").final
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


def test_name_that_comes_late_is_judged_when_it_comes(bridged: str, upstream: ScriptedUpstream) -> None:
    head = {"index": 0, "id": "call_a", "type": "function", "function": {"arguments": '{"n":'}}
    for name, left in (("look", [('{"n":1}', "look")]), ("run", [])):
        late = {"index": 0, "function": {"name": name, "arguments": "1}"}}
        upstream.scripts["late"] = Script(
            [
                chunk(content="Hm"),
                chunk(tool_calls=[head]),
                chunk(tool_calls=[late]),
                chunk("tool_calls"),
                DONE,
            ]
        )
        output = stream(bridged, model="late", tools=TOOLS, tool_choice=ONLY_LOOK).final["output"]
        assert [(item["arguments"], item["name"]) for item in output[1:]] == left


def test_custom_and_namespaced_tools_are_known_by_the_client_s_names(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    tools = [
        {"type": "custom", "name": "sql"},
        {"type": "namespace", "name": "db", "tools": [{"type": "function", "name": "drop"}]},
    ]
    upstream.scripts["wild"] = Script(
        [
            chunk(content="Hm"),
            tool_call(0, '{"input":"select 1"}', "sql", "call_a"),
            tool_call(1, "{}", "db__drop", "call_b"),
            chunk("tool_calls"),
            DONE,
        ]
    )
    for allowed, left in (("sql", "custom_tool_call"), ("drop", "function_call")):
        choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": allowed}]}
        output = respond(bridged, model="wild", tools=tools, tool_choice=choice).json["output"]
        assert [item["type"] for item in output] == ["message", left]


@pytest.mark.parametrize(("most", "left"), [(1, 1), (2, 2), (5, 3)])
def test_max_tool_calls(bridged: str, upstream: ScriptedUpstream, most: int, left: int) -> None:
    upstream.scripts["wild"] = calling("look", "look", "run")
    response = stream(bridged, model="wild", tools=TOOLS, max_tool_calls=most).final
    assert made(response) == ["look", "look", "run"][:left]
    assert response["max_tool_calls"] == most
    assert response["status"] == "completed"


# ── formats ────────────────────────────────────────────────────────────────────────────────────────────
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORMAT = {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}


@pytest.fixture(scope="module")
def schemaless(upstream: ScriptedUpstream) -> Any:
    """A server in front of an upstream that knows no schemas."""
    options = {"json_schema": "json_object"}
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url, options=options)])) as base:
        yield base


def answers(upstream: ScriptedUpstream, model: str, said: str) -> None:
    """Have the model say it in small pieces."""
    upstream.scripts[model] = Script(text(*(said[at : at + 3] for at in range(0, len(said), 3))))


def output_text(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('{"city": "Oslo"}', '{"city": "Oslo"}'),
        ('```json\n{"city": "Oslo"}\n```', '{"city": "Oslo"}'),
        ('  ```\n{"city": "``Oslo"}\n```\n\n', '{"city": "``Oslo"}'),
        ('{"city": "a\\n```"}', '{"city": "a\\n```"}'),
    ],
)
def test_schema_is_asked_for_in_words_where_the_upstream_has_none(
    schemaless: str, upstream: ScriptedUpstream, said: str, shown: str
) -> None:
    answers(upstream, "poor", said)
    response = stream(schemaless, model="poor", instructions="Be brief.", text={"format": FORMAT}).final
    assert response["status"] == "completed"
    assert output_text(response) == shown
    assert response["instructions"] == "Be brief."
    assert response["text"]["format"]["type"] == "json_schema"
    body = upstream.last("poor").body
    assert body["response_format"] == {"type": "json_object"}
    assert body["messages"][0]["content"].startswith("Be brief.")
    assert json.dumps(SCHEMA) in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Oslo", "not JSON"),
        ('{"city": 7}', "$.city"),
        ('{"town": "Oslo"}', "required"),
        ('{"city": "Oslo" Enjoy!', "not JSON"),
        ("", "model_error"),
    ],
)
def test_answer_that_does_not_fit_is_reported_truthfully(
    schemaless: str, upstream: ScriptedUpstream, said: str, why: str
) -> None:
    answers(upstream, "poor", said or "```")
    response = stream(schemaless, model="poor", text={"format": FORMAT}).final
    assert (response["status"], response["error"]["code"]) == ("failed", "model_error")
    assert why in json.dumps(response["error"])


def test_model_that_calls_a_tool_or_refuses_did_not_answer(
    schemaless: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["poor"] = calling("look")
    response = stream(schemaless, model="poor", tools=TOOLS, text={"format": FORMAT}).final
    assert (response["status"], made(response)) == ("completed", ["look"])
    upstream.scripts["poor"] = Script([chunk(refusal="No."), chunk("stop"), DONE])
    assert stream(schemaless, model="poor", text={"format": FORMAT}).final["status"] == "completed"


def test_cut_answer_is_incomplete(schemaless: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["poor"] = Script(text('{"ci', finish_reason="length"))
    assert stream(schemaless, model="poor", text={"format": FORMAT}).final["status"] == "incomplete"


def test_native_schema_goes_out_and_nothing_is_added(bridged: str, upstream: ScriptedUpstream) -> None:
    answers(upstream, "rich", '{"city": "Oslo"}')
    stream(bridged, model="rich", text={"format": FORMAT})
    body = upstream.last("rich").body
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_schema_that_is_none_is_a_400(schemaless: str) -> None:
    format_ = FORMAT | {"schema": {"type": "thing"}}
    reply = respond(schemaless, model="poor", text={"format": format_})
    assert (reply.status, reply.error["param"]) == (400, "text.format.schema")


@pytest.mark.parametrize(
    "said", ['```json\n{"a": 1}\n```', '{"a": "```"}', "``", "plain ```", "```\n", " \n", "```x"]
)
def test_fence_comes_off_at_whatever_point_the_text_is_split(said: str) -> None:
    def shown(pieces: list[str]) -> str:
        format = FenceFilter()
        return "".join([*map(format.feed, pieces), format.close()])

    whole = shown([said])
    assert all(shown([said[:at], said[at:]]) == whole for at in range(len(said)))
    assert shown(list(said)) == whole


# ── the rest ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"code": "context_length_exceeded", "message": "Too long."}),
        (
            400,
            {"message": "This model's maximum context length is 4096 tokens. However, you requested 5000."},
        ),
        (
            400,
            {
                "type": "exceed_context_size_error",
                "message": "the request exceeds the available context size",
            },
        ),
        (
            400,
            {
                "type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum",
            },
        ),
        (422, {"message": "Please reduce the length of the messages or completion."}),
        (400, {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}),
    ],
    ids=range(6),
)
@pytest.mark.parametrize("truncation", ["disabled", None])
def test_overflow_is_reported_by_one_code(
    bridged: str, upstream: ScriptedUpstream, status: int, error: dict[str, Any], truncation: str | None
) -> None:
    upstream.scripts["small"] = refusal(status, **error)
    reply = respond(bridged, model="small", truncation=truncation)
    assert (reply.status, reply.error["code"]) == (status, "context_length_exceeded")
    assert reply.error["message"] == error["message"]


SURFACES: dict[str, tuple[str, dict[str, Any]]] = {
    "Responses": ("/v1/responses", {"model": "small", "input": "Hi"}),
    "Chat": ("/v1/chat/completions", {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}),
    "Messages": (
        "/v1/messages",
        {"model": "small", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
    ),
    "Gemini": ("/v1beta/models/small:generateContent", {"contents": [{"parts": [{"text": "Hi"}]}]}),
    "VS Code": ("/vscode/v1/chat", {"model": "small", "messages": [{"role": 1, "content": "Hi"}]}),
}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("status", [400, 429, 500])
def test_overflow_reads_so_on_every_surface_and_is_not_asked_again(
    bridged: str, upstream: ScriptedUpstream, status: int, surface: str
) -> None:
    message = (
        "The messages are more than fit." if status == 429 else "prompt too long; exceeded context length"
    )
    upstream.scripts["small"] = refusal(status, message=message, code="context_length_exceeded")
    before = len(upstream.received)
    path, body = SURFACES[surface]
    reply = call(bridged, "POST", path, body)
    assert reply.status == 400, "any other status but 413 and 422 is asked again, or not shortened for"
    assert len(upstream.received) == before + 1
    if surface == "Messages":  # whose errors have no code: Claude Code goes by these words
        assert reply.error == {"type": "invalid_request_error", "message": f"prompt is too long: {message}"}
    elif surface == "Gemini":
        assert (reply.error["status"], reply.error["message"]) == ("INVALID_ARGUMENT", message)
    else:
        assert (reply.error["code"], reply.error["message"]) == ("context_length_exceeded", message)


def test_other_refusals_keep_their_codes(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["small"] = refusal(400, code="bad", message="temperature is too long a word")
    assert respond(bridged, model="small").error["code"] == "bad"


def test_metadata_is_echoed(demo: str) -> None:
    assert respond(demo, model="demo", metadata={"a": "b"}).json["metadata"] == {"a": "b"}


def test_include_is_kept_or_reported_as_lost(bridged: str, upstream: ScriptedUpstream) -> None:
    included = ["reasoning.encrypted_content", "message.output_text.logprobs"]
    reply = respond(bridged, model="plain", include=included)
    assert "openresponses-losses" not in reply.headers
    assert upstream.last("plain").body["logprobs"] is True
    lost = respond(bridged, model="plain", include=["file_search_call.results"])
    assert "include" in lost.headers["openresponses-losses"]
