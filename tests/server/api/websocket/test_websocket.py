"""`GET /v1/responses` as a WebSocket: turns, continuation, errors, limits."""

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from openresponses_server.api.websocket.connection import ResponsesWebSocket
from openresponses_server.settings import Limits, Settings, Timeouts, UpstreamSettings
from tests.support.in_process import InProcess, scope_of
from tests.support.serving import call, respond, serving, wait_for
from tests.support.sockets import opened_socket, violations
from tests.support.upstream import CUT, HANG, Script, ScriptedUpstream, chunk, refusal, text
from tests.support.waiting import wait_until

NOT_FOUND = "previous_response_not_found"
TOOL = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}


def contents(upstream: ScriptedUpstream, model: str) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in upstream.last(model).body["messages"]]


# ── turns ──────────────────────────────────────────────────────────────────────────────────────────────
def test_a_turn_has_the_events_of_a_stream(demo: str) -> None:
    streamed = respond(demo, model="demo", input="Hello", stream=True)
    with opened_socket(demo) as socket:
        turn = socket.turn(input="Hello")
    assert turn.types == streamed.types
    assert turn.text == "You said: Hello"


def test_turns_follow_each_other_and_each_is_numbered_from_zero(demo: str) -> None:
    with opened_socket(demo) as socket:
        for number in range(5):
            turn = socket.turn(input=f"Turn {number}")
            assert turn.text == f"You said: Turn {number}"
            assert [event["sequence_number"] for event in turn.events] == list(range(len(turn.events)))


def test_next_turn_may_follow_at_once(bridged: str, upstream: ScriptedUpstream) -> None:
    """An upstream that closes slowly after its last word does not hold the next turn up."""
    upstream.scripts["lingers"] = Script([*text("Done"), 0.5])
    with opened_socket(bridged) as socket:
        for _ in range(3):
            assert socket.turn(model="lingers", input="x").text == "Done"


