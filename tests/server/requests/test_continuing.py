"""An upstream that keeps responses itself is sent what is new alone; where that is not enough, all."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.protocol.codec import decode_response, encode
from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.store.base import UpstreamResponse
from openresponses_server.store.records import linked, turn_of
from tests.support.serving import Reply, call, respond, serving, stream, wait_for
from tests.support.sockets import opened_socket
from tests.support.upstream import JSON, Script, ScriptedUpstream, refusal

MODEL = "keeps"
OTHER = "other"
ALICE = {"authorization": "Bearer alice"}
BOB = {"authorization": "Bearer bob"}
FORGOTTEN = refusal(400, code="previous_response_not_found", message="Not found.")


def answer(response_id: str, text: str, *, status: str = "completed", **fields: Any) -> Script:
    """A whole answer of an upstream that speaks Responses."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    response = {"id": response_id, "object": "response", "status": status, "model": MODEL, "output": [item]}
    return Script([json.dumps(response | fields).encode()], headers=JSON)


def event(kind: str, **fields: Any) -> bytes:
    """One frame of a stream of Responses."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


BEGUN = {"id": "resp_up_9", "object": "response", "status": "in_progress", "model": MODEL, "output": []}
NOT_FOUND = {"code": "previous_response_not_found", "message": "Not found.", "param": "previous_response_id"}
IN_STREAM = [
    [event("error", **NOT_FOUND)],
    [event("error", error=NOT_FOUND, sequence_number=0)],
    [
        event("response.created", response=BEGUN, sequence_number=0),
        event("response.in_progress", response=BEGUN, sequence_number=1),
        0.05,
        event(
            "response.failed", response={**BEGUN, "status": "failed", "error": NOT_FOUND}, sequence_number=2
        ),
    ],
]
ONE, TWO, THREE = answer("resp_up_1", "One."), answer("resp_up_2", "Two."), answer("resp_up_3", "Three.")


@contextmanager
def server(*upstreams: ScriptedUpstream, store: str = "memory", **more: Any) -> Iterator[str]:
    """A server whose first upstream keeps responses and falls back on the next, in order."""
    settings = [
        UpstreamSettings(
            name=f"up{number}",
            url=each.url,
            dialect="responses",
            models=["*"] if not number else [f"up{number}"],
            options={"stateful": True},
            failover=[f"up{number + 1}"] if number + 1 < len(upstreams) else [],
            **more.get("upstream", {}),
        )
        for number, each in enumerate(upstreams)
    ]
    fields = {name: value for name, value in more.items() if name != "upstream"}
    with serving(Settings(upstreams=settings, store=store, **fields)) as base:
        yield base


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def base(scripted: ScriptedUpstream) -> Iterator[str]:
    """A server in front of it that knows that it keeps responses."""
    with server(scripted) as address:
        yield address


@pytest.fixture
def kept(scripted: ScriptedUpstream) -> ScriptedUpstream:
    """It, as it was at first."""
    scripted.scripts.clear()
    scripted.scripts[MODEL] = [ONE, TWO, THREE]
    scripted.received.clear()
    return scripted


def turn(
    base: str, text: Any, before: str | None = None, key: dict[str, str] | None = None, **more: Any
) -> Reply:
    link = {} if before is None else {"previous_response_id": before}
    reply = respond(base, key, **{"model": MODEL, "input": text, **link, **more})
    assert reply.status == 200, reply.body
    return reply


def texts(body: dict[str, Any]) -> list[str]:
    """What a request of ours says, in order."""
    return [
        item["content"] if isinstance(item["content"], str) else item["content"][0]["text"]
        for item in body["input"]
    ]


def sent(upstream: ScriptedUpstream) -> list[tuple[str | None, list[str]]]:
    return [(each.body.get("previous_response_id"), texts(each.body)) for each in upstream.received]


WHOLE = ["a", "One.", "b"]


def test_only_what_is_new_is_sent(base: str, kept: ScriptedUpstream) -> None:
    first = turn(base, "a").json
    second = turn(base, "b", first["id"], instructions="Be brief.").json
    third = turn(base, "c", second["id"]).json
    shown = call(base, "GET", f"/v1/responses/{third['id']}").json
    assert sent(kept) == [(None, ["a"]), ("resp_up_1", ["b"]), ("resp_up_2", ["c"])]
    assert all(each.body["store"] is True for each in kept.received)
    assert kept.received[1].body["instructions"] == "Be brief."
    assert "instructions" not in kept.received[2].body
    # our own ids are the client's, the upstream's are not shown
    assert shown == third
    assert third["previous_response_id"] == second["id"]
    assert "up_" not in json.dumps([first, second, third, shown])


def test_a_stream_too(base: str, kept: ScriptedUpstream) -> None:
    first = turn(base, "a").json
    reply = stream(base, model=MODEL, input="b", previous_response_id=first["id"])
    assert b"Two." in reply.body
    assert b"up_" not in reply.body
    assert sent(kept)[1] == ("resp_up_1", ["b"])


def test_it_is_kept_over_a_restart(kept: ScriptedUpstream, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'r.db'}"
    with server(kept, store=store) as base:
        first = turn(base, "a").json
    with server(kept, store=store) as base:
        assert call(base, "GET", f"/v1/responses/{first['id']}").json == first
        turn(base, "b", first["id"])
    assert sent(kept)[1] == ("resp_up_1", ["b"])


def test_a_call_is_answered_there(base: str, kept: ScriptedUpstream) -> None:
    called = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "find", "arguments": "{}"}
    call_answer = answer("resp_up_1", "", output=[{**called, "status": "completed"}])
    kept.scripts[MODEL] = [call_answer, TWO]
    tools = [{"type": "function", "name": "find", "parameters": {"type": "object"}}]
    result = {"type": "function_call_output", "call_id": "c1", "output": "7"}
    first = turn(base, "a", tools=tools).json
    turn(base, [result], first["id"], tools=tools)
    unpaired = [{**result, "call_id": "c2"}]
    refused = respond(base, model=MODEL, input=unpaired, previous_response_id=first["id"])
    assert [item["type"] for item in kept.received[1].body["input"]] == ["function_call_output"]
    assert kept.received[1].body["previous_response_id"] == "resp_up_1"
    assert refused.status == 400
    assert len(kept.received) == 2


@pytest.mark.parametrize(
    "refused",
    [
        FORGOTTEN,
        refusal(404, message="Response with id 'resp_up_1' not found.", type="invalid_request_error"),
        refusal(400, message="It can't be used.", param="previous_response_id"),
        Script([b'{"error":{"code":"previous_response_not_found","message":"No."}}'], headers=JSON),
    ],
)
def test_what_the_upstream_has_forgotten_is_sent_whole_once(
    base: str, kept: ScriptedUpstream, refused: Script
) -> None:
    kept.scripts[MODEL] = [ONE, refused, TWO, THREE]
    first = turn(base, "a").json
    second = turn(base, "b", first["id"]).json
    turn(base, "c", second["id"])
    assert second["output"][0]["content"][0]["text"] == "Two."
    assert sent(kept)[1:] == [("resp_up_1", ["b"]), (None, WHOLE), ("resp_up_2", ["c"])]


@pytest.mark.parametrize("steps", IN_STREAM, ids=["flat", "nested", "behind its beginning"])
@pytest.mark.parametrize("streams", [True, False])
def test_what_is_refused_as_the_first_event_of_a_stream_is_sent_whole(
    base: str, kept: ScriptedUpstream, steps: list[Any], streams: bool
) -> None:
    """Its client sees one answer and nothing of the refusal."""
    kept.scripts[MODEL] = [ONE, Script(steps), TWO]
    first = turn(base, "a").json
    body = {"model": MODEL, "input": "b", "previous_response_id": first["id"]}
    if streams:
        reply = stream(base, **body)
        kinds = [each.event for each in reply.frames]
        assert kinds.count("response.created") == 1
        assert "error" not in kinds
        final = reply.final
    else:
        final = respond(base, **body).json
    assert (final["status"], final["output"][0]["content"][0]["text"]) == ("completed", "Two.")
    assert sent(kept)[1:] == [("resp_up_1", ["b"]), (None, WHOLE)]


def test_what_is_refused_behind_some_of_an_answer_is_not_asked_again(
    base: str, kept: ScriptedUpstream
) -> None:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
    begun = [
        event("response.created", response=BEGUN, sequence_number=0),
        event("response.output_item.added", output_index=0, item=item, sequence_number=1),
    ]
    kept.scripts[MODEL] = [ONE, Script([*begun, event("error", **NOT_FOUND)])]
    first = turn(base, "a").json
    final = stream(base, model=MODEL, input="b", previous_response_id=first["id"]).final
    assert (final["status"], len(kept.received)) == ("failed", 2)


def test_an_upstream_that_forgets_always_is_asked_twice_and_no_more(
    base: str, kept: ScriptedUpstream
) -> None:
    kept.scripts[MODEL] = [ONE, FORGOTTEN]
    first = turn(base, "a").json
    refused = respond(base, model=MODEL, input="b", previous_response_id=first["id"])
    assert (refused.status, len(kept.received)) == (400, 3)


def test_another_refusal_is_not_asked_again(base: str, kept: ScriptedUpstream) -> None:
    kept.scripts[MODEL] = [ONE, refusal(400, message="Too hot.", param="temperature")]
    first = turn(base, "a").json
    refused = respond(base, model=MODEL, input="b", previous_response_id=first["id"])
    assert (refused.status, refused.json["error"]["param"], len(kept.received)) == (400, "temperature", 2)


def test_after_failover_the_other_upstream_gets_all(kept: ScriptedUpstream) -> None:
    kept.scripts[MODEL] = [ONE, refusal(503, message="Down."), THREE]
    with ScriptedUpstream({MODEL: answer("resp_b_1", "Two.")}) as second_upstream:
        with server(kept, second_upstream) as base:
            first = turn(base, "a").json
            second = turn(base, "b", first["id"]).json
            turn(base, "c", second["id"])
        assert sent(second_upstream) == [(None, WHOLE)]
    assert sent(kept)[1:] == [("resp_up_1", ["b"]), (None, [*WHOLE, "Two.", "c"])]


def test_another_model_gets_all(base: str, kept: ScriptedUpstream) -> None:
    kept.scripts[OTHER] = answer("resp_o_1", "Other.")
    first = turn(base, "a").json
    turn(base, "b", first["id"], model=OTHER)
    assert sent(kept)[1] == (None, WHOLE)


def test_another_owner_finds_nothing(kept: ScriptedUpstream) -> None:
    with server(kept, api_keys=[hashed("alice"), hashed("bob")]) as base:
        first = turn(base, "a", None, ALICE).json
        for link in (first["id"], "resp_up_1"):
            refused = respond(base, BOB, model=MODEL, input="b", previous_response_id=link)
            assert refused.json["error"]["code"] == "previous_response_not_found"
        turn(base, "b", first["id"], ALICE)
    assert sent(kept) == [(None, ["a"]), ("resp_up_1", ["b"])]


def test_other_credentials_get_all(kept: ScriptedUpstream, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'r.db'}"
    with server(kept, store=store, upstream={"headers": {"x-project": "one"}}) as base:
        first = turn(base, "a").json
    with server(kept, store=store, upstream={"headers": {"x-project": "two"}}) as base:
        turn(base, "b", first["id"])
    assert sent(kept)[1] == (None, WHOLE)


def test_with_keys_passed_through(kept: ScriptedUpstream) -> None:
    with server(kept, upstream={"pass_through": True}) as base:
        first = turn(base, "a", None, ALICE).json
        assert respond(base, BOB, model=MODEL, input="b", previous_response_id=first["id"]).status == 400
        turn(base, "b", first["id"], ALICE)
    assert sent(kept)[1] == ("resp_up_1", ["b"])


@pytest.mark.parametrize("unfit", ["resp_" + "x" * 600, "", "r\0"])
def test_an_id_that_none_can_have_is_not_kept(base: str, kept: ScriptedUpstream, unfit: str) -> None:
    kept.scripts[MODEL] = [answer(unfit, "One."), TWO]
    turn(base, "b", turn(base, "a").json["id"])
    assert sent(kept)[1] == (None, WHOLE)


@pytest.mark.parametrize(
    "first",
    [
        answer("resp_up_1", "One.", store=False),
        answer("resp_up_1", "One.", status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    ],
)
def test_what_the_upstream_does_not_keep_whole_is_not_continued_there(
    base: str, kept: ScriptedUpstream, first: Script
) -> None:
    kept.scripts[MODEL] = [first, TWO]
    turn(base, "b", turn(base, "a").json["id"])
    assert sent(kept)[1] == (None, WHOLE)


def test_a_deleted_turn_before_makes_it_whole(base: str, kept: ScriptedUpstream) -> None:
    first = turn(base, "a").json
    second = turn(base, "b", first["id"]).json
    assert call(base, "DELETE", f"/v1/responses/{first['id']}").status == 200
    turn(base, "c", second["id"])
    assert sent(kept)[2] == (None, [*WHOLE, "Two.", "c"])


def test_a_condensed_history_is_sent_whole(base: str, kept: ScriptedUpstream) -> None:
    first = turn(base, "a").json
    window = call(
        base, "POST", "/v1/responses/compact", {"model": MODEL, "previous_response_id": first["id"]}
    )
    assert window.status == 200, window.body
    again = turn(base, [*window.json["output"], {"role": "user", "content": "b"}]).json
    turn(base, "c", again["id"])
    assert len(kept.received) == 4
    assert all("previous_response_id" not in each.body for each in kept.received)


def test_without_new_input_all_is_sent(base: str, kept: ScriptedUpstream) -> None:
    turn(base, [], turn(base, "a").json["id"])
    assert sent(kept)[1] == (None, ["a", "One."])


def test_an_upstream_that_keeps_nothing_gets_all(kept: ScriptedUpstream) -> None:
    settings = UpstreamSettings(url=kept.url, dialect="responses")
    with serving(Settings(upstreams=[settings])) as base:
        turn(base, "b", turn(base, "a").json["id"])
    assert sent(kept)[1] == (None, WHOLE)
    assert all(each.body["store"] is False for each in kept.received)


@pytest.mark.parametrize("field", ["store", "previous_response_id"])
def test_an_upstream_that_takes_no_link_gets_all(kept: ScriptedUpstream, field: str) -> None:
    options = {"stateful": True, "omit": [field]}
    settings = UpstreamSettings(url=kept.url, dialect="responses", options=options)
    with serving(Settings(upstreams=[settings])) as base:
        turn(base, "b", turn(base, "a").json["id"])
    assert sent(kept)[1] == (None, WHOLE)


def test_turns_of_a_socket(base: str, kept: ScriptedUpstream) -> None:
    with opened_socket(base) as socket:
        first = socket.turn(model=MODEL, input="a").final
        second = socket.turn(model=MODEL, input="b", previous_response_id=first["id"]).final
        assert call(base, "DELETE", f"/v1/responses/{first['id']}").status == 200
        socket.turn(model=MODEL, input="c", previous_response_id=second["id"])
    assert sent(kept)[1:] == [("resp_up_1", ["b"]), (None, [*WHOLE, "Two.", "c"])]


def test_an_unstored_turn_of_a_socket_is_sent_whole(base: str, kept: ScriptedUpstream) -> None:
    with opened_socket(base) as socket:
        first = socket.turn(model=MODEL, input="a", store=False).final
        socket.turn(model=MODEL, input="b", store=False, previous_response_id=first["id"])
    assert sent(kept)[1] == (None, WHOLE)
    assert kept.received[1].body["store"] is False


def test_a_marker_of_vs_code(base: str, kept: ScriptedUpstream) -> None:
    def chat(base: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        reply = call(base, "POST", "/vscode/v1/chat", {"model": MODEL, "messages": list(messages)})
        assert reply.status == 200, reply.body
        return [json.loads(line) for line in reply.body.splitlines() if line.strip()]

    question = {"role": 1, "content": [{"type": "LanguageModelTextPart", "value": "a"}]}
    more = {"role": 1, "content": [{"type": "LanguageModelTextPart", "value": "b"}]}
    answered = {"role": 2, "content": chat(base, question)}
    chat(base, question, answered, more)
    assert sent(kept)[1] == ("resp_up_1", ["b"])


def test_a_background_response(base: str, kept: ScriptedUpstream) -> None:
    first = turn(base, "a").json
    queued = turn(base, "b", first["id"], background=True).json
    ended = wait_for(base, queued["id"], "completed")
    turn(base, "c", ended["id"])
    assert sent(kept)[1:] == [("resp_up_1", ["b"]), ("resp_up_2", ["c"])]


@pytest.mark.parametrize("link", [7, None, {}, {"account": "a", "model": "m", "id": 1}])
def test_a_stored_link_that_can_t_be_read_is_none(base: str, kept: ScriptedUpstream, link: Any) -> None:
    response = decode_response(json.dumps(turn(base, "a").json))
    there = UpstreamResponse("account", MODEL, "resp_up_1")
    body = encode(linked(response, there))
    assert turn_of(response.id, body, []).upstream == there
    assert turn_of(response.id, body, []).response == response
    (field,) = json.loads(body).keys() - json.loads(encode(response)).keys()
    unfit = json.dumps(json.loads(body) | {field: link}).encode()
    assert turn_of(response.id, unfit, []).upstream is None
