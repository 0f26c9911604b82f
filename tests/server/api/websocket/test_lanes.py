"""Lanes of a connection: turns with one `stream_id` follow each other, others are made side by side."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.api.websocket.connection import ACTIVE, LANES, PENDING_STEERS, WAITING
from openresponses_server.settings import Limits, Settings, UpstreamSettings
from tests.support import sdks
from tests.support.in_process import InProcess, scope_of
from tests.support.serving import serving
from tests.support.sockets import LAST, Socket, opened_socket, violations
from tests.support.upstream import DONE, HANG, Script, ScriptedUpstream, call, chunk, refusal, text

Events = list[dict[str, Any]]
ANSWERS = ("error", "response.steer.", "response.inject.")  # the beginnings of their types


class Held:
    """Answers of which a part waits until `goes_on` is set."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    def words(self) -> Script:
        return Script([chunk(content="a"), self.goes_on.is_set, *text("b")])

    def call(self) -> Script:
        return Script([call(0, "{}", "f", "c1"), self.goes_on.is_set, chunk("tool_calls"), DONE])

    def cut(self) -> Script:
        return Script([chunk(content="a"), self.goes_on.is_set, chunk("length"), DONE])


@pytest.fixture
def held() -> Held:
    return Held()


def lanes_of(
    socket: Socket, turns: int, held: Held | None = None, answers: int = 0
) -> dict[str | None, Events]:
    """What comes until so many turns have ended, by lane. What is held goes on after so many answers to
    messages that are not turns."""
    lanes: dict[str | None, Events] = defaultdict(list)
    while turns:
        if held is not None and answers <= 0:
            held.goes_on.set()
        event = socket.receive()
        lanes[event.get("stream_id")].append(event)
        turns -= event["type"] in LAST
        answers -= event["type"].startswith(ANSWERS)
    return lanes


def text_of(events: Events) -> str:
    return "".join(each["delta"] for each in events if each["type"] == "response.output_text.delta")


def test_lanes_are_made_side_by_side_and_each_event_says_its_lane(
    bridged: str, upstream: ScriptedUpstream, held: Held
) -> None:
    upstream.scripts["slow"] = held.words()
    upstream.scripts["quick"] = Script(text("at once"))
    with opened_socket(bridged) as socket:
        socket.send(model="slow", input="x", stream_id="one")
        socket.send(model="quick", input="x", stream_id="two")
        socket.send(model="quick", input="x")
        lanes = lanes_of(socket, 2)
        assert lanes.keys() >= {"two", None}
        assert "response.completed" not in [event["type"] for event in lanes["one"]]
        first = [*lanes["one"], *lanes_of(socket, 1, held)["one"]]
    assert [text_of(events) for events in (first, lanes["two"], lanes[None])] == ["ab", "at once", "at once"]
    for events in (first, lanes["two"], lanes[None]):
        assert violations(events) == []


def test_turns_of_one_lane_follow_each_other(demo: str) -> None:
    with opened_socket(demo) as socket:
        for words in "abc":
            socket.send(input=words, stream_id="one", store=False)
        events = lanes_of(socket, 3)["one"]
    assert [event["type"] for event in events if event["type"] in ("response.created", *LAST)] == [
        "response.created",
        "response.completed",
    ] * 3
    assert text_of(events) == "You said: aYou said: bYou said: c"


def test_a_lane_forks_from_another_one(demo: str) -> None:
    with opened_socket(demo) as socket:
        first = socket.turn(input="One", store=False, stream_id="a").final["id"]
        second = socket.turn(input="Two", store=False, stream_id="a", previous_response_id=first)
        forked = socket.turn(
            input="Three", store=False, stream_id="b", previous_response_id=second.final["id"]
        )
        on = socket.turn(input="Four", store=False, stream_id="a", previous_response_id=second.final["id"])
        again = socket.turn(input="Five", store=False, stream_id="b", previous_response_id=forked.final["id"])
    for turn, before in ((forked, "Two"), (on, "Two"), (again, "Three")):
        assert f"Before that you said: {before}" in turn.text


def test_a_wrong_lane_is_refused_by_name(demo: str) -> None:
    with opened_socket(demo) as socket:
        for wrong in (3, "", "x" * 65, ["a"]):
            error = socket.turn(input="x", stream_id=wrong).error["error"]
            assert (error["code"], error["param"]) == ("invalid_value", "stream_id")
        assert socket.turn(input="x", stream_id="x" * 64).final["status"] == "completed"


