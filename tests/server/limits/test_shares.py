"""Law S8 over HTTP and WebSocket: one key can't take what belongs to all."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.services import own_redis
from tests.support.serving import call, opened, ready, respond, serving
from tests.support.sockets import opened_socket
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, text
from tests.support.waiting import wait_until

GREEDY = {"authorization": "Bearer greedy"}
MODEST = {"authorization": "Bearer modest"}
FEW = Limits(
    concurrent=4, concurrent_per_key=2, background=3, background_per_key=2, readers=3, readers_per_key=2
)


@pytest.fixture
def shared(upstream: ScriptedUpstream) -> Iterator[str]:
    upstream.scripts |= {"long": Script([chunk(content="a"), HANG]), "short": Script(text("b"))}
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        limits=FEW,
        api_keys=[hashed("greedy"), hashed("modest")],
    )
    with serving(settings) as base:
        yield base


@contextlib.contextmanager
def held_runs(base: str, headers: dict[str, str], count: int) -> Iterator[None]:
    """So many responses of this key are being made."""
    with contextlib.ExitStack() as running:
        body = {"model": "long", "input": "x", "stream": True, "store": False}
        for _ in range(count):
            running.enter_context(opened(base, "POST", "/v1/responses", body, headers)).read(10)
        yield


def counts(base: str, *names: str) -> list[int]:
    """What `/readyz` says of them."""
    reply = ready(base).json
    return [reply[name] for name in names]


SAID: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9}


def test_s8_a_key_at_its_limit_is_refused_on_every_surface_and_others_are_not(shared: str) -> None:
    with held_runs(shared, GREEDY, 2):
        for path, body, kind in (
            ("/v1/responses", {"input": "x"}, "too_many_requests"),
            ("/v1/chat/completions", SAID, "too_many_requests"),
            ("/v1/messages", SAID, "rate_limit_error"),
        ):
            reply = call(shared, "POST", path, {"model": "short", **body}, GREEDY)
            assert (reply.status, reply.headers["retry-after"], reply.error["type"]) == (429, "1", kind)
            assert "One API key may have at most 2 responses being made" in reply.error["message"]
            assert call(shared, "POST", path, {"model": "short", **body}, MODEST).status == 200
        with opened_socket(shared, GREEDY) as socket:
            refused = socket.turn(model="short", input="x").error
        assert (refused["status"], refused["error"]["code"]) == (429, "too_many_concurrent_requests")
        assert refused["headers"] == {"retry-after": "1"}


def test_s8_waiting_background_responses_are_limited_per_key_and_in_sum(shared: str) -> None:
    with held_runs(shared, GREEDY, 2), held_runs(shared, MODEST, 2):
        queued = [respond(shared, GREEDY, model="short", background=True) for _ in range(3)]
        assert [each.status for each in queued] == [200, 200, 429]
        assert queued[2].error["code"] == "too_many_background_requests"
        assert "One API key may have at most 2 background responses" in queued[2].error["message"]
        others = [respond(shared, MODEST, model="short", background=True) for _ in range(2)]
        assert [each.status for each in others] == [200, 429]
        assert others[1].headers["retry-after"] == "1"
        assert "The server has at most 3 background responses" in others[1].error["message"]
        assert counts(shared, "running", "waiting") == [4, 3]
        sent = call(shared, "GET", "/metrics", headers=GREEDY).body.decode()
        assert "openresponses_bridge_waiting 3.0" in sent
    wait_until(lambda: counts(shared, "running", "waiting") == [0, 0])


def test_s8_cancelled_while_it_waits_gives_its_place_in_the_line_back(shared: str) -> None:
    with held_runs(shared, GREEDY, 2):
        for _ in range(3):
            ids = [respond(shared, GREEDY, model="short", background=True).json["id"] for _ in range(2)]
            assert respond(shared, GREEDY, model="short", background=True).status == 429
            for each in ids:
                ended = call(shared, "POST", f"/v1/responses/{each}/cancel", headers=GREEDY)
                assert ended.json["status"] == "incomplete"
            assert counts(shared, "running", "waiting") == [2, 0]


def test_s8_readers_of_stored_responses_are_limited_per_key_and_in_sum(shared: str) -> None:
    body = {"model": "long", "input": "x", "background": True}
    ids = {}
    for name, headers in (("greedy", GREEDY), ("modest", MODEST)):
        ids[name] = respond(shared, headers, **body).json["id"]
    mine, theirs = (f"/v1/responses/{ids[name]}" for name in ("greedy", "modest"))
    with contextlib.ExitStack() as reading:
        for _ in range(2):
            reading.enter_context(opened(shared, "GET", f"{mine}?stream=true", headers=GREEDY)).read(10)
        for path in (f"{mine}?stream=true", mine, f"{mine}/input_items"):
            refused = call(shared, "GET", path, headers=GREEDY)
            assert (refused.status, refused.error["code"]) == (429, "too_many_readers")
            assert refused.headers["retry-after"] == "1"
            assert "One API key may have at most 2 readers" in refused.error["message"]
        refused = respond(shared, GREEDY, **body, stream=True)
        assert (refused.status, refused.error["code"]) == (429, "too_many_readers")
        reading.enter_context(opened(shared, "GET", f"{theirs}?stream=true", headers=MODEST)).read(10)
        assert (
            "The server has at most 3 readers" in call(shared, "GET", theirs, headers=MODEST).error["message"]
        )
        assert counts(shared, "readers") == [3]
        sent = call(shared, "GET", "/metrics", headers=GREEDY).body.decode()
        assert "openresponses_bridge_readers 3.0" in sent
    wait_until(lambda: counts(shared, "readers") == [0])
    for path, headers in ((mine, GREEDY), (theirs, MODEST)):
        assert call(shared, "POST", f"{path}/cancel", headers=headers).status == 200


def test_s8_a_reader_counts_until_its_end_however_that_comes(shared: str) -> None:
    done = respond(shared, GREEDY, model="short").json["id"]
    for path, status in (
        (f"{done}?stream=true", 200),
        (f"{done}?stream=true&starting_after=99", 400),
        (f"{done}?stream=maybe", 400),
        ("resp_unknown?stream=true", 404),
        ("resp_unknown", 404),
        (done, 200),
        (f"{done}/input_items?limit=0", 400),
        (f"{done}/input_items", 200),
    ):
        for _ in range(4):  # more than may be at once
            assert call(shared, "GET", f"/v1/responses/{path}", headers=GREEDY).status == status
    assert counts(shared, "readers") == [0]


def test_s8_what_waits_for_any_worker_is_limited_per_key_and_in_sum(upstream: ScriptedUpstream) -> None:
    upstream.scripts |= {"long": Script([chunk(content="a"), HANG]), "short": Script(text("b"))}
    with own_redis() as redis:
        settings = Settings(
            upstreams=[UpstreamSettings(url=upstream.url)],
            limits=FEW,
            event_log=redis.url,
            api_keys=[hashed("greedy"), hashed("modest")],
        )
        with serving(settings) as base, held_runs(base, GREEDY, 2), held_runs(base, MODEST, 2):
            queued = [respond(base, GREEDY, model="short", background=True) for _ in range(3)]
            assert [each.status for each in queued] == [200, 200, 429]
            assert "One API key may have at most 2 background responses" in queued[2].error["message"]
            others = [respond(base, MODEST, model="short", background=True) for _ in range(2)]
            assert [each.status for each in others] == [200, 429]
            assert "The server has at most 3 background responses" in others[1].error["message"]
            ended = call(base, "POST", f"/v1/responses/{queued[0].json['id']}/cancel", headers=GREEDY)
            assert ended.json["status"] == "incomplete"
            assert respond(base, GREEDY, model="short", background=True).status == 200
