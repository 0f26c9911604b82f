"""WebSockets to an upstream that are opened before they are needed: which request gets one, how many there
may be, and what happens to one that nobody takes, that is lost, refused or waited for in vain."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.frames import Opcode

from openresponses_server.requests.prepare import PASSES, Pass
from openresponses_server.requests.prepared import Placed
from openresponses_server.requests.service import Service
from openresponses_server.settings import Settings, SocketSettings, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.upstreams.base import HttpClient, SocketCounts
from tests.support.serving import call, respond, serving
from tests.support.socket_client import ask, body_of, client, text_of
from tests.support.socket_upstream import SocketUpstream, refused, text_frame
from tests.support.sockets import opened_socket
from tests.support.upstream import CUT, RESET
from tests.support.waiting import until, wait_until


@pytest.fixture
def upstream() -> Iterator[SocketUpstream]:
    with SocketUpstream(lambda body: ["You say ", body["input"][-1]["content"], "."]) as scripted:
        yield scripted


class Ahead:
    """A client with the outcomes of what it opens ahead."""

    def __init__(self, upstream: SocketUpstream, limits: SocketSettings | None = None) -> None:
        self.counts = SocketCounts()
        self.ways: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.counts.observe = lambda way: self.ways.update([way])
        self.counts.observe_prewarmed = lambda outcome: self.outcomes.update([outcome])
        self.upstream = upstream
        self.requests: HttpClient = client(self.counts, limits)

    def prewarm(self, session: str = "", conversation: str = "", **headers: str) -> None:
        url = f"{self.upstream.url}/responses"
        self.requests.prewarm(url, headers=headers, session=session, conversation=conversation)

    async def prewarmed(self, session: str = "", **headers: str) -> None:
        """Open one ahead, and wait until it is there."""
        before = self.counts.open
        self.prewarm(session, **headers)
        await until(lambda: self.counts.open > before)
        await until(lambda: self.upstream.open > before)

    async def say(self, text: str, session: str = "", *, name: str | None = None, **headers: str) -> str:
        named = {} if name is None else {"prompt_cache_key": name}
        return text_of(await ask(self.requests, self.upstream.url, body_of(text, **named), session, headers))

    async def close(self) -> None:
        await self.requests.close()
        await until(lambda: self.upstream.open == 0)
        assert self.counts.open == 0


def run(
    upstream: SocketUpstream,
    use: Callable[[Ahead], Awaitable[None]],
    limits: SocketSettings | None = None,
) -> Ahead:
    """Run this with a client, which leaves nothing behind."""

    async def whole() -> Ahead:
        ahead = Ahead(upstream, limits)
        await use(ahead)
        await ahead.close()
        assert len(asyncio.all_tasks()) == 1
        return ahead

    return asyncio.run(whole())


def connections(upstream: SocketUpstream) -> list[int]:
    return [turn.connection for turn in upstream.turns]


# ── which request gets it ──────────────────────────────────────────────────────────────────────────────
def test_a_request_gets_the_connection_that_is_there(upstream: SocketUpstream) -> None:
    async def use(ahead: Ahead) -> None:
        await ahead.prewarmed()
        assert (len(upstream.handshakes), upstream.turns) == (1, [])  # nothing was asked
        assert await ahead.say("Hello") == "You say Hello."

    ahead = run(upstream, use)
    assert (connections(upstream), len(upstream.handshakes)) == ([1], 1)
    assert ahead.outcomes == {"used": 1}
    assert ahead.ways == {"whole": 1}


def test_a_request_waits_for_the_one_that_is_being_opened(upstream: SocketUpstream) -> None:
    go: list[bool] = []
    upstream.admits = lambda: bool(go)

    async def use(ahead: Ahead) -> None:
        ahead.prewarm()
        await until(lambda: upstream.handshakes)
        task = asyncio.ensure_future(ahead.say("Hello"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(upstream.handshakes) == 1
        go.append(True)
        assert await task == "You say Hello."

    ahead = run(upstream, use)
    assert len(upstream.handshakes) == 1
    assert ahead.outcomes == {"used": 1}


def test_two_requests_at_once_wait_for_one_connection_each(upstream: SocketUpstream) -> None:
    """The second does not wait for one that the first will have."""
    go: list[bool] = []
    upstream.admits = lambda: bool(go)

    async def use(ahead: Ahead) -> None:
        ahead.prewarm()
        tasks = [asyncio.ensure_future(ahead.say(text)) for text in ("one", "two")]
        await until(lambda: len(upstream.handshakes) == 2)
        go.append(True)
        assert await asyncio.gather(*tasks) == ["You say one.", "You say two."]

    ahead = run(upstream, use)
    assert (len(upstream.handshakes), sorted(connections(upstream))) == (2, [1, 2])
    assert ahead.outcomes == {"used": 1}


def test_twice_is_once(upstream: SocketUpstream) -> None:
    async def use(ahead: Ahead) -> None:
        ahead.prewarm()
        ahead.prewarm()  # while it is opened
        await until(lambda: ahead.counts.open == 1)
        ahead.prewarm()  # when it is there
        await ahead.say("Hello")
        ahead.prewarm()  # when another one is free

    ahead = run(upstream, use)
    assert len(upstream.handshakes) == 1
    assert ahead.outcomes == {"used": 1}


def test_one_of_another_conversation_is_not_free(upstream: SocketUpstream) -> None:
    """A conversation with a name would not get it; one without might."""

    async def use(ahead: Ahead) -> None:
        await ahead.say("Hello", name="one")
        ahead.prewarm(conversation="one")
        ahead.prewarm()
        assert len(upstream.handshakes) == 1
        ahead.prewarm(conversation="two")
        await until(lambda: ahead.counts.open == 2)
        await ahead.say("Hi", name="two")
        await ahead.say("Hello again", name="one")

    run(upstream, use)
    assert connections(upstream) == [1, 2, 1]


@pytest.mark.parametrize(
    ("session", "headers"),
    [
        ("other", {"authorization": "Bearer one"}),
        ("", {"authorization": "Bearer one"}),
        ("one", {"authorization": "Bearer other"}),
        ("one", {}),
        ("one", {"authorization": "Bearer one", "session-id": "s"}),
    ],
)
def test_no_other_key_ever_gets_it(upstream: SocketUpstream, session: str, headers: dict[str, str]) -> None:
    """Neither one that is there nor one that is being opened."""
    go: list[bool] = []

    async def use(ahead: Ahead) -> None:
        await ahead.prewarmed("one", authorization="Bearer one")
        await ahead.say("Hello", session, **headers)
        await ahead.say("Hello", "one", authorization="Bearer one")
        upstream.admits = lambda: bool(go)
        ahead.prewarm("two", authorization="Bearer one")
        await until(lambda: len(upstream.handshakes) == 3)
        task = asyncio.ensure_future(ahead.say("Hi", session, **{"x-new": "1"}, **headers))
        await until(lambda: len(upstream.handshakes) == 4)
        go.append(True)
        await task

    run(upstream, use)
    sent = [each.headers.get("authorization") for each in upstream.handshakes]
    assert sent == ["Bearer one", headers.get("authorization"), "Bearer one", headers.get("authorization")]
    assert connections(upstream) == [2, 1, 4]


def test_ids_of_one_request_are_no_part_of_who_asks(upstream: SocketUpstream) -> None:
    async def use(ahead: Ahead) -> None:
        await ahead.prewarmed(**{"x-request-id": "req_1", "traceparent": "00-1", "accept": "a/b"})
        await ahead.say("Hello", **{"x-request-id": "req_2", "tracestate": "x"})

    run(upstream, use)
    assert len(upstream.handshakes) == 1
    assert "accept" not in upstream.handshakes[0].headers


# ── how many ───────────────────────────────────────────────────────────────────────────────────────────
def test_there_are_as_many_as_allowed_of_a_key_and_in_sum(upstream: SocketUpstream) -> None:
    async def use(ahead: Ahead) -> None:
        for session in ("one", "two"):
            for number in range(4):
                ahead.prewarm(session, **{"session-id": f"{session}-{number}"})
        await until(lambda: ahead.counts.open == 3)
        ahead.prewarm("three")  # of those that are there, too
        assert ahead.outcomes == {"limited": 6}
        # who takes one makes room for another
        await ahead.say("Hello", "one", **{"session-id": "one-0"})
        ahead.prewarm("three")
        await until(lambda: ahead.counts.open == 4)

    ahead = run(upstream, use, SocketSettings(prewarmed=3, prewarmed_per_key=2))
    assert [each.headers.get("session-id") for each in upstream.handshakes] == [
        *("one-0", "one-1", "two-0"),
        None,
    ]
    assert ahead.outcomes == {"limited": 6, "used": 1, "unused": 3}


def test_without_keys_only_their_sum_counts(upstream: SocketUpstream) -> None:
    async def use(ahead: Ahead) -> None:
        for number in range(4):
            ahead.prewarm(**{"session-id": str(number)})
        await until(lambda: ahead.counts.open == 3)

    ahead = run(upstream, use, SocketSettings(prewarmed=3, prewarmed_per_key=1))
    assert ahead.outcomes == {"limited": 1, "unused": 3}


def test_none_takes_the_place_of_another(upstream: SocketUpstream) -> None:
    """Of all connections of the upstream; but it gives its own to a request."""

    async def use(ahead: Ahead) -> None:
        await ahead.say("Hello", "one", name="c")
        await ahead.prewarmed("two")
        ahead.prewarm("three")
        await until(lambda: ahead.outcomes["limited"] == 1)
        assert await ahead.say("Hello", "four") == "You say Hello."  # in the place of the second's
        await ahead.say("Hi", "one", name="c")

    ahead = run(upstream, use, SocketSettings(connections=2))
    assert connections(upstream) == [1, 3, 1]
    assert ahead.outcomes == {"limited": 1, "unused": 1}


def test_a_request_that_waits_where_there_is_no_room_opens_its_own(upstream: SocketUpstream) -> None:
    async def use(ahead: Ahead) -> None:
        await ahead.say("Hello", "one")
        ahead.prewarm("two")
        task = asyncio.ensure_future(ahead.say("Hi", "two"))
        assert await task == "You say Hi."

    ahead = run(upstream, use, SocketSettings(connections=1))
    assert connections(upstream) == [1, 2]
    assert ahead.outcomes == {"limited": 1}


def test_one_that_nobody_takes_is_closed(upstream: SocketUpstream) -> None:
    async def use(ahead: Ahead) -> None:
        ahead.prewarm()
        await until(lambda: ahead.outcomes["unused"] == 1)
        await until(lambda: upstream.open == 0 and ahead.counts.open == 0)
        await ahead.say("Hello", name="c")  # which is kept for longer than one that nobody has taken
        ahead.prewarm("other")
        await until(lambda: ahead.outcomes["unused"] == 2)
        await ahead.say("Hi", name="c")

    run(upstream, use, SocketSettings(prewarmed_idle=0.05))
    assert connections(upstream) == [2, 2]


# ── refused, lost ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("status", [426, 404, 401, 503])
def test_a_request_that_waits_for_a_refused_one_goes_over_http(upstream: SocketUpstream, status: int) -> None:
    """It does not ask for a WebSocket once more; after a refusal that is about WebSockets nobody does."""
    upstream.refuses = refused(status)

    async def use(ahead: Ahead) -> None:
        ahead.prewarm()
        assert await ahead.say("Hello") == "You say Hello."
        assert len(upstream.handshakes) == 1
        ahead.prewarm()
        if status in (401, 503):
            await until(lambda: ahead.outcomes["refused"] == 2)

    ahead = run(upstream, use)
    attempts = 2 if status in (401, 503) else 1
    assert (len(upstream.handshakes), len(upstream.received)) == (attempts, 1)
    assert ahead.outcomes == {"refused": attempts}
    assert ahead.ways == {"http": 1}


def test_a_refusal_without_a_request_is_nobodys(
    upstream: SocketUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where nothing listens: a task that has failed would be reported by asyncio."""
    upstream.refuses = refused(503)

    async def use(ahead: Ahead) -> None:
        ahead.prewarm()
        await until(lambda: ahead.outcomes["refused"] == 1)
        ahead.requests.prewarm("http://127.0.0.1:9/responses", headers={})
        ahead.requests.prewarm("ftp://nowhere/responses", headers={})
        await until(lambda: ahead.outcomes["refused"] == 3)

    run(upstream, use)
    assert [each for each in caplog.records if each.name == "asyncio"] == []


