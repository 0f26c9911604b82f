"""Law S8 over HTTP and WebSocket: requests and tokens a minute, and stored bytes, of each key."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from tests.support.quotas import ONE, SAID, SURFACES, TWO, limited, used
from tests.support.services import own_redis
from tests.support.serving import Reply, call, opened, ready, respond
from tests.support.sockets import opened_socket
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, text
from tests.support.upstream import refusal as refusal_of
from tests.support.waiting import wait_until
from tests.support.workers import working


def refusal(reply: Reply) -> tuple[int, str, int]:
    return reply.status, reply.error["message"], int(reply.headers["retry-after"])


@pytest.mark.parametrize("path", SURFACES)
def test_s8_requests_a_minute_of_a_key_on_every_surface(upstream: ScriptedUpstream, path: str) -> None:
    upstream.scripts["m"] = Script(text("Hi"))
    body = {"model": "m", **SURFACES[path]}
    with limited(upstream, requests_per_minute_per_key=3) as base:
        replies = [call(base, "POST", path, body, ONE) for _ in range(4)]
        assert [each.status for each in replies] == [200, 200, 200, 429]
        status, message, wait = refusal(replies[3])
        assert (status, message) == (429, "One API key may make 3 requests a minute; try again later.")
        assert 10 <= wait <= 20
        kind = {"/v1/messages": "rate_limit_error"}.get(path, "too_many_requests")
        assert replies[3].error["type"] == kind
        assert call(base, "POST", path, body, TWO).status == 200
        for count, reply in enumerate(replies):
            left = str(max(2 - count, 0))
            if path == "/v1/messages":
                assert reply.headers["anthropic-ratelimit-requests-limit"] == "3"
                assert reply.headers["anthropic-ratelimit-requests-remaining"] == left
                assert reply.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
                assert "x-ratelimit-limit-requests" not in reply.headers
            else:
                assert reply.headers["x-ratelimit-limit-requests"] == "3"
                assert reply.headers["x-ratelimit-remaining-requests"] == left
                assert reply.headers["x-ratelimit-reset-requests"].endswith("s")
        metrics = call(base, "GET", "/metrics", None, ONE).body.decode()
        assert 'refused_total{limit="requests"} 1.0' in metrics


def test_s8_what_is_refused_as_wrong_is_not_counted_and_choices_are_one_request(
    upstream: ScriptedUpstream,
) -> None:
    upstream.scripts["m"] = Script(text("Hi"))
    with limited(upstream, requests_per_minute_per_key=2) as base:
        for _ in range(4):
            assert respond(base, ONE, model="m", input="x", temperature="hot").status == 400
        for path in ("/v1/models", "/v1/responses/resp_x"):
            call(base, "GET", path, None, ONE)
        body = {"model": "m", "n": 2, **SAID}
        assert call(base, "POST", "/v1/chat/completions", body, ONE).status == 200
        assert call(base, "POST", "/v1/chat/completions", body, ONE).status == 200
        assert call(base, "POST", "/v1/chat/completions", body, ONE).status == 429


def test_s8_turns_on_a_socket_count_and_so_do_those_that_make_nothing(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("Hi"))
    with limited(upstream, requests_per_minute_per_key=2) as base, opened_socket(base, ONE) as socket:
        assert socket.turn(model="m", input="x", generate=False).final["status"] == "completed"
        assert socket.turn(model="m", input="x").final["status"] == "completed"
        for generate in (True, False):
            refused = socket.turn(model="m", input="x", generate=generate).error
            assert (refused["status"], refused["error"]["code"]) == (429, "rate_limit_exceeded")
            assert 20 <= int(refused["headers"]["retry-after"]) <= 30


def test_s8_without_keys_no_minute_is_counted(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("Hi"))
    limits = {"requests_per_minute_per_key": 1, "tokens_per_minute_per_key": 1, "stored_bytes_per_key": 1}
    with limited(upstream, keys=(), **limits) as base:
        replies = [respond(base, model="m") for _ in range(3)]
        assert [each.status for each in replies] == [200] * 3
        assert "x-ratelimit-limit-requests" not in replies[0].headers


def test_s8_tokens_are_counted_when_they_were_used(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = used(40, 80)
    with limited(upstream, tokens_per_minute_per_key=100) as base:
        first = respond(base, ONE, model="m")
        assert (first.status, first.headers["x-ratelimit-remaining-tokens"]) == (200, "100")
        refused = respond(base, ONE, model="m")
        status, message, wait = refusal(refused)
        assert (status, message) == (429, "One API key may use 100 tokens a minute; try again later.")
        assert 2 <= wait <= 12
        assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
        assert respond(base, TWO, model="m").status == 200


def test_s8_an_upstream_that_lies_about_tokens_locks_nobody_out(upstream: ScriptedUpstream) -> None:
    """A count that no answer can have is estimated; one that it might have is believed, up to a bound."""
    upstream.scripts["m"] = [used(10**18, 10**18), used(10**6, 10**6), used(1, 1)]
    with limited(upstream, tokens_per_minute_per_key=100) as base:
        assert [respond(base, ONE, model="m").status for _ in range(2)] == [200, 200]
        assert refusal(respond(base, ONE, model="m"))[2] <= 3600


def test_s8_who_leaves_before_the_end_has_used_tokens_too(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([*[chunk(content="word " * 50) for _ in range(20)], HANG])
    with limited(upstream, tokens_per_minute_per_key=500) as base:
        with ExitStack() as streams:
            body = {"model": "m", "input": "x", "stream": True, "store": False}
            stream = streams.enter_context(opened(base, "POST", "/v1/responses", body, ONE))
            data = b""
            while data.count(b"output_text.delta") < 20:
                data += stream.read1(65536)

        def refused() -> bool:
            return respond(base, ONE, model="m", background=True).status == 429

        wait_until(lambda: ready(base, ONE).json["running"] == 0)
        assert refused()


def test_s8_an_upstream_that_refuses_has_used_nothing(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = refusal_of(400, message="No.")
    with limited(upstream, tokens_per_minute_per_key=1) as base:
        assert [respond(base, ONE, model="m").status for _ in range(3)] == [400] * 3


def test_s8_stored_bytes_of_a_key_are_bounded_before_a_request_is_begun(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("Hi"))
    with limited(upstream, stored_bytes_per_key=20_000) as base:
        first = respond(base, ONE, model="m", input="x" * 4000)
        assert first.status == 200
        refused = respond(base, ONE, model="m", input="x" * 19_000)
        assert refused.status == 429
        assert refused.error["code"] == "stored_bytes_exceeded"
        before = len(upstream.received)
        with opened_socket(base, ONE) as socket:
            turn = socket.turn(model="m", input="x" * 19_000, generate=False)
            assert turn.error["error"]["code"] == "stored_bytes_exceeded"
        assert len(upstream.received) == before
        assert respond(base, ONE, model="m", input="x" * 19_000, store=False).status == 200
        assert respond(base, TWO, model="m", input="x" * 4000).status == 200
        for _ in range(5):
            last = respond(base, ONE, model="m", input="x" * 3000)
        assert last.status == 429


@pytest.mark.parametrize("store", [True, False])
def test_s8_what_references_stand_for_counts_as_stored(upstream: ScriptedUpstream, store: bool) -> None:
    """A few bytes of a reference store a copy of the item."""
    upstream.scripts["m"] = Script(text("Hi"))
    with limited(upstream, stored_bytes_per_key=100_000) as base:
        first = respond(base, ONE, model="m", input="x" * 30_000).json
        (item,) = call(base, "GET", f"/v1/responses/{first['id']}/input_items", headers=ONE).json["data"]
        again = [{"type": "item_reference", "id": item["id"]}]
        answers = [respond(base, ONE, model="m", input=again, store=store) for _ in range(4)]
        assert [answer.status for answer in answers][:1] == [200]
        assert (answers[-1].status == 429) is store
        if store:
            assert answers[-1].error["code"] == "stored_bytes_exceeded"
        assert respond(base, TWO, model="m", input="x" * 4000).status == 200


def test_s8_a_key_of_odd_characters_has_limits_of_its_own(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("Hi"))
    with limited(upstream, keys=("a:{b}*", "a:{b}"), requests_per_minute_per_key=1) as base:
        for key in ("a:{b}*", "a:{b}"):
            headers = {"authorization": f"Bearer {key}"}
            assert [respond(base, headers, model="m").status for _ in range(2)] == [200, 429]


def test_s8_two_workers_count_one_key_together_and_one_that_is_killed_frees_its_share(tmp_path: Path) -> None:
    config = """
    checkpoint_interval = 0.2
    lease = 2.0
    api_keys = ["one", "two"]
    [limits]
    concurrent_per_key = 2
    requests_per_minute_per_key = 100
    """
    store = f"sqlite:///{tmp_path}/s.sqlite3"
    slow = {"model": "demo-slow", "input": "x", "stream": True, "store": False}
    with own_redis() as redis, working(tmp_path, store, redis.url, config) as one:
        with working(tmp_path, store, redis.url, config) as other, ExitStack() as streams:
            for base in (one.base, other.base):
                streams.enter_context(opened(base, "POST", "/v1/responses", slow, ONE)).read(10)
            for base in (one.base, other.base):
                refused = respond(base, ONE, model="demo")
                assert refused.error["code"] == "too_many_concurrent_requests"
                assert respond(base, TWO, model="demo").status == 200
            left = [respond(base, TWO, model="demo") for base in (one.base, other.base)]
            remaining = [int(each.headers["x-ratelimit-remaining-requests"]) for each in left]
            assert remaining[1] in (remaining[0] - 1, remaining[0])  # the minute refills meanwhile
            other.kill()
            wait_until(lambda: respond(one.base, ONE, model="demo").status == 200)
        redis.freeze()
        assert respond(one.base, TWO, model="demo", store=False).status == 200
        redis.thaw()


def test_s8_what_a_key_has_stored_at_one_worker_is_measured_for_all(tmp_path: Path) -> None:
    config = """
    api_keys = ["one", "two"]
    [limits]
    stored_bytes_per_key = 20_000
    """
    store = f"sqlite:///{tmp_path}/s.sqlite3"
    with (
        own_redis() as redis,
        working(tmp_path, store, redis.url, config) as one,
        working(tmp_path, store, redis.url, config) as other,
    ):
        assert respond(one.base, ONE, model="demo", input="x" * 16_000).status == 200
        body = {"model": "demo", "input": "x" * 8_000, "store": True}
        wait_until(lambda: call(other.base, "POST", "/v1/responses", body, ONE).status == 429)
        assert respond(other.base, ONE, **body).error["code"] == "stored_bytes_exceeded"
        with Redis.from_url(redis.url) as client:
            (key,) = client.keys("*:stored:*")
            assert client.hget(key, "result")