def test_a_broken_message_of_a_lane_is_an_error_of_that_lane(demo: str) -> None:
    with opened_socket(demo) as socket:
        error = socket.turn(input=3, stream_id="one").error
        assert (error["stream_id"], error["error"]["param"]) == ("one", "input")
        assert socket.raw('{"type":"response.create","stream_id":').error["status"] == 400


# ── bounds ─────────────────────────────────────────────────────────────────────────────────────────────
def test_a_thousand_lanes_are_not_made(bridged: str, upstream: ScriptedUpstream, held: Held) -> None:
    upstream.scripts["slow"] = held.words()
    with opened_socket(bridged) as socket:
        for number in range(1000):
            socket.send(model="slow", input="x", store=False, stream_id=f"s{number}")
        lanes = lanes_of(socket, 1000, held, 1000 - LANES)
    refused = [name for name, events in lanes.items() if events[-1]["type"] == "error"]
    codes = {lanes[name][-1]["error"]["code"] for name in refused}
    assert len(lanes) == 1000
    assert 1000 - len(refused) == LANES
    assert codes == {"too_many_streams"}
    assert all(text_of(events) == "ab" for name, events in lanes.items() if name not in refused)


def test_idle_lanes_make_room(demo: str) -> None:
    with opened_socket(demo) as socket:
        for number in range(2 * LANES):
            assert socket.turn(input="x", store=False, stream_id=f"s{number}").final["status"] == "completed"


def test_what_waits_in_a_lane_is_bounded(bridged: str, upstream: ScriptedUpstream, held: Held) -> None:
    upstream.scripts["slow"] = held.words()
    upstream.scripts["quick"] = Script(text("q"))
    with opened_socket(bridged) as socket:
        socket.send(model="slow", input="x", stream_id="one")
        for _ in range(WAITING + 3):
            socket.send(model="quick", input="x", store=False, stream_id="one")
        events = lanes_of(socket, WAITING + 4, held, 3)["one"]
    errors = [event["error"]["code"] for event in events if event["type"] == "error"]
    assert errors == ["too_many_waiting"] * 3
    assert text_of(events) == "ab" + "q" * WAITING


def test_turns_at_once_are_bounded_and_fair(upstream: ScriptedUpstream) -> None:
    upstream.scripts["slow"] = Script([chunk(content="a"), 0.2, *text("b")])
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url, name="scripted")], limits=Limits(concurrent=100)
    )
    with serving(settings) as base, opened_socket(base) as socket:
        for number in range(ACTIVE + 4):
            socket.send(model="slow", input="x", store=False, stream_id=f"s{number}")
        begun: list[str] = []
        ended = 0
        most = 0
        while ended < ACTIVE + 4:
            event = socket.receive()
            if event["type"] == "response.created":
                begun.append(event["stream_id"])
            ended += event["type"] in LAST
            most = max(most, len(begun) - ended)
    assert most <= ACTIVE
    assert set(begun[-4:]) == {f"s{number}" for number in range(ACTIVE, ACTIVE + 4)}