@pytest.mark.parametrize("how", [CUT, RESET, text_frame(b"\x03\xf0", opcode=Opcode.CLOSE)])
def test_one_that_is_lost_with_its_request_leaves_http(upstream: SocketUpstream, how: Any) -> None:
    """Before anything of an answer; the request is made once more, over HTTP."""
    upstream.play = lambda turn, messages: [how]

    async def use(ahead: Ahead) -> None:
        await ahead.prewarmed()
        assert await ahead.say("Hello") == "You say Hello."

    ahead = run(upstream, use)
    assert (len(upstream.turns), len(upstream.received)) == (1, 1)
    assert ahead.outcomes == {"used": 1}


def test_one_that_is_lost_within_its_answer_is_not_asked_again(upstream: SocketUpstream) -> None:
    upstream.play = lambda turn, messages: [messages[0], CUT]

    async def use(ahead: Ahead) -> None:
        await ahead.prewarmed()
        with pytest.raises(OSError, match="within its answer"):
            await ahead.say("Hello")

    run(upstream, use)
    assert (len(upstream.turns), len(upstream.received)) == (1, 0)


@pytest.mark.parametrize(
    "sent",
    [
        text_frame(b"", opcode=Opcode.CLOSE).data,
        text_frame(b"", opcode=Opcode.BINARY).data,
        b"\xff\xff",
    ],
    ids=["close", "binary", "noise"],
)
def test_what_ends_with_its_handshake_is_none(upstream: SocketUpstream, sent: bytes) -> None:
    """Its end comes before anybody could hear of it, and must not count as open for ever."""
    upstream.greets = sent

    async def use(ahead: Ahead) -> None:
        ahead.prewarm()
        await until(lambda: ahead.outcomes["refused"] == 1)
        assert ahead.counts.open == 0
        assert await ahead.say("Hello") == "You say Hello."
        assert ahead.counts.open == 0

    run(upstream, use)
    assert (upstream.turns, len(upstream.received)) == ([], 1)


