"""WebSockets to an upstream: what a client gets is what it gets over HTTP, only the difference is sent, and
what a lying, lost or slow upstream does has one outcome."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.frames import Opcode

from openresponses_bridge.corpus import cases
from openresponses_server.settings import Settings, SocketSettings, Timeouts, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.serving import Reply, call, opened, output_text, respond, serving, stream
from tests.support.socket_upstream import (
    Call,
    Raw,
    SocketStep,
    SocketTurn,
    SocketUpstream,
    error_message,
    refused,
    text_frame,
)
from tests.support.upstream import CUT, HANG, RESET, Script, refusal
from tests.support.waiting import wait_until


@pytest.fixture
def upstream() -> Iterator[SocketUpstream]:
    with SocketUpstream() as scripted:
        yield scripted


@contextmanager
def bridged(upstream: SocketUpstream, limits: SocketSettings | None = None, **more: Any) -> Iterator[str]:
    """A server in front of it."""
    options = {"websocket": True, "websockets": limits or SocketSettings(), **more}
    one = UpstreamSettings(name="up", url=upstream.url, dialect="responses", **options)
    with serving(Settings(store="memory://", upstreams=[one])) as base:
        yield base


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


class Session:
    """A conversation whose client sends all of it each time."""

    def __init__(self, base: str, headers: dict[str, str] | None = None, **request: Any) -> None:
        self.base, self.headers, self.request = base, headers, {"model": "m", "store": False, **request}
        self.items: list[dict[str, Any]] = []

    def turn(self, *items: dict[str, Any]) -> Reply:
        self.items += items
        reply = stream(self.base, self.headers, input=self.items, **self.request)
        self.items += reply.final["output"]
        return reply


def normal(reply: Reply) -> list[dict[str, Any]]:
    """The events without ids and times."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: without(each)
                for key, each in value.items()
                if key not in ("id", "item_id", "created_at", "completed_at", "obfuscation")
            }
        return [without(each) for each in value] if isinstance(value, list) else value

    return [without(event) for event in reply.events]