# ── other messages ─────────────────────────────────────────────────────────────────────────────────────
def test_a_turn_is_cancelled_and_the_other_lanes_go_on(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["hangs"] = Script([chunk(content="a"), HANG])
    upstream.scripts["slow"] = Script(text("a", "b"))
    with opened_socket(bridged) as socket:
        socket.send(model="hangs", input="x", stream_id="one", store=False)
        while socket.receive()["type"] != "response.output_text.delta":
            pass
        socket.send(model="slow", input="x", stream_id="two")
        socket.send(type="response.cancel", stream_id="one")
        lanes = lanes_of(socket, 2)
        assert lanes["one"][-1]["response"]["status"] in ("cancelled", "incomplete", "failed")
        assert lanes["one"][-1]["type"] != "response.completed"
        assert text_of(lanes["two"]) == "ab"
        assert socket.turn(model="slow", input="x", stream_id="one").text == "ab"


def test_a_cancel_that_comes_too_early_or_too_late_harms_nothing(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["hangs"] = Script([chunk(content="a"), HANG])
    upstream.scripts["quick"] = Script(text("q"))
    with opened_socket(bridged) as socket:
        socket.send(type="response.cancel")
        assert socket.turn(model="quick", input="x").text == "q"
        socket.send(type="response.cancel")
        socket.send(type="response.cancel", response_id="resp_other")
        assert socket.turn(model="quick", input="x").text == "q"
        socket.send(model="hangs", input="x", store=False)
        socket.send(type="response.cancel", response_id="resp_other")
        socket.send(type="response.cancel")
        assert socket.rest().types[-1] != "response.completed"


STOP = [{"type": "message", "role": "user", "content": "Stop."}]


def steers(events: Events) -> Events:
    return [event for event in events if event["type"].startswith("response.steer.")]


@pytest.mark.parametrize("lane", [None, "one"])
@pytest.mark.parametrize("store", [True, False])
def test_p27_what_is_said_during_a_response_is_its_next_turn(
    bridged: str, upstream: ScriptedUpstream, held: Held, lane: str | None, store: bool
) -> None:
    upstream.scripts["slow"] = [held.words(), Script(text("stopped"))]
    with opened_socket(bridged) as socket:
        named = {} if lane is None else {"stream_id": lane}
        socket.send(model="slow", input="x", instructions="be", store=store, **named)
        created = socket.receive()
        response_id = created["response"]["id"]
        socket.send(type="response.steer", previous_response_id=response_id, input="Stop.")
        socket.send(
            type="response.steer",
            previous_response_id=response_id,
            input=[{"role": "user", "content": "Now."}],
        )
        lanes = lanes_of(socket, 2, held, 2)
        assert set(lanes) == {lane}
        again = socket.turn(
            model="slow", input="y", previous_response_id=lanes[lane][-1]["response"]["id"], **named
        )
    events = [created, *lanes[lane]]
    accepted = steers(events)
    assert [each["type"] for each in accepted] == ["response.steer.accepted"] * 2
    assert {each["steer"]["previous_response_id"] for each in accepted} == {response_id}
    assert len({each["steer"]["id"] for each in accepted}) == 2
    turns = [event for event in events if event not in accepted]
    second = next(at for at, event in enumerate(turns) if event["type"] == "response.created" and at)
    assert (text_of(turns[:second]), text_of(turns[second:])) == ("ab", "stopped")
    assert turns[second]["response"]["previous_response_id"] == response_id
    messages = upstream.received[-2].body["messages"]
    assert [(each["role"], each["content"]) for each in messages] == [
        ("system", "be"),
        ("user", "x"),
        ("assistant", "ab"),
        ("user", "Stop."),
        ("user", "Now."),
    ]
    assert again.events


def test_p27_what_is_said_waits_for_the_outputs_of_calls(
    bridged: str, upstream: ScriptedUpstream, held: Held
) -> None:
    upstream.scripts["calls"] = [held.call(), Script(text("done")), held.call(), Script(text("other"))]
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    outputs = [{"type": "function_call_output", "call_id": "c1", "output": "r"}]
    with opened_socket(bridged) as socket:
        for joined in (True, False):
            held.goes_on.clear()
            socket.send(model="calls", input="x", tools=tools)
            created = socket.receive()["response"]["id"]
            socket.send(type="response.steer", previous_response_id=created, input=STOP)
            events = lanes_of(socket, 1, held, 1)[None]
            (accepted,) = steers(events)
            pending = socket.receive()
            assert (pending["type"], pending["steer"]) == ("response.steer.pending", accepted["steer"])
            assert pending["reason"] == "waiting_for_required_input"
            assert pending["required_input"] == [
                {"type": "function_call_output", "call_id": "c1", "name": "f"}
            ]
            if joined:
                turn = socket.turn(model="calls", input=outputs, previous_response_id=created, tools=tools)
                assert turn.text == "done"
                roles = [each["role"] for each in upstream.received[-1].body["messages"]]
                assert sorted(roles) == ["assistant", "tool", "user", "user"]
            else:
                socket.send(model="calls", input="other")
                failed, *_ = lanes_of(socket, 1)[None]
                assert failed["error"]["code"] == "response_not_active"
                assert failed["steer"] == {**accepted["steer"], "input": STOP}


def test_p27_input_that_cant_be_sent_is_given_back(
    bridged: str, upstream: ScriptedUpstream, held: Held
) -> None:
    upstream.scripts["cut"] = held.cut()
    upstream.scripts["once"] = [held.words(), refusal(400, message="No.")]
    with opened_socket(bridged) as socket:
        for model, code in (("cut", "response_not_active"), ("once", "successor_creation_failed")):
            held.goes_on.clear()
            socket.send(model=model, input="x")
            created = socket.receive()["response"]["id"]
            socket.send(type="response.steer", previous_response_id=created, input=STOP)
            events = lanes_of(socket, 1, held, 1)[None]
            (accepted,) = steers(events)
            failed = socket.receive()
            assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", code)
            assert failed["steer"] == {**accepted["steer"], "input": STOP}
        upstream.scripts["quick"] = Script(text("q"))
        assert socket.turn(model="quick", input="x").text == "q"


def test_p27_input_that_waits_in_a_lane_that_makes_room_is_given_back(
    bridged: str, upstream: ScriptedUpstream, held: Held
) -> None:
    upstream.scripts["calls"] = held.call()
    upstream.scripts["quick"] = Script(text("q"))
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    with opened_socket(bridged) as socket:
        socket.send(model="calls", input="x", tools=tools, stream_id="one")
        created = socket.receive()["response"]["id"]
        socket.send(type="response.steer", previous_response_id=created, input=STOP)
        (accepted,) = steers(lanes_of(socket, 1, held, 1)["one"])
        assert socket.receive()["type"] == "response.steer.pending"
        for number in range(LANES):
            socket.send(model="quick", input="x", store=False, stream_id=f"s{number}")
        failed = socket.receive()
        while failed.get("stream_id") != "one":
            failed = socket.receive()
    assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "response_not_active")
    assert failed["steer"] == {**accepted["steer"], "input": STOP}


@pytest.mark.parametrize(
    "given",
    [
        "",
        [],
        None,
        7,
        [{"type": "function_call_output", "call_id": "c", "output": "x"}],
        [{"role": "system", "content": "x"}],
        [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}],
        [{"role": "user", "content": []}],
        [{"role": "user"}],
        ["x"],
    ],
    ids=str,
)
def test_p27_only_the_users_messages_steer(
    bridged: str, upstream: ScriptedUpstream, held: Held, given: Any
) -> None:
    upstream.scripts["slow"] = held.words()
    with opened_socket(bridged) as socket:
        socket.send(model="slow", input="x")
        created = socket.receive()["response"]["id"]
        socket.send(type="response.steer", previous_response_id=created, input=given)
        (failed,) = steers(lanes_of(socket, 1, held, 1)[None])
    assert failed["error"]["code"] == "invalid_input"
    assert failed["steer"] == {"previous_response_id": created, "input": given}