def test_what_sends_something_unasked_is_not_taken(upstream: SocketUpstream) -> None:
    """The request that comes next must not get it for its answer."""

    async def use(ahead: Ahead) -> None:
        await ahead.prewarmed()
        upstream.interrupt(text_frame(b'{"type":"response.output_text.delta","delta":"LEAK"}').data)
        await until(lambda: ahead.counts.open == 0)
        assert await ahead.say("Hello") == "You say Hello."

    ahead = run(upstream, use)
    assert ahead.outcomes == {"unused": 1}
    assert connections(upstream) == [2]


# ── cancelled, late, closed ────────────────────────────────────────────────────────────────────────────
def test_a_request_that_leaves_while_it_waits_leaves_it_to_the_next(upstream: SocketUpstream) -> None:
    go: list[bool] = []
    upstream.admits = lambda: bool(go)

    async def use(ahead: Ahead) -> None:
        ahead.prewarm()
        await until(lambda: upstream.handshakes)
        for _ in range(2):  # the second may wait for it as well
            task = asyncio.ensure_future(ahead.say("never"))
            for _ in range(20):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        go.append(True)
        await until(lambda: ahead.counts.open == 1)
        assert await ahead.say("Hello") == "You say Hello."

    ahead = run(upstream, use)
    assert (len(upstream.handshakes), connections(upstream)) == (1, [1])
    assert ahead.outcomes == {"used": 1}