def test_second_message_within_a_turn_is_refused_and_the_first_goes_on(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    may_end = threading.Event()
    upstream.scripts["slow"] = Script([chunk(content="a"), may_end.is_set, *text("b")])
    with opened_socket(bridged) as socket:
        socket.send(model="slow", input="x")
        begun = [socket.receive() for _ in range(5)]
        socket.send(model="slow", input="y")
        refused = socket.receive()
        may_end.set()
        turn = socket.rest(*begun)
    assert (refused["type"], refused["status"]) == ("error", 409)
    assert refused["error"]["code"] == "response_in_progress"
    assert turn.text == "ab"


@pytest.mark.parametrize(
    "stray",
    [
        {"stream": True},
        {"stream": False},
        {"stream_options": {"include_obfuscation": False}},
        {"background": True},
        {"background": False},
        {"stream_id": "s1"},
        {"client_metadata": {"a": "b"}, "unheard_of": [1]},
    ],
    ids=str,
)
def test_case_44_stray_and_unknown_fields_are_accepted(demo: str, stray: dict[str, Any]) -> None:
    with opened_socket(demo) as socket:
        turn = socket.turn(input="Hello", **stray)
    assert turn.final["status"] == "completed"
    assert turn.final["background"] is False


def test_connects_with_and_without_openai_s_beta_header(demo: str) -> None:
    for headers in ({}, {"openai-beta": "responses_websockets=2026-02-06"}):
        with opened_socket(demo, headers) as socket:
            assert socket.turn(input="Hello").final["status"] == "completed"


def test_messages_are_deflated_when_the_client_wants_it(demo: str) -> None:
    with opened_socket(demo) as socket:
        extensions = socket.connection.response.headers["sec-websocket-extensions"]
        assert extensions.startswith("permessage-deflate")
        assert len(socket.turn(input="write 2000 words").text.split()) == 2000
    with opened_socket(demo, compression=None) as socket:
        assert "sec-websocket-extensions" not in socket.connection.response.headers
        assert socket.turn(input="Hello").text == "You said: Hello"


# ── continuation ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("store", [True, False])
def test_turn_continues_the_one_before(bridged: str, upstream: ScriptedUpstream, store: bool) -> None:
    model = f"chain {store}"
    upstream.scripts[model] = Script(text("Answer"))
    with opened_socket(bridged) as socket:
        link = None
        for words in ("One", "Two", "Three"):
            turn = socket.turn(
                model=model, input=words, store=store, previous_response_id=link, instructions=f"Rule {words}"
            )
            assert turn.final["previous_response_id"] == link
            link = turn.final["id"]
    assert contents(upstream, model) == [
        ("system", "Rule Three"),
        ("user", "One"),
        ("assistant", "Answer"),
        ("user", "Two"),
        ("assistant", "Answer"),
        ("user", "Three"),
    ]


def test_tool_call_is_answered_on_the_same_connection(demo: str) -> None:
    with opened_socket(demo) as socket:
        first = socket.turn(input="What time is it?", tools=[TOOL], store=False).final
        result = {
            "type": "function_call_output",
            "call_id": first["output"][0]["call_id"],
            "output": "noon",
        }
        second = socket.turn(input=[result], tools=[TOOL], store=False, previous_response_id=first["id"])
    assert second.text == "The tool answered: noon"


def test_not_stored_is_not_stored_and_stored_is(demo: str) -> None:
    with opened_socket(demo) as socket:
        response = socket.turn(input="Hello").final
        passing = socket.turn(input="Hello", store=False).final
    assert call(demo, "GET", f"/v1/responses/{response['id']}").json == response
    assert call(demo, "GET", f"/v1/responses/{passing['id']}").status == 404


def test_stored_response_is_continued_from_elsewhere(demo: str) -> None:
    over_http = respond(demo, model="demo", input="One").json["id"]
    with opened_socket(demo) as socket:
        second = socket.turn(input="Two", previous_response_id=over_http)
        assert second.text.endswith("Before that you said: One")
    with opened_socket(demo) as socket:
        third = socket.turn(input="Three", previous_response_id=second.final["id"])
        assert third.text.endswith("Before that you said: Two")
    again = respond(demo, model="demo", input="Four", previous_response_id=third.final["id"])
    assert again.status == 200


def test_case_39_not_stored_response_is_unknown_on_another_connection(demo: str) -> None:
    with opened_socket(demo) as socket:
        lost = socket.turn(input="One", store=False).final["id"]
    with opened_socket(demo) as socket:
        error = socket.turn(input="Two", store=False, previous_response_id=lost).error
        assert (error["status"], error["error"]["code"]) == (400, NOT_FOUND)
        assert error["error"]["param"] == "previous_response_id"
        assert error["error"]["type"] == "invalid_request_error"
        assert socket.turn(input="Two", store=False).final["status"] == "completed"


def test_turn_that_is_not_stored_never_looks_into_the_store(demo: str) -> None:
    stored = respond(demo, model="demo", input="One").json["id"]
    with opened_socket(demo) as socket:
        error = socket.turn(input="Two", store=False, previous_response_id=stored).error
    assert error["error"]["code"] == NOT_FOUND


def test_only_the_latest_response_is_remembered(demo: str) -> None:
    with opened_socket(demo) as socket:
        first = socket.turn(input="One", store=False).final["id"]
        socket.turn(input="Two", store=False)
        error = socket.turn(input="Three", store=False, previous_response_id=first).error
    assert error["error"]["code"] == NOT_FOUND


def test_what_later_turns_stand_on_is_continued_though_deleted(demo: str) -> None:
    with opened_socket(demo) as socket:
        first = socket.turn(input="Forget me").final["id"]
        second = socket.turn(input="And me", previous_response_id=first).final["id"]
        assert call(demo, "DELETE", f"/v1/responses/{first}").status == 200
        third = socket.turn(input="Go on", previous_response_id=second).final
        assert third["status"] == "completed"
        error = socket.turn(input="From the first again", previous_response_id=first).error
    assert error["error"]["code"] == NOT_FOUND


def test_latest_response_is_not_continued_when_deleted_though_another_turn_stands_on_it(demo: str) -> None:
    with opened_socket(demo) as socket:
        first = socket.turn(input="Forget me").final["id"]
        elsewhere = respond(demo, model="demo", input="A branch", previous_response_id=first)
        assert call(demo, "DELETE", f"/v1/responses/{first}").status == 200
        error = socket.turn(input="Go on", previous_response_id=first).error
    assert error["error"]["code"] == NOT_FOUND
    assert respond(demo, model="demo", input="Go on", previous_response_id=elsewhere.json["id"]).status == 200


def test_deleted_response_is_not_continued(demo: str) -> None:
    with opened_socket(demo) as socket:
        first = socket.turn(input="Forget me").final["id"]
        second = socket.turn(input="And me", previous_response_id=first).final["id"]
        assert call(demo, "DELETE", f"/v1/responses/{second}").status == 200
        error = socket.turn(input="What did I say?", previous_response_id=second).error
        over_http = respond(demo, model="demo", input="What did I say?", previous_response_id=second)
    assert (error["status"], error["error"]) == (400, over_http.error)
    assert error["error"]["code"] == NOT_FOUND


@pytest.mark.parametrize("deleted", ["before", "between"])
def test_unstored_turns_do_not_keep_what_was_deleted(demo: str, deleted: str) -> None:
    with opened_socket(demo) as socket:
        ids = {"before": socket.turn(input="One").final["id"]}
        latest = socket.turn(input="Two", store=False, previous_response_id=ids["before"]).final["id"]
        ids["between"] = latest = socket.turn(input="Three", previous_response_id=latest).final["id"]
        latest = socket.turn(input="Four", store=False, previous_response_id=latest).final["id"]
        assert call(demo, "DELETE", f"/v1/responses/{ids[deleted]}").status == 200
        error = socket.turn(input="Five", store=False, previous_response_id=latest).error
    assert error["error"]["code"] == NOT_FOUND
    assert ids[deleted] in error["error"]["message"]


def test_stored_and_unstored_turns_are_one_conversation(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["mixed"] = Script(text("Answer"))
    latest = None
    with opened_socket(bridged) as socket:
        for number, store in enumerate([True, False, True, True, False]):
            turn = socket.turn(model="mixed", input=str(number), store=store, previous_response_id=latest)
            latest = turn.final["id"]
    texts = [content for _, content in contents(upstream, "mixed")]
    assert texts == ["0", "Answer", "1", "Answer", "2", "Answer", "3", "Answer", "4"]


def test_item_of_a_deleted_response_is_not_remembered(demo: str) -> None:
    with opened_socket(demo) as socket:
        first = socket.turn(input="Forget me").final
        assert call(demo, "DELETE", f"/v1/responses/{first['id']}").status == 200
        error = socket.turn(input=[{"type": "item_reference", "id": first["output"][0]["id"]}]).error
    assert error["error"]["code"] == "item_not_found"


# ── eviction ───────────────────────────────────────────────────────────────────────────────────────────
def test_output_without_its_call_fails_and_evicts(demo: str) -> None:
    unmatched = {"type": "function_call_output", "call_id": "call_nobody", "output": "x"}
    with opened_socket(demo) as socket:
        first = socket.turn(input="One", store=False).final["id"]
        error = socket.turn(input=[unmatched], store=False, previous_response_id=first).error
        assert (error["status"], error["error"]["code"]) == (400, "unpaired_tool_call")
        assert error["error"]["param"] == "input[0]"
        again = socket.turn(input="Two", store=False, previous_response_id=first).error
        assert again["error"]["code"] == NOT_FOUND


@pytest.mark.parametrize(
    "script",
    [refusal(500, message="no"), refusal(400, message="no"), Script([chunk(content="Ha"), CUT])],
    ids=["500", "400", "cut"],
)
def test_failed_continuation_evicts_what_it_continued(
    bridged: str, upstream: ScriptedUpstream, script: Script
) -> None:
    upstream.scripts["fine"], upstream.scripts["fails"] = Script(text("Fine")), script
    with opened_socket(bridged) as socket:
        first = socket.turn(model="fine", input="One", store=False).final["id"]
        assert socket.turn(model="fails", input="Two", store=False, previous_response_id=first).types[-1] in (
            "error",
            "response.failed",
        )
        again = socket.turn(model="fine", input="Three", store=False, previous_response_id=first).error
    assert again["error"]["code"] == NOT_FOUND


@pytest.mark.parametrize(
    "wrong", [{"temperature": "hot"}, {"model": "nobody"}, {"input": [{"type": "message"}]}]
)
def test_refused_continuation_evicts_too(demo: str, wrong: dict[str, Any]) -> None:
    with opened_socket(demo) as socket:
        first = socket.turn(input="One", store=False).final["id"]
        socket.turn(**({"input": "Two", "store": False, "previous_response_id": first} | wrong)).error  # noqa: B018
        again = socket.turn(input="Three", store=False, previous_response_id=first).error
    assert again["error"]["code"] == NOT_FOUND


def test_failure_of_another_turn_evicts_nothing(demo: str) -> None:
    with opened_socket(demo) as socket:
        first = socket.turn(input="One", store=False).final["id"]
        socket.turn(input="x", model="nobody").error  # noqa: B018
        assert socket.raw("{").error["status"] == 400
        assert (
            socket.turn(input="Two", store=False, previous_response_id=first).final["status"] == "completed"
        )


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("{", "invalid_json", None),
        ("", "invalid_json", None),
        ("[]", "invalid_json", None),
        ('{"type": "response.unheard_of"}', "invalid_value", "type"),
        ('{"input": "x"}', "invalid_value", "type"),
        ('{"type": "response.create", "model": "demo", "input": 3}', "invalid_value", "input"),
        ('{"type": "response.create", "model": "demo"}', "invalid_value", "input"),
        ('{"type": "response.create", "model": 7, "input": "x"}', "invalid_value", "model"),
        (b'{"type": "response.create", "model": "demo", "input": "\xff"}', "invalid_json", None),
        ("[" * 400 + "]" * 400, "invalid_value", None),
    ],
    ids=range(10),
)
def test_broken_message_is_a_400_and_the_connection_goes_on(
    demo: str, message: str | bytes, code: str, param: str | None
) -> None:
    with opened_socket(demo) as socket:
        error = socket.raw(message).error
        assert socket.turn(input="Hello").final["status"] == "completed"
    assert (error["status"], error["error"]["code"], error["error"]["param"]) == (400, code, param)
    assert error["error"]["type"] == "invalid_request_error"
    assert error["error"]["message"]