def test_p27_refusals_say_why_and_the_turn_goes_on(
    bridged: str, upstream: ScriptedUpstream, held: Held
) -> None:
    upstream.scripts["slow"] = held.words()
    with opened_socket(bridged) as socket:
        socket.send(model="slow", input="x")
        created = socket.receive()
        response_id = created["response"]["id"]
        socket.send(type="response.steer", previous_response_id="resp_other", input=STOP)
        socket.send(type="response.steer", input=STOP)
        socket.send(type="response.processed", response_id=response_id)
        events = [created, *lanes_of(socket, 1, held, 2)[None]]
        socket.send(type="response.steer", previous_response_id=response_id, input=STOP)
        late = socket.receive()
    failed = [*steers(events), late]
    codes = ["response_not_found", "invalid_input", "response_already_completed"]
    assert [each["error"]["code"] for each in failed] == codes
    assert [each["sequence_number"] for each in failed] == [0, 1, 2]
    turn = [event for event in events if event not in failed]
    assert violations(turn) == []
    assert text_of(turn) == "ab"


def test_p27_a_compaction_is_not_steered(bridged: str, upstream: ScriptedUpstream, held: Held) -> None:
    upstream.scripts["slow"] = held.words()
    with opened_socket(bridged) as socket:
        socket.send(model="slow", input="x", context_management=[{"type": "compaction"}])
        created = socket.receive()["response"]["id"]
        socket.send(type="response.steer", previous_response_id=created, input=STOP)
        (failed,) = steers(lanes_of(socket, 1, held, 1)[None])
    assert failed["error"]["code"] == "steering_not_supported"


def test_p27_input_that_waits_is_limited(bridged: str, upstream: ScriptedUpstream, held: Held) -> None:
    upstream.scripts["slow"] = [held.words(), Script(text("next"))]
    with opened_socket(bridged) as socket:
        socket.send(model="slow", input="x")
        created = socket.receive()["response"]["id"]
        for _ in range(PENDING_STEERS + 1):
            socket.send(type="response.steer", previous_response_id=created, input=STOP)
        answers = steers(lanes_of(socket, 2, held, PENDING_STEERS + 1)[None])
    assert [each["type"] for each in answers] == ["response.steer.accepted"] * PENDING_STEERS + [
        "response.steer.failed"
    ]
    assert answers[-1]["error"]["code"] == "too_many_pending_steers"