def test_a_server_that_stops_opens_none(upstream: SocketUpstream) -> None:
    """Neither is one left that is being opened, nor does a request wait for it."""
    upstream.admits = lambda: False

    async def use(ahead: Ahead) -> None:
        ahead.prewarm()
        await until(lambda: upstream.handshakes)
        task = asyncio.ensure_future(ahead.say("Hello"))
        for _ in range(20):
            await asyncio.sleep(0)
        ahead.prewarm("begun in the same moment")
        await ahead.requests.close()
        ahead.prewarm("other")
        with suppress(OSError):
            await task
        assert task.done()
        assert ahead.counts.open == 0

    run(upstream, use)
    assert len(upstream.handshakes) == 1


def test_a_thousand_that_come_and_leave_at_random(upstream: SocketUpstream) -> None:
    """Each request gets its own answer, none is made on two connections, and nothing is left."""
    rng = random.Random(11)

    async def use(ahead: Ahead) -> None:
        async def one(number: int) -> None:
            owner, name = f"owner {number % 3}", f"conversation {number}"
            if rng.random() < 0.7:
                ahead.prewarm(owner, name)
            for _ in range(rng.randrange(20)):
                await asyncio.sleep(0)
            task = asyncio.ensure_future(ahead.say(f"number {number}", owner, name=name))
            if rng.random() < 0.4:
                for _ in range(rng.randrange(60)):
                    await asyncio.sleep(0)
                task.cancel()
            with suppress(asyncio.CancelledError):
                assert await task == f"You say number {number}."

        for start in range(0, 1000, 20):
            await asyncio.gather(*(one(number) for number in range(start, start + 20)))

    ahead = run(upstream, use, SocketSettings(connections=12))
    texts = [turn.body["input"][-1]["content"] for turn in upstream.turns]
    assert len(texts) == len(set(texts))
    # over HTTP, one may be sent again when its connection is closed as it is reused, as pool.py says
    assert {each.body["input"][-1]["content"] for each in upstream.received}.isdisjoint(texts)
    assert ahead.outcomes["used"] > 0