ANSWERS: dict[str, Sequence[str | Call]] = {
    "text": ["Hel", "lo", " wörld\n", "🙂"],
    "calls": [Call("call_1", "f", '{"a": "b\\nc"}'), Call("call_2", "g", "{}")],
    "both": ["I look.", Call("call_1", "f", '{"a":1}')],
    "nothing": [],
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_that_over_http(upstream: SocketUpstream, name: str) -> None:
    upstream.say = lambda _body: ANSWERS[name]
    with bridged(upstream) as over_sockets, bridged(upstream, websocket=False) as over_http:
        replies = [Session(base).turn(said("Hello")) for base in (over_sockets, over_http)]
    assert normal(replies[0]) == normal(replies[1])
    assert (len(upstream.turns), len(upstream.received)) == (1, 1)
    of_socket, of_http = upstream.turns[0].body, upstream.received[0].body
    assert of_socket == {name: value for name, value in of_http.items() if name != "stream"}


def test_a_session_is_one_connection_and_sends_the_difference(upstream: SocketUpstream) -> None:
    upstream.say = lambda body: [
        f"Answer {len(body['input'])}.",
        Call(f"call_{len(body['input'])}", "f", "{}"),
    ]
    with bridged(upstream) as base:
        session = Session(base)
        session.turn(said("Hello"))
        for _ in range(4):
            call_id = session.items[-1]["call_id"]
            output = {"type": "function_call_output", "call_id": call_id, "output": "done"}
            session.turn(output, said("Go on."))
    assert len(upstream.handshakes) == 1
    assert [len(turn.message["input"]) for turn in upstream.turns] == [1, 2, 2, 2, 2]
    # what the upstream has of them is what the client has sent
    assert [len(turn.body["input"]) for turn in upstream.turns] == [1, 5, 9, 13, 17]
    assert upstream.received == []


def test_a_changed_history_is_sent_whole(upstream: SocketUpstream) -> None:
    with bridged(upstream) as base:
        session = Session(base, prompt_cache_key="one")
        session.turn(said("Hello"))
        session.items = [said("Other"), *session.items[1:]]
        session.turn(said("Go on."))
        session.turn(said("And on."))
    # on the same connection, as it is the same conversation
    assert len(upstream.handshakes) == 1
    sent = [(len(turn.message["input"]), "previous_response_id" in turn.message) for turn in upstream.turns]
    assert sent == [(1, False), (3, False), (1, True)]


def test_another_model_continues_nothing(upstream: SocketUpstream) -> None:
    with bridged(upstream) as base:
        session = Session(base)
        session.turn(said("Hello"))
        session.request["model"] = "n"
        session.turn(said("Go on."))
    assert [len(turn.message["input"]) for turn in upstream.turns] == [1, 3]


@pytest.mark.parametrize("status", [404, 405, 426, 400, 301, 401, 403, 429, 500, 503])
def test_a_refused_handshake_leaves_http(upstream: SocketUpstream, status: int) -> None:
    upstream.refuses = refused(status)
    with bridged(upstream) as base:
        for _ in range(3):
            Session(base).turn(said("Hello"))
    assert len(upstream.received) == 3
    # one that is about WebSockets is remembered
    assert len(upstream.handshakes) == (3 if status in (401, 403, 429, 500, 503) else 1)


@pytest.mark.parametrize(
    "accepts",
    [
        {"sec-websocket-accept": "bm8="},
        {"sec-websocket-extensions": "permessage-deflate"},
        {"upgrade": "h2c"},
        {"sec-websocket-protocol": "odd"},
    ],
)
def test_a_lying_handshake_leaves_http(upstream: SocketUpstream, accepts: dict[str, str]) -> None:
    upstream.accepts = accepts
    with bridged(upstream) as base:
        Session(base).turn(said("Hello"))
    assert (len(upstream.turns), len(upstream.received)) == (0, 1)


@pytest.mark.parametrize("how", [CUT, RESET, text_frame(b"\x03\xf0", opcode=Opcode.CLOSE)])
def test_what_is_lost_before_its_answer_is_asked_once_more(upstream: SocketUpstream, how: Any) -> None:
    upstream.play = lambda turn, messages: [how]
    with bridged(upstream) as base:
        Session(base).turn(said("Hello"))
    assert (len(upstream.turns), len(upstream.received)) == (1, 1)


def test_a_cut_at_every_frame(upstream: SocketUpstream) -> None:
    """Only what is lost before the first frame is asked again."""
    outcomes = []
    with bridged(upstream) as base:
        for at in range(8):
            cut = at
            upstream.play = lambda turn, messages: [*messages[:cut], CUT]  # noqa: B023
            count = len(upstream.turns) + len(upstream.received)
            reply = respond(base, model="m", input="Hello", stream=True)
            outcomes.append((reply.status, len(upstream.turns) + len(upstream.received) - count))
            if at:
                last = reply.events[-1]["type"] if reply.status == 200 else reply.error["code"]
                assert last in ("response.failed", "upstream_disconnected"), (at, last)
                assert "response.completed" not in (reply.types if reply.status == 200 else [])
            else:
                assert reply.final["status"] == "completed"
    assert [count for _, count in outcomes] == [2, 1, 1, 1, 1, 1, 1, 1]


def test_a_cut_at_every_byte_of_the_first_frame(upstream: SocketUpstream) -> None:
    with bridged(upstream) as base:
        for at in (1, 2, 3, 4, 5, 20, 200):

            def play(turn: SocketTurn, messages: list[bytes], at: int = at) -> list[SocketStep]:
                return [Raw(text_frame(messages[0]).data[:at]), CUT]

            upstream.play = play
            before = len(upstream.turns)
            reply = respond(base, model="m", input="Hello", stream=True)
            assert reply.status == 502, at
            assert len(upstream.turns) == before + 1, at
    assert upstream.received == []  # the server has begun the answer, and may have been paid for it


LIES: dict[str, tuple[SocketStep, ...]] = {
    "binary": (text_frame(b"{}", opcode=Opcode.BINARY),),
    "compressed": (Raw(b"\xc1\x02{}"),),
    "masked": (Raw(b"\x81\x82abcd\x1a\x1f"),),
    "a continuation of nothing": (text_frame(b"{}", opcode=Opcode.CONT),),
    "an unknown opcode": (Raw(b"\x83\x02{}"),),
    "a long ping": (Raw(b"\x89\x7e\x00\x80" + b"x" * 128),),
    "a frame beyond the limit": (Raw(b"\x81\x7f" + (2**40).to_bytes(8, "big")),),
    "fragments beyond the limit": (
        text_frame(b" " * 600, fin=False),
        *[text_frame(b" " * 600, fin=False, opcode=Opcode.CONT)] * 3,
    ),
    "HTTP": (Raw(b"HTTP/1.1 200 OK\r\n" + b"x" * 200),),
}


@pytest.mark.parametrize("name", LIES)
def test_what_is_not_the_protocol_is_a_failure(upstream: SocketUpstream, name: str) -> None:
    """Once; then the upstream has no WebSockets for a while."""
    upstream.play = lambda turn, messages: [*LIES[name], HANG]
    with bridged(upstream, SocketSettings(message_bytes=1024)) as base:
        reply = respond(base, model="m", input="Hello", stream=True)
        assert (reply.status, len(upstream.turns), len(upstream.received)) == (502, 1, 0)
        wait_until(lambda: upstream.open == 0)
        Session(base).turn(said("Hello"))
    assert (len(upstream.turns), len(upstream.received)) == (1, 1)


@pytest.mark.parametrize("name", [name for name in LIES if name != "fragments beyond the limit"])
def test_the_same_within_an_answer(upstream: SocketUpstream, name: str) -> None:
    upstream.play = lambda turn, messages: [*messages[:4], *LIES[name], HANG]
    with bridged(upstream, SocketSettings(message_bytes=4096)) as base:
        reply = respond(base, model="m", input="Hello", stream=True)
        assert reply.types[-1] == "response.failed"
        wait_until(lambda: upstream.open == 0)
    assert (len(upstream.turns), len(upstream.received)) == (1, 0)


@pytest.mark.parametrize(
    "steps", [(HANG,), (text_frame(b"", fin=False), HANG), (Raw(b"\x81\x7e\x10\x00{"), HANG)]
)
def test_silence_before_an_answer_ends(upstream: SocketUpstream, steps: tuple[SocketStep, ...]) -> None:
    upstream.play = lambda turn, messages: steps
    with bridged(upstream, timeouts=Timeouts(first_byte=0.3, idle=0.3)) as base:
        reply = respond(base, model="m", input="Hello", stream=True)
        assert (reply.status, reply.error["code"]) == (504, "upstream_timeout")
        wait_until(lambda: upstream.open == 0)
    assert (len(upstream.turns), len(upstream.received)) == (1, 0)


def test_pings_are_silence(upstream: SocketUpstream) -> None:
    ping = text_frame(b"x", opcode=Opcode.PING)
    upstream.play = lambda turn, messages: [*messages[:3], *([ping, 0.02] * 3000)]
    with bridged(upstream, timeouts=Timeouts(idle=0.3)) as base:
        reply = respond(base, model="m", input="Hello", stream=True)
        assert reply.types[-1] == "response.failed"
        wait_until(lambda: upstream.open == 0)


def test_pings_within_an_answer_are_answered(upstream: SocketUpstream) -> None:
    ping = text_frame(b"x", opcode=Opcode.PING)
    upstream.play = lambda turn, messages: [step for each in messages for step in (ping, each, ping)]
    with bridged(upstream) as base:
        assert Session(base).turn(said("Hello")).final["status"] == "completed"


@pytest.mark.untraced
def test_empty_messages_within_an_answer_change_nothing(upstream: SocketUpstream) -> None:
    """However many: test_socket_floods.py has what a flood may take."""
    tiny = Raw(b"\x81\x00" * 10_000)
    upstream.play = lambda turn, messages: [tiny, messages[0], tiny, *messages[1:]]
    with bridged(upstream) as base:
        assert output_text(Session(base).turn(said("Hello")).final) == "Hello"
    assert (len(upstream.turns), upstream.received) == (1, [])


def test_a_message_in_fragments_and_pretty_json(upstream: SocketUpstream) -> None:
    def play(turn: SocketTurn, messages: list[bytes]) -> list[SocketStep]:
        steps: list[SocketStep] = []
        for message in messages:
            data = json.dumps(json.loads(message), indent=1).encode()
            steps += [
                text_frame(data[:7], fin=False),
                text_frame(b"", fin=False, opcode=Opcode.CONT),
                text_frame(data[7:], opcode=Opcode.CONT),
            ]
        return steps

    upstream.play = play
    with bridged(upstream) as base:
        assert Session(base).turn(said("Hello")).final["status"] == "completed"


def test_what_comes_behind_the_end_does_not_reach_the_next_turn(upstream: SocketUpstream) -> None:
    late = json.dumps({"type": "response.output_text.delta", "delta": "LEAK"}).encode()
    upstream.play = lambda turn, messages: [*messages, late]
    with bridged(upstream) as base:
        session = Session(base)
        for _ in range(3):
            assert "LEAK" not in session.turn(said("Hello")).body.decode()
            wait_until(lambda: upstream.open == 0)
    assert [turn.connection for turn in upstream.turns] == [1, 2, 3]


def test_a_client_that_leaves_ends_the_turn(upstream: SocketUpstream) -> None:
    upstream.play = lambda turn, messages: [*messages[:4], HANG] if len(upstream.turns) == 1 else messages
    with bridged(upstream) as base:
        body = {"model": "m", "input": "Hello", "stream": True, "store": False}
        with opened(base, "POST", "/v1/responses", body) as answer:
            answer.readline()
            wait_until(lambda: upstream.turns)
        wait_until(lambda: upstream.open == 0)
        assert Session(base).turn(said("Hello")).final["status"] == "completed"
    assert upstream.turns[0].left
    assert [turn.connection for turn in upstream.turns] == [1, 2]


def test_a_lost_answer_is_asked_for_whole(upstream: SocketUpstream) -> None:
    """The upstream does not know the id that it gave: the request is sent whole, on the same connection."""

    def play(turn: SocketTurn, messages: list[bytes]) -> list[SocketStep]:
        if "previous_response_id" in turn.message:
            return [error_message(400, "previous_response_not_found")]
        return [*messages]

    upstream.play = play
    with bridged(upstream) as base:
        session = Session(base)
        session.turn(said("Hello"))
        session.turn(said("Go on."))
    assert [turn.connection for turn in upstream.turns] == [1, 1, 1]
    assert [len(turn.message["input"]) for turn in upstream.turns] == [1, 1, 3]


def test_an_upstream_that_knows_nothing_is_refused_once(upstream: SocketUpstream) -> None:
    upstream.play = lambda turn, messages: [error_message(400, "previous_response_not_found")]
    with bridged(upstream) as base:
        reply = respond(base, model="m", input="Hello", stream=True)
    assert reply.status == 400
    assert len(upstream.turns) == 1


def test_an_old_connection_is_replaced_once(upstream: SocketUpstream) -> None:
    def play(turn: SocketTurn, messages: list[bytes]) -> list[SocketStep]:
        old = [error_message(400, "websocket_connection_limit_reached")]
        return old if "previous_response_id" in turn.message else [*messages]

    upstream.play = play
    with bridged(upstream) as base:
        session = Session(base)
        session.turn(said("Hello"))
        session.turn(said("Go on."))
        assert [turn.connection for turn in upstream.turns] == [1, 1, 2]
        upstream.play = lambda turn, messages: [error_message(400, "websocket_connection_limit_reached")]
        session.turn(said("And on."))
    assert len(upstream.turns) == 5
    assert len(upstream.received) == 1


@pytest.mark.parametrize("status", [400, 401, 429, 503])
def test_a_refusal_is_that_over_http(upstream: SocketUpstream, status: int) -> None:
    message = error_message(status, "rate_limit_exceeded", headers={"Retry-After": "7", "Odd": [1]})
    upstream.play = lambda turn, messages: [message]
    with bridged(upstream) as base:
        over_socket = respond(base, model="m", input="Hello", stream=True)
        upstream.refuses = refused(404)
        upstream.answer = lambda _received: refused_with(status)
        wait_until(lambda: upstream.open == 1)
    with bridged(upstream, websocket=False) as base:
        over_http = respond(base, model="m", input="Hello", stream=True)
    assert (over_socket.status, over_socket.error) == (over_http.status, over_http.error)
    assert over_socket.headers.get("retry-after") == over_http.headers.get("retry-after")


def refused_with(status: int) -> Any:
    error = {"code": "rate_limit_exceeded", "message": "It is rate_limit_exceeded."}
    return refusal(status, {"retry-after": "7"}, type="invalid_request_error", **error)


@pytest.mark.parametrize("lie", ["another id", "no id", "a number", "a long id", "two ids"])
def test_an_answer_with_a_false_id_is_not_continued(upstream: SocketUpstream, lie: str) -> None:
    ids = {"another id": "resp_other", "no id": None, "a number": 7, "a long id": "x" * 1000}

    def play(turn: SocketTurn, messages: list[bytes]) -> list[SocketStep]:
        if lie == "two ids":
            return [messages[0], *messages]
        last = json.loads(messages[-1])
        last["response"]["id"] = ids[lie]
        return [*messages[:-1], json.dumps(last).encode()]

    upstream.play = play
    with bridged(upstream) as base:
        items: list[Any] = [said("Hello")]
        reply = respond(base, model="m", input=items, stream=True, store=False)
        if reply.types[-1] == "response.completed":
            items += reply.final["output"]
        respond(base, model="m", input=[*items, said("Go on.")], stream=True, store=False)
    assert len(upstream.turns) == 2
    assert all("previous_response_id" not in turn.message for turn in upstream.turns)


def test_keys_share_no_connection(upstream: SocketUpstream) -> None:
    """Neither the clients' own keys, nor those of a server that all its clients share."""
    with bridged(upstream, pass_through=True) as base:
        sessions = [Session(base, {"authorization": f"Bearer key-{n}"}) for n in range(3)]
        for _ in range(3):
            for session in sessions:
                session.turn(said("Hello"))
    authorizations = {each: upstream.handshakes[each - 1].headers["authorization"] for each in (1, 2, 3)}
    assert sorted(authorizations.values()) == ["Bearer key-0", "Bearer key-1", "Bearer key-2"]
    assert len(upstream.handshakes) == 3
    assert [turn.connection for turn in upstream.turns] == [1, 2, 3] * 3


def test_owners_share_no_connection(upstream: SocketUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    one = UpstreamSettings(
        name="up", url=upstream.url, dialect="responses", websocket=True, api_key="${UPKEY}"
    )
    monkeypatch.setenv("UPKEY", "one-for-all")
    with serving(
        Settings(
            store="memory://",
            upstreams=[one],
            api_keys=[hashed("first-key-of-clients"), hashed("second-key-of-clients")],
        )
    ) as base:
        first = Session(base, {"authorization": "Bearer first-key-of-clients"})
        first.turn(said("Hello"))
        other = Session(base, {"authorization": "Bearer second-key-of-clients"})
        other.items = [*first.items]  # the very same conversation
        other.turn(said("Go on."))
        first.turn(said("Go on."))
    assert [turn.connection for turn in upstream.turns] == [1, 2, 1]
    assert [len(turn.message["input"]) for turn in upstream.turns] == [1, 3, 1]


def test_connections_are_limited(upstream: SocketUpstream) -> None:
    with bridged(upstream, SocketSettings(connections=2)) as base:
        for each in range(4):
            Session(base).turn(said(f"Hello {each}"))
        wait_until(lambda: upstream.open == 2)
    assert len(upstream.turns) == 4


def test_all_connections_are_busy(upstream: SocketUpstream) -> None:
    go = []
    upstream.play = lambda turn, messages: [messages[0], lambda: go, *messages[1:]]
    with bridged(upstream, SocketSettings(connections=1)) as base:
        body = {"model": "m", "input": "Hello", "stream": True, "store": False}
        with opened(base, "POST", "/v1/responses", body) as answer:
            wait_until(lambda: upstream.turns)
            Session(base).turn(said("Hello"))
            go.append(True)
            assert b"response.completed" in answer.read()
    assert (len(upstream.turns), len(upstream.received)) == (1, 1)


@pytest.mark.parametrize(
    ("limits", "connections"),
    [
        (SocketSettings(turns=2), [1, 1, 2, 2]),
        (SocketSettings(turns=1), [1, 2, 3, 4]),
        (SocketSettings(idle=0.05), [1, 2, 3, 4]),
        (SocketSettings(age=0.05), [1, 2, 3, 4]),
    ],
)
def test_a_connection_ends(upstream: SocketUpstream, limits: SocketSettings, connections: list[int]) -> None:
    with bridged(upstream, limits) as base:
        session = Session(base)
        for each in connections:
            session.turn(said("Hello"))
            if limits.turns > 2 or connections.count(each) == 1 or len(upstream.turns) % 2 == 0:
                wait_until(lambda: upstream.open == 0)
    assert [turn.connection for turn in upstream.turns] == connections


def test_a_server_that_stops_closes_them(upstream: SocketUpstream) -> None:
    with bridged(upstream) as base:
        Session(base).turn(said("Hello"))
        wait_until(lambda: upstream.open == 1)
    wait_until(lambda: upstream.open == 0)


def test_they_are_in_the_metrics(upstream: SocketUpstream) -> None:
    with bridged(upstream) as base:
        session = Session(base)
        session.turn(said("Hello"))
        session.turn(said("Go on."))
        upstream.play = lambda turn, messages: [CUT]
        session.turn(said("And on."))
        wait_until(lambda: upstream.open == 0)
        sent = call(base, "GET", "/metrics").body.decode()
    counted = "openresponses_bridge_upstream_websocket_requests_total"
    for way in ("whole", "continued", "http"):
        assert f'{counted}{{upstream="up",way="{way}"}} 1.0' in sent
    assert 'openresponses_bridge_upstream_websockets{upstream="up"} 0.0' in sent


@pytest.mark.untraced
def test_a_thousand_random_schedules(upstream: SocketUpstream) -> None:
    """Each turn is cut, reset, closed, refused or whole at random: an answer is that of its own turn, and no
    request is made twice after a part of an answer was sent."""
    rng = random.Random(49)
    plans: dict[str, int] = {}

    def play(turn: SocketTurn, messages: list[bytes]) -> list[SocketStep]:
        what = rng.choice(["whole", "whole", "whole", "cut", "reset", "close", "refused", "late", "lie"])
        at = rng.randrange(len(messages) + 1)
        name = json.dumps(turn.body["input"][-1])
        plans[name] = plans.get(name, 0) + 1
        if what == "refused":
            code = rng.choice(["previous_response_not_found", "websocket_connection_limit_reached"])
            plans[name] -= 1
            return [error_message(400, code)]
        if what in ("whole", "late"):
            return [*messages, *([b'{"type":"response.output_text.delta"}'] if what == "late" else [])]
        if at == 0:
            plans[name] -= 1
        if what == "lie":
            return [*messages[:at], text_frame(b"{}", opcode=Opcode.CONT)] if at else [CUT]
        end: SocketStep = {"cut": CUT, "reset": RESET, "close": text_frame(b"", opcode=Opcode.CLOSE)}[what]
        return [*messages[:at], end]

    upstream.say = lambda body: ["You say ", body["input"][-1]["content"][0]["text"], "."]
    upstream.play = play
    done = 0
    with bridged(upstream) as base:
        sessions = [Session(base) for _ in range(4)]
        for number in range(1000):
            session = rng.choice(sessions)
            text = f"number {number}"
            items = [*session.items, said(text)]
            reply = respond(base, input=items, stream=True, **session.request)
            if reply.status == 200 and reply.types[-1] == "response.completed":
                done += 1
                (message,) = reply.final["output"]
                assert message["content"][0]["text"] == f"You say {text}."
                session.items = [*items, message] if len(items) < 12 else []
            else:
                assert reply.status in (200, 400, 502), reply.body
    assert done > 500
    assert max(plans.values()) == 1


@pytest.mark.untraced
def test_the_corpus_is_that_over_http(upstream: SocketUpstream) -> None:
    """Each stream of the corpus that is of events, cut where it has no end."""
    ends = {"response.completed", "response.failed", "response.incomplete", "error"}
    chosen = [each for each in cases() if each.events]
    assert len(chosen) > 100
    messages: list[bytes] = []
    cut: list[Any] = []
    upstream.play = lambda _turn, _messages: [*messages, *cut]
    upstream.answer = lambda _received: Script([*[b"data: %b\n\n" % each for each in messages], *cut])
    different = []
    with bridged(upstream) as over_sockets, bridged(upstream, websocket=False) as over_http:
        for each in chosen:
            messages = [json.dumps(event).encode() for event in each.events]
            cut = [] if each.events[-1]["type"] in ends else [CUT]
            body = {"model": "m", "input": "Hello", "stream": True, "store": False}
            one, other = (respond(base, **body) for base in (over_sockets, over_http))
            if one.status != other.status:
                different.append((each.id, one.status, other.status))
            elif one.status == 200 and normal(one) != normal(other):
                different.append((each.id, one.types[-1], other.types[-1]))
    assert different == []