@pytest.mark.parametrize("given", [b"1e999", b'"\xff"', b"1" * 5000], ids=["number", "text", "integer"])
def test_steering_with_what_only_its_head_is_json_of_is_refused(demo: str, given: bytes) -> None:
    """The head skips the input: it does not find what a decoder of all of it refuses."""
    with opened_socket(demo) as socket:
        refused = socket.raw(b'{"type": "response.steer", "previous_response_id": "r", "input": %b}' % given)
        assert refused.error["error"]["code"] == "invalid_json"
        assert socket.turn(input="Hello").text == "You said: Hello"


def test_openai_s_client_steers_and_reads_lanes(demo: str) -> None:
    client = sdks.openai.OpenAI(base_url=f"{demo}/v1", api_key="none", max_retries=0)
    with client.responses.connect() as connection:
        connection.response.steer(input="Stop.", previous_response_id="resp_1")
        failed = next(iter(connection))
        assert failed.type == "response.steer.failed"
        assert (failed.error.code, failed.steer.input) == ("response_not_found", "Stop.")
        for lane in ("a", "b"):
            connection.response.create(model="demo", input=lane, stream_id=lane)
        done: dict[str, str] = {}
        for event in connection:
            if event.type == "response.completed":
                done[str(event.stream_id)] = event.response.output_text
            if len(done) == 2:
                break
    assert done == {"a": "You said: a", "b": "You said: b"}


# ── a client that floods, stops reading and is cut off ─────────────────────────────────────────────────
@pytest.fixture
def quiet(upstream: ScriptedUpstream) -> Iterator[InProcess]:
    server = InProcess(Settings(upstreams=[UpstreamSettings(url=upstream.url, name="scripted")]))
    yield server
    server.close()


def test_a_client_that_does_not_read_is_not_read_either(quiet: InProcess) -> None:
    """Answers to a flood wait for their reader, and so does the flood."""
    taken = 0

    async def flood() -> None:
        nonlocal taken
        steer = json.dumps({"type": "response.steer", "previous_response_id": "r", "input": "x" * 1000})

        async def receive() -> dict[str, Any]:
            nonlocal taken
            taken += 1
            if taken == 1:
                return {"type": "websocket.connect"}
            return {"type": "websocket.receive", "text": steer}

        async def send(message: Any) -> None:
            if message["type"] != "websocket.accept":
                await asyncio.sleep(60)

        scope = {**scope_of("websocket", b"/v1/responses", []), "subprotocols": []}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(quiet.app(scope, receive, send), 0.5)

    quiet.run(flood())
    assert taken == 2


def test_lanes_end_with_their_connection(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["hangs"] = Script([chunk(content="a"), HANG])
    with opened_socket(bridged) as socket:
        for number in range(8):
            socket.send(model="hangs", input="x", store=False, stream_id=f"s{number}")
            socket.send(model="hangs", input="x", store=False, stream_id=f"s{number}")
        begun = 0
        while begun < 8:
            begun += socket.receive()["type"] == "response.output_text.delta"
        socket.send(type="response.cancel", stream_id="s0")
    assert len(upstream.received) <= 9


ITEMS = [{"type": "function_call_output", "call_id": "c", "output": "x"}]


def test_n3_items_for_an_agent_that_waits_are_given_back(
    bridged: str, upstream: ScriptedUpstream, held: Held
) -> None:
    upstream.scripts["slow"] = held.words()
    with opened_socket(bridged) as socket:
        socket.send(model="slow", input="x")
        created = socket.receive()["response"]["id"]
        for response_id in (created, "resp_1", 3):
            socket.send(type="response.inject", response_id=response_id, input=ITEMS)
        turn = lanes_of(socket, 1, held, 3)[None]
        socket.send(type="response.inject", response_id=created, input=ITEMS)
        failed = [each for each in [*turn, socket.receive()] if each["type"] == "response.inject.failed"]
    assert [each["response_id"] for each in failed] == [created, "resp_1", 3, created]
    assert all(each["input"] == ITEMS for each in failed)
    codes = [each["error"]["code"] for each in failed]
    assert codes == ["response_not_found"] * 3 + ["response_already_completed"]