# ── a server in front of it ────────────────────────────────────────────────────────────────────────────
def settings(upstream: SocketUpstream, given: dict[str, Any] | None = None, **more: Any) -> Settings:
    one = UpstreamSettings(
        name="up", url=upstream.url, dialect="responses", **{"websocket": True, **(given or {})}
    )
    return Settings(store="memory://", upstreams=[one], **more)


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def test_a_clients_prewarm_opens_the_connection_of_its_first_turn(upstream: SocketUpstream) -> None:
    """As Codex sends it. The upstream is asked nothing, and gets all with the turn."""
    upstream.say = lambda _body: ["Hi"]
    with serving(settings(upstream)) as base, opened_socket(base) as socket:
        fields = {"model": "m", "store": False, "prompt_cache_key": "thread"}
        warm = socket.turn(input=[said("Be brief.")], generate=False, **fields)
        assert warm.final["output"] == []
        wait_until(lambda: upstream.open == 1)
        assert (upstream.turns, upstream.received) == ([], [])
        link = warm.final["id"]
        assert socket.turn(input=[said("Hello")], previous_response_id=link, **fields).text == "Hi"
        metrics = call(base, "GET", "/metrics").body.decode()
    assert (connections(upstream), len(upstream.handshakes)) == ([1], 1)
    assert [len(turn.message["input"]) for turn in upstream.turns] == [2]
    counted = 'openresponses_bridge_upstream_websockets_prewarmed_total{outcome="used",upstream="up"} 1.0'
    assert counted in metrics


@pytest.mark.parametrize("given", [{"websocket": False}, {"websockets": SocketSettings(prewarmed=0)}])
def test_a_prewarm_without_it_opens_nothing(upstream: SocketUpstream, given: dict[str, Any]) -> None:
    with serving(settings(upstream, given)) as base, opened_socket(base) as socket:
        warm = socket.turn(model="m", input="Hello", store=False, generate=False)
        assert warm.final["output"] == []
        assert upstream.connections == []
        socket.turn(model="m", input=[said("Hello")], store=False)
    assert len(upstream.turns) == (given.get("websocket") is not False)