def test_unknown_model(demo: str) -> None:
    with opened_socket(demo) as socket:
        error = socket.turn(model="nobody", input="x").error
    assert (error["status"], error["error"]["code"], error["error"]["param"]) == (
        404,
        "model_not_found",
        "model",
    )


def test_s5_upstream_s_refusal_keeps_its_meaning(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["busy"] = refusal(429, {"retry-after": "7"}, message="Slow down", code="limit")
    with opened_socket(bridged) as socket:
        error = socket.turn(model="busy", input="x").error
    assert (error["status"], error["error"]["code"], error["error"]["message"]) == (429, "limit", "Slow down")
    assert error["headers"]["retry-after"] == "7"


def test_failure_within_the_stream_is_one_response_failed(bridged: str, upstream: ScriptedUpstream) -> None:
    """An `error` ends the turn here, so that none stands before `response.failed`."""
    upstream.scripts["cut"] = Script([chunk(content="Half"), CUT])
    with opened_socket(bridged) as socket:
        turn = socket.turn(model="cut", input="x")
        assert "error" not in turn.types
        assert turn.types[-1] == "response.failed"
        assert turn.final["error"]["code"] == "upstream_disconnected"
        assert turn.text == "Half"
        # nothing is left over for the turn after it
        upstream.scripts["cut"] = Script(text("Whole"))
        assert socket.turn(model="cut", input="x").text == "Whole"


def test_defect_is_reported_without_its_text(demo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_args: Any, **_named: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("openresponses_server.api.websocket.turns.prepare", broken)
    with opened_socket(demo) as socket:
        error = socket.turn(input="x").error
    assert (error["status"], error["error"]["code"]) == (500, "internal_error")
    assert "secret" not in json.dumps(error)


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("text", ["x" * 100_001, "é" * 60_000, "x" * 1_000_000])
@pytest.mark.parametrize("compression", ["deflate", None])
def test_message_beyond_the_limit_is_a_413_and_the_last_one(
    bridged: str, text: str, compression: str | None
) -> None:
    message = json.dumps({"type": "response.create", "input": text}, ensure_ascii=False)
    with suppress(ConnectionClosed), opened_socket(bridged, compression=compression) as socket:
        error = socket.raw(message).error
        assert (error["status"], error["error"]["code"]) == (413, "request_too_large")
        with pytest.raises(ConnectionClosed) as closed:
            socket.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


@pytest.fixture
def time_is_over(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Ends the time of the connection that was opened last."""
    opened: list[tuple[asyncio.AbstractEventLoop, ResponsesWebSocket]] = []
    serve = ResponsesWebSocket.serve

    async def noted(connection: ResponsesWebSocket) -> None:
        opened.append((asyncio.get_running_loop(), connection))
        await serve(connection)

    def end() -> None:
        loop, connection = opened[-1]
        loop.call_soon_threadsafe(lambda: setattr(connection._receiving, "deadline", -math.inf))
        wait_until(lambda: connection._expired)

    monkeypatch.setattr(ResponsesWebSocket, "serve", noted)
    return end


def test_connection_s_time_ends_with_its_own_error(time_is_over: Callable[[], None]) -> None:
    with serving(Settings()) as base, opened_socket(base) as socket:
        assert socket.turn(input="Hello").final["status"] == "completed"
        time_is_over()
        error = socket.rest().error
        assert (error["status"], error["error"]["code"]) == (400, "websocket_connection_limit_reached")
        with pytest.raises(ConnectionClosed):
            socket.receive()


def test_client_that_is_gone_when_the_time_is_over_is_no_failure() -> None:
    """Found by an hour of faults: what is said to it fails, and then its connection is not open any more."""
    sent: list[str] = []
    connect = iter([{"type": "websocket.connect"}])

    async def receive() -> Any:
        return next(connect, None) or await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if message["type"] != "websocket.accept":
            raise OSError

    with closing(InProcess(Settings(websocket_limit=0.05))) as server:
        scope = {**scope_of("websocket", b"/v1/responses", []), "subprotocols": []}
        server.run(server.app(scope, receive, send))
    assert sent == ["websocket.accept", "websocket.send"]


def test_turn_in_progress_is_finished_before_that(
    bridged: str, upstream: ScriptedUpstream, time_is_over: Callable[[], None]
) -> None:
    may_end = threading.Event()
    upstream.scripts["m"] = Script([chunk(content="one "), may_end.is_set, *text("two")])
    with opened_socket(bridged) as socket:
        socket.send(model="m", input="x")
        turn, refused = [socket.receive()], []
        time_is_over()
        socket.send(input="another")
        while turn[-1]["type"] != "response.completed":
            message = socket.receive()
            if message["type"] == "error":
                refused.append(message)
                may_end.set()
            else:
                turn.append(message)
        assert socket.rest(*turn).text == "one two"
        assert [each["error"]["code"] for each in refused] == ["websocket_connection_limit_reached"]
        assert socket.rest().error["error"]["code"] == "websocket_connection_limit_reached"


def test_concurrent_turns_count_like_requests() -> None:
    with (
        serving(Settings(limits=Limits(concurrent=1))) as base,
        opened_socket(base) as first,
        opened_socket(base) as second,
    ):
        first.send(model="demo-slow", input="100 words")
        first.receive()
        error = second.turn(input="x").error
    assert (error["status"], error["error"]["code"]) == (429, "too_many_concurrent_requests")


def test_s7_connection_without_a_known_key_is_refused_at_the_handshake() -> None:
    from openresponses_server.settings.files import hashed

    with serving(Settings(api_keys=[hashed("sk-one"), hashed("sk-two")])) as base:
        with pytest.raises(InvalidStatus) as refused, opened_socket(base):
            pass
        assert refused.value.response.status_code == 401
        with opened_socket(base, {"authorization": "Bearer sk-one"}) as socket:
            mine = socket.turn(input="One").final["id"]
        with opened_socket(base, {"authorization": "Bearer sk-two"}) as socket:
            error = socket.turn(input="Two", previous_response_id=mine).error
            assert error["error"]["code"] == NOT_FOUND


def test_web_page_of_another_origin_is_refused(demo: str) -> None:
    with pytest.raises(InvalidStatus) as refused, opened_socket(demo, {"origin": "https://evil.example"}):
        pass
    assert refused.value.response.status_code == 403
    with opened_socket(demo, {"origin": demo}) as socket:
        assert socket.turn(input="Hello").final["status"] == "completed"


def test_case_44_get_without_an_upgrade_is_a_426(demo: str) -> None:
    reply = call(demo, "GET", "/v1/responses")
    assert (reply.status, reply.error["code"]) == (426, "upgrade_required")
    assert reply.headers["upgrade"] == "websocket"


# ── leaving ────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("when", "script"),
    [
        ("socket, before headers", Script(before=HANG)),
        ("socket, before the first byte", Script([HANG])),
        (
            "socket, in the middle",
            Script([chunk(content="x "), 0.02] * 20_000),
        ),
    ],
)
@pytest.mark.parametrize("politely", [True, False])
def test_case_41_leaving_aborts_the_upstream(
    bridged: str, upstream: ScriptedUpstream, when: str, script: Script, politely: bool
) -> None:
    model = f"{when} {politely}"
    upstream.scripts[model] = script
    with opened_socket(bridged) as socket:
        socket.send(model=model, input="x", store=False)
        time.sleep(0.2)
        if not politely:
            socket.connection.socket.shutdown(2)
    wait_until(lambda: upstream.last(model).gone_at is not None)


def test_s3_stored_turn_goes_on_when_its_client_leaves(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["left"] = Script(
        [*(step for _ in range(20) for step in (chunk(content="x "), 0.02)), *text("y")]
    )
    with opened_socket(bridged) as socket:
        socket.send(model="left", input="x")
        response_id = socket.receive()["response"]["id"]
    final = wait_for(bridged, response_id, "completed")
    assert final["output"][0]["content"][0]["text"] == "x " * 20 + "y"


# ── Codex ──────────────────────────────────────────────────────────────────────────────────────────────
def test_prewarm_generates_nothing_and_is_continued(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["warm"] = Script(text("Hi"))
    before = len(upstream.received)
    rules = {"type": "message", "role": "developer", "content": "Be brief."}
    with opened_socket(bridged) as socket:
        warm = socket.turn(model="warm", input=[rules], store=False, generate=False)
        assert warm.types == ["response.created", "response.in_progress", "response.completed"]
        assert warm.final["output"] == []
        assert len(upstream.received) == before
        link = warm.final["id"]
        turn = socket.turn(model="warm", input="Hello", store=False, previous_response_id=link)
        assert turn.text == "Hi"
    assert contents(upstream, "warm") == [("system", "Be brief."), ("user", "Hello")]


def test_stored_prewarm_is_there_for_others(demo: str) -> None:
    with opened_socket(demo) as socket:
        warm = socket.turn(input="Warm", generate=False).final
    assert call(demo, "GET", f"/v1/responses/{warm['id']}").json == warm
    second = respond(demo, model="demo", input="Go", previous_response_id=warm["id"]).json
    assert "Warm" in second["output"][0]["content"][0]["text"]


def test_prewarm_that_names_no_model_is_refused(demo: str) -> None:
    with opened_socket(demo) as socket:
        error = socket.raw('{"type": "response.create", "input": "Warm", "generate": false}').error
    assert (error["status"], error["error"]["param"]) == (400, "model")


def test_prewarm_of_an_unknown_model_is_refused(demo: str) -> None:
    with opened_socket(demo) as socket:
        assert socket.turn(model="nobody", input="x", generate=False).error["status"] == 404


def test_recorded_session_of_codex(bridged: str, upstream: ScriptedUpstream, shared: Path) -> None:
    """Its own messages, with our ids in the place of those it was given when it was recorded."""
    recorded = [
        json.loads(line)["body"]
        for line in (shared / "fixtures/client-requests/codex_exec_ws.jsonl").read_text().splitlines()
        if json.loads(line)["kind"] == "ws-frame"
    ]
    arguments = json.dumps({"cmd": "ls"})
    call_ids = [item["call_id"] for body in recorded for item in body["input"] if "call_id" in item]
    calls = [
        {
            "index": 0,
            "id": call_ids[0],
            "type": "function",
            "function": {"name": "exec_command", "arguments": arguments},
        }
    ]
    upstream.scripts["fake"] = Script([chunk(tool_calls=calls), chunk("tool_calls")])
    headers = {"user-agent": "codex_exec/0.169.0", "openai-beta": "responses_websockets=2026-02-06"}
    link = None
    with opened_socket(bridged, headers) as socket:
        for number, body in enumerate(recorded):
            if number == len(recorded) - 1:
                upstream.scripts["fake"] = Script(text("Done"))
            linked = {"previous_response_id": link} if "previous_response_id" in body else {}
            turn = socket.turn(**{**body, **linked})
            link = turn.final["id"]
    assert turn.text == "Done"


def test_case_43_codex_gets_events_as_signs_of_life(bridged: str, upstream: ScriptedUpstream) -> None:
    types: list[str] = []
    beat = "openresponses-bridge:keepalive"
    upstream.scripts["thinks"] = Script([b": thinking\n\n", lambda: types.count(beat) >= 2, *text("Hi")])
    with opened_socket(bridged, {"user-agent": "codex_exec/0.169.0"}) as socket:
        socket.send(model="thinks", input="x")
        events = []
        while "response.completed" not in types:
            events.append(socket.receive())
            types.append(events[-1]["type"])
        assert violations(events) == []
    upstream.scripts["thinks"] = Script([b": thinking\n\n", 0.9, *text("Hi")])
    with opened_socket(bridged) as socket:
        assert beat not in socket.turn(model="thinks", input="x").types


def test_slow_first_byte_is_answered_in_time(upstream: ScriptedUpstream) -> None:
    """Nothing is said before the upstream has accepted: then an error can still be an envelope."""
    upstream.scripts["late"] = Script(before=0.6, status=503, headers={"content-type": "text/plain"})
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)], keep_alive=0.1, timeouts=Timeouts(first_byte=2.0)
    )
    with serving(settings) as base, opened_socket(base, {"user-agent": "codex"}) as socket:
        assert socket.turn(model="late", input="x").error["status"] == 503
