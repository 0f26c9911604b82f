"""Law S8: what a few bytes may stand for: conversations, references, what a connection remembers."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.errors import HttpError
from openresponses_server.limits.memory import MemoryBudget, Reservation
from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.serving import call, opened, respond, serving
from tests.support.sockets import opened_socket
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, text
from tests.support.waiting import wait_until

SMALL = Limits(
    conversation_bytes=20_000, reference_bytes=4_000, loaded_bytes=60_000, loaded_bytes_per_key=45_000
)
ONE = {"authorization": "Bearer one"}
TWO = {"authorization": "Bearer two"}


@pytest.fixture(params=["memory://", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("store")
    return f"sqlite:///{folder}/s.db" if request.param == "sqlite" else request.param


@pytest.fixture
def base(upstream: ScriptedUpstream, store: str) -> Iterator[str]:
    upstream.scripts |= {"m": Script(text("ok")), "long": Script([chunk(content="a"), HANG])}
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        limits=SMALL,
        store=store,
        api_keys=[hashed("one"), hashed("two")],
    )
    with serving(settings) as url:
        yield url


def said(size: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"type": "message", "role": "user", "content": "x" * size, **fields}]


def chain(base: str, *sizes: int, headers: dict[str, str] = ONE) -> str:
    """The last response of a conversation whose turns brought in so much."""
    before = None
    for size in sizes:
        reply = respond(base, headers, model="m", input=said(size), previous_response_id=before)
        assert reply.status == 200, reply.body
        before = reply.json["id"]
    assert before is not None
    return before


def test_s8_a_conversation_beyond_the_limit_is_refused_before_it_is_read(base: str) -> None:
    short, long = chain(base, 6000, 6000), chain(base, 9000, 9000)
    assert respond(base, ONE, model="m", previous_response_id=short).status == 200
    for path in ("/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"):
        body = {"model": "m", "input": "x", "previous_response_id": long}
        reply = call(base, "POST", path, body, ONE)
        assert (reply.status, reply.error["code"]) == (400, "conversation_too_large")
        assert reply.error["param"] == "previous_response_id"
        assert "the limit is 20000" in reply.error["message"]
    with opened_socket(base, ONE) as socket:
        error = socket.turn(model="m", input="x", previous_response_id=long).error
        assert (error["status"], error["error"]["code"]) == (400, "conversation_too_large")


def test_s8_another_keys_conversation_is_not_found_however_large(base: str) -> None:
    long = chain(base, 9000, 9000)
    reply = respond(base, TWO, model="m", previous_response_id=long)
    assert (reply.status, reply.error["code"]) == (400, "previous_response_not_found")


def test_s8_many_large_conversations_at_once_are_bounded_per_key_and_in_sum(base: str) -> None:
    mine, theirs = chain(base, 14_000), chain(base, 14_000, headers=TWO)
    body = {"model": "long", "input": "x", "stream": True, "store": False}
    with opened(base, "POST", "/v1/responses", {**body, "previous_response_id": mine}, ONE) as running:
        running.read(10)
        refused = respond(base, ONE, model="m", previous_response_id=mine)
        assert (refused.status, refused.error["code"]) == (429, "too_much_in_memory")
        assert refused.headers["retry-after"] == "1"
        assert "One API key may have bodies and conversations of 45000 bytes" in refused.error["message"]
        assert respond(base, ONE, model="m").status == 200
        with opened(base, "POST", "/v1/responses", {**body, "previous_response_id": theirs}, TWO) as more:
            assert more.status == 200
            more.read(10)
            refused = respond(base, TWO, model="m", input=said(10_000))
            assert (refused.status, refused.error["code"]) == (429, "too_much_in_memory")
            assert (
                "Bodies and conversations in memory have reached the limit of 60000 bytes"
                in refused.error["message"]
            )
    wait_until(lambda: respond(base, ONE, model="m", previous_response_id=mine).status == 200)


def test_s8_waiting_background_responses_are_in_memory_too(upstream: ScriptedUpstream, store: str) -> None:
    upstream.scripts |= {"m": Script(text("ok")), "long": Script([chunk(content="a"), HANG])}
    limits = Limits(concurrent=1, loaded_bytes=50_000)
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)], limits=limits, store=store)) as url:
        body = {"model": "long", "input": "x", "stream": True, "store": False}
        with opened(url, "POST", "/v1/responses", body) as running:
            running.read(10)
            statuses = [respond(url, model="m", input=said(10_000), background=True).status for _ in range(6)]
        assert statuses == [200] * 4 + [429] * 2


def test_s8_what_references_stand_for_is_bounded(base: str) -> None:
    respond(base, ONE, model="m", input=[*said(3000, id="in_a"), *said(3000, id="in_b")])
    to = [{"type": "item_reference", "id": each} for each in ("in_a", "in_b")]
    assert respond(base, ONE, model="m", input=to[:1]).status == 200
    refused = respond(base, ONE, model="m", input=to)
    assert (refused.status, refused.error["code"]) == (400, "references_too_large")
    assert refused.error["param"] == "input"
    assert "the limit is 4000" in refused.error["message"]


def test_s8_what_references_on_a_socket_stand_for_is_bounded(base: str) -> None:
    with opened_socket(base, ONE) as socket:
        first = socket.turn(
            model="m", store=False, input=[*said(3000, id="in_a"), *said(3000, id="in_b")]
        ).final["id"]
        to = [{"type": "item_reference", "id": each} for each in ("in_a", "in_b")]
        error = socket.turn(model="m", store=False, input=to).error
        assert (error["status"], error["error"]["code"]) == (400, "references_too_large")
        turn = socket.turn(model="m", store=False, input=to, previous_response_id=first)
        assert turn.final["status"] == "completed", "what is in context already brings nothing in"


@pytest.fixture
def roomy(upstream: ScriptedUpstream, store: str) -> Iterator[str]:
    """A server with the limits that it has without a setting, and without keys."""
    upstream.scripts["m"] = Script(text("ok"))
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)], store=store)) as url:
        yield url


def test_s8_what_references_store_is_bounded_by_what_is_sent(roomy: str) -> None:
    """A few bytes would store megabytes, again and again."""
    first = respond(roomy, model="m", input=said(2_000_000, id="in_large")).json["id"]
    to = [{"type": "item_reference", "id": "in_large"}]
    for more in ({}, {"background": True}, {"input": [*to, *said(1000)]}):
        refused = respond(roomy, **({"model": "m", "input": to} | more))
        assert (refused.status, refused.error["code"]) == (400, "references_too_large")
        assert refused.error["param"] == "input"
        assert "limits.stored_reference_bytes" in refused.error["message"]
    assert respond(roomy, model="m", input=to, store=False).status == 200
    assert respond(roomy, model="m", input=to, previous_response_id=first).status == 200
    assert respond(roomy, model="m", input=[*to, *said(70_000)]).status == 200
    counted = call(roomy, "POST", "/v1/responses/input_tokens", {"model": "m", "input": to})
    assert counted.status == 200


def test_s8_a_history_of_usual_items_may_be_given_by_references(roomy: str) -> None:
    items = [each for number in range(300) for each in said(1000, id=f"in_{number}")]
    assert respond(roomy, model="m", input=items).status == 200
    to = [{"type": "item_reference", "id": item["id"]} for item in items]
    reply = respond(roomy, model="m", input=to)
    assert reply.status == 200
    page = call(roomy, "GET", f"/v1/responses/{reply.json['id']}/input_items?limit=1").json["data"]
    assert page[0]["id"] == "in_299"


@pytest.mark.parametrize("generate", [True, False])
def test_s8_what_references_on_a_socket_store_is_bounded_by_what_is_sent(roomy: str, generate: bool) -> None:
    first = respond(roomy, model="m", input=said(2_000_000, id="in_large")).json["id"]
    to = [{"type": "item_reference", "id": "in_large"}]
    with opened_socket(roomy) as socket:
        error = socket.turn(model="m", input=to, generate=generate).error
        assert (error["status"], error["error"]["code"]) == (400, "references_too_large")
        for more in ({"store": False}, {"previous_response_id": first}):
            turn = socket.turn(model="m", input=to, generate=generate, **more)
            assert turn.final["status"] == "completed"


def test_s8_warm_ups_that_are_not_stored_are_bounded(base: str) -> None:
    with opened_socket(base, ONE) as socket:
        before, refused = None, []
        for _ in range(4):
            turn = socket.turn(
                model="m", generate=False, store=False, input=said(9000), previous_response_id=before
            )
            if turn.types[-1] == "error":
                refused.append(turn.error["error"]["code"])
                before = None
            else:
                before = turn.final["id"]
        assert refused == ["conversation_too_large"]  # the third; the fourth begins anew


def test_s8_what_grew_too_large_is_forgotten_and_continued_from_the_store(base: str) -> None:
    with opened_socket(base, ONE) as socket:
        one = socket.turn(model="m", input=said(9000)).final["id"]
        two = socket.turn(model="m", input=said(9000), previous_response_id=one).final["id"]
        error = socket.turn(model="m", input="x", previous_response_id=two).error
        assert error["error"]["code"] == "conversation_too_large"
        assert socket.turn(model="m", input="x", previous_response_id=one).final["status"] == "completed"


def test_s8_connections_share_what_their_key_may_have_in_memory(base: str) -> None:
    with opened_socket(base, ONE) as first, opened_socket(base, ONE) as second:
        mine = first.turn(model="m", store=False, input=said(17_000)).final["id"]
        again = second.turn(model="m", store=False, input=said(10_000)).final["id"]
        refused = first.turn(model="m", store=False, input="x" * 1000, previous_response_id=mine).error
        assert (refused["status"], refused["error"]["code"]) == (429, "too_much_in_memory")
        assert refused["headers"] == {"retry-after": "1"}
        assert second.turn(model="m", store=False, previous_response_id=again, input="x").final
    wait_until(lambda: respond(base, ONE, model="m", input=said(40_000)).status == 200)


# ── the budget ─────────────────────────────────────────────────────────────────────────────────────────


def test_s8_who_holds_nothing_may_hold_any_number() -> None:
    budget = MemoryBudget(100, 50)
    one = Reservation(budget, "a")
    one.grow(1000)
    with pytest.raises(HttpError):
        one.grow(1)
    with pytest.raises(HttpError):
        Reservation(budget, "b").grow(1)
    one.release()
    one.release()
    assert (budget.bytes, budget.of("a"), budget._reserved) == (0, 0, {})


def test_s8_what_was_accepted_before_is_not_refused_now() -> None:
    budget = MemoryBudget(100, 50)
    refused, accepted = Reservation(budget, "a"), Reservation(budget, "a", accepted=True)
    accepted.grow(90)
    accepted.grow(90)
    with pytest.raises(HttpError):
        refused.grow(1)
    accepted.release()
    refused.grow(1)


def test_s8_what_is_forgotten_is_given_back() -> None:
    budget = MemoryBudget(100, 50)
    hold = Reservation(budget, "a")
    hold.grow(40)
    assert budget.of("a") == 40
    del hold
    gc.collect()
    assert budget.bytes == 0