def test_a_connection_is_opened_while_its_request_is_prepared(
    upstream: SocketUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lists tools, or fetches a file, holds it no longer up than itself."""

    async def slow(request: Placed, _service: Service) -> Placed:
        await until(lambda: upstream.open == 1)
        assert upstream.turns == []
        return request

    at = next(index for index, each in enumerate(PASSES) if each.step.__name__ == "offer_hosted")
    passes = (*PASSES[:at], Pass(slow, None, True), *PASSES[at:])
    monkeypatch.setattr("openresponses_server.requests.prepare.PASSES", passes)
    with serving(settings(upstream)) as base:
        reply = respond(base, model="m", input=[said("Hello")], stream=True, store=False)
        assert reply.final["status"] == "completed"
    assert connections(upstream) == [1]


def test_what_is_refused_before_opens_none(upstream: SocketUpstream) -> None:
    with serving(settings(upstream, {"models": ["m"]})) as base, opened_socket(base) as socket:
        assert socket.turn(model="other", input="Hello", generate=False).error["status"] == 404
        assert respond(base, model="other", input="Hello").status == 404
        assert respond(base, model="m", input="Hello", background=True, store=False).status == 400
    assert upstream.connections == []


def test_a_key_gets_no_connection_of_another(
    upstream: SocketUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the server has one key for both."""
    monkeypatch.setenv("UPKEY", "one-for-all")
    keys = ["first-key-of-clients", "second-key-of-clients"]
    config = settings(upstream, {"api_key": "${UPKEY}"}, api_keys=[hashed(key) for key in keys])
    first, second = ({"authorization": f"Bearer {key}"} for key in keys)
    fields = {"model": "m", "store": False, "prompt_cache_key": "the same"}
    with serving(config) as base, opened_socket(base, first) as socket:
        socket.turn(input=[said("Hello")], generate=False, **fields)
        wait_until(lambda: upstream.open == 1)
        respond(base, second, stream=True, **fields | {"input": [said("Hello")]})
        socket.turn(input=[said("Hello")], **fields)
    assert connections(upstream) == [2, 1]


def test_a_client_whose_key_passes_gets_its_own(upstream: SocketUpstream) -> None:
    fields = {"model": "m", "store": False}
    one, two = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
    config = settings(upstream, {"pass_through": True})
    with serving(config) as base, opened_socket(base, one) as socket:
        socket.turn(input=[said("Hello")], generate=False, **fields)
        wait_until(lambda: upstream.open == 1)
        respond(base, two, stream=True, input=[said("Hello")], **fields)
        socket.turn(input=[said("Hello")], **fields)
    sent = [each.headers["authorization"] for each in upstream.handshakes]
    assert sent == ["Bearer one", "Bearer two"]
    assert connections(upstream) == [2, 1]


def test_the_headers_of_a_session_are_those_of_its_first_turn(upstream: SocketUpstream) -> None:
    """Of one with a name, and of one that is named after the prewarm's response."""
    options = {"session_headers": {"X-Session": "{session}"}}
    for named in ({"prompt_cache_key": "thread"}, {}):
        fields = {"model": "m", "store": False, **named}
        with serving(settings(upstream, options)) as base, opened_socket(base) as socket:
            warm = socket.turn(input=[said("Be brief.")], generate=False, **fields)
            wait_until(lambda: upstream.open == 1)
            link = warm.final["id"]
            socket.turn(input=[said("Hello")], previous_response_id=link, **fields)
        wait_until(lambda: upstream.open == 0)
    assert connections(upstream) == [1, 2]
    assert len({each.headers["x-session"] for each in upstream.handshakes}) == 2


def test_a_session_that_has_no_name_yet_has_no_connection(upstream: SocketUpstream) -> None:
    """Its headers are known with its response."""
    options = {"session_headers": {"X-Session": "{session}"}}
    with serving(settings(upstream, options)) as base:
        for _ in range(2):
            respond(base, model="m", input=[said("Hello")], stream=True, store=False)
        metrics = call(base, "GET", "/metrics").body.decode()
    assert connections(upstream) == [1, 2]
    assert "websockets_prewarmed_total{" not in metrics


def test_no_program_is_run_for_a_connection_that_may_not_be_needed(
    upstream: SocketUpstream, tmp_path: Path
) -> None:
    """With its key, once that is there, one is opened."""
    fields = {"model": "m", "store": False}
    ran = tmp_path / "ran"
    program = f"open({str(ran)!r}, 'a').write('x'); print('printed')"
    options = {"api_key_command": [sys.executable, "-I", "-S", "-c", program]}
    with serving(settings(upstream, options)) as base, opened_socket(base) as socket:
        socket.turn(input=[said("Hello")], generate=False, **fields)
        assert upstream.connections == []
        assert not ran.exists()
        socket.turn(input=[said("Hello")], **fields)
        socket.turn(input=[said("Hello")], generate=False, **fields, prompt_cache_key="other")
        wait_until(lambda: upstream.open == 2)
    assert ran.read_text() == "x"
    assert {each.headers["authorization"] for each in upstream.handshakes} == {"Bearer printed"}
