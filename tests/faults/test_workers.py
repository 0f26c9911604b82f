"""Law S9: several workers over one PostgreSQL and one Redis, and the behaviour when one of the four fails."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from msgspec import Struct

from tests.support.crashes import saved, start_streams, wait_until_settled
from tests.support.services import OwnRedis, own_postgres, own_redis, postgres_database, redis_server
from tests.support.serving import call, respond, response_of, violations, wait_for
from tests.support.waiting import wait_until
from tests.support.workers import CONFIG, Reader, Worker, type_of, working, working_together

NARROW = f"{CONFIG}\n[limits]\nconcurrent = 2\n"
SLOW = {"model": "demo-slow", "background": True}


class Pair(Struct):
    """Two workers that share a store and a log."""

    first: Worker
    second: Worker


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with working_together(tmp_path) as workers:
        yield Pair(*workers)


def statuses_of(base: str, ids: list[str]) -> list[str]:
    return [response_of(base, each)["status"] for each in ids]


def with_text(store: str, ids: list[str]) -> set[str]:
    """The responses of which some text is stored."""
    return {response_id for response_id, each in saved(store, ids).items() if each.text}


def test_s9_each_worker_streams_what_another_makes(pair: Pair) -> None:
    readers = start_streams(pair.first.base, 4, words=30)
    for reader in readers:
        while not reader.events:
            time.sleep(0.02)
        elsewhere = Reader(
            pair.second.base, "GET", f"/v1/responses/{reader.response_id}?stream=true&starting_after=3"
        )
        elsewhere.join()
        reader.join()
        assert elsewhere.events == {number: each for number, each in reader.events.items() if number > 3}
        assert elsewhere.done


def test_s9_background_runs_are_shared_and_answered_anywhere(pair: Pair) -> None:
    ids = [respond(pair.first.base, **SLOW, input="10 words").json["id"] for _ in range(6)]
    ended = wait_until_settled(pair.second.base, ids)
    assert {each["status"] for each in ended.values()} == {"completed"}
    for response_id in ids:
        sent = call(pair.first.base, "GET", f"/v1/responses/{response_id}?stream=true")
        assert violations(sent) == []
        assert sent.final == ended[response_id]


def test_s9_cancel_reaches_the_worker_that_makes_it(pair: Pair) -> None:
    reader = start_streams(pair.first.base, 1, words=300)[0]
    while reader.response_id is None:
        time.sleep(0.02)
    cancelled = call(pair.second.base, "POST", f"/v1/responses/{reader.response_id}/cancel")
    assert cancelled.status == 200, cancelled.body
    assert cancelled.json["incomplete_details"] == {"reason": "cancelled"}
    reader.join()
    assert type_of(reader.frames[-2]) == "response.incomplete"


def test_s9_cancel_of_a_queued_run_is_a_valid_stream_of_its_wire(tmp_path: Path) -> None:
    """No worker has it: the worker that receives the message ends it."""
    with ExitStack() as stack:
        store = stack.enter_context(postgres_database())
        log = stack.enter_context(redis_server())
        worker = stack.enter_context(working(tmp_path, store, log, NARROW))
        busy = [respond(worker.base, **SLOW, input="200 words").json["id"] for _ in range(2)]
        for response_id in busy:
            wait_for(worker.base, response_id, "in_progress")
        custom = [{"type": "custom", "name": "apply"}]
        for more, status in (({}, "incomplete"), ({"tools": custom}, "cancelled")):
            queued = respond(worker.base, **SLOW, input="x", **more).json["id"]
            ended = call(worker.base, "POST", f"/v1/responses/{queued}/cancel").json
            assert ended["status"] == status
            sent = call(worker.base, "GET", f"/v1/responses/{queued}?stream=true")
            assert violations(sent) == []
            assert sent.final == ended
        for response_id in busy:
            call(worker.base, "POST", f"/v1/responses/{response_id}/cancel")


def test_s9_deleted_elsewhere_leaves_nothing_of_a_running_response_in_redis(tmp_path: Path) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(postgres_database())
        log = stack.enter_context(own_redis()).url
        makes, deletes = (stack.enter_context(working(tmp_path, store, log)) for _ in range(2))
        reader = start_streams(makes.base, 1, words=300)[0]
        while len(reader.events) < 10:
            time.sleep(0.02)
        text = b"response.output_text.delta"
        with redis.Redis.from_url(log) as admin:
            admin.config_set("rdbcompression", "no")  # so that some text is found
            assert any(text in admin.dump(key) for key in admin.scan_iter("*:log:*"))
            assert call(deletes.base, "DELETE", f"/v1/responses/{reader.response_id}").status == 200
            while not reader.done:
                left = list(admin.scan_iter("*:log:*"))
                assert not any(text in (admin.dump(key) or b"") for key in left)
                assert all(admin.ttl(key) > 0 for key in left)
                time.sleep(0.05)
        assert type_of(reader.frames[-2]) == "response.failed"


def test_s9_run_whose_place_in_the_queue_was_lost_is_made_within_seconds(tmp_path: Path) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(postgres_database())
        log = stack.enter_context(own_redis()).url
        narrow = f"{CONFIG}\n[limits]\nconcurrent = 1\n"
        worker = stack.enter_context(working(tmp_path, store, log, narrow))
        first = respond(worker.base, **SLOW, input="40 words").json["id"]
        wait_for(worker.base, first, "in_progress")
        queued = respond(worker.base, **SLOW, input="5 words").json["id"]
        with redis.Redis.from_url(log) as admin:
            admin.flushall()
        ended = wait_until_settled(worker.base, [first, queued])
        assert {each["status"] for each in ended.values()} == {"completed"}


def test_s9_queued_runs_of_a_dead_worker_are_taken_over(tmp_path: Path) -> None:
    """The running responses fail with their partial output, and the queued ones are made, each once."""
    with ExitStack() as stack:
        store = stack.enter_context(postgres_database())
        log = stack.enter_context(own_redis()).url
        first = stack.enter_context(working(tmp_path, store, log, NARROW))
        ids = [respond(first.base, **SLOW, input="80 words").json["id"] for _ in range(6)]
        wait_until(lambda: len(with_text(store, ids)) == 2)
        first.kill()
        begun = with_text(store, ids)
        statuses = {each: left.status for each, left in saved(store, ids).items()}
        assert statuses == {each: "in_progress" if each in begun else "queued" for each in ids}
        assert len(begun) == 2  # it has no slot for more
        second = stack.enter_context(working(tmp_path, store, log))
        ended = wait_until_settled(second.base, ids)
        for response_id in ids:
            sent = call(second.base, "GET", f"/v1/responses/{response_id}?stream=true")
            assert violations(sent) == []
            assert sent.final == ended[response_id]
            if response_id in begun:
                assert ended[response_id]["error"]["code"] == "response_interrupted"
                assert ended[response_id]["output"]
            else:
                assert ended[response_id]["status"] == "completed"


def test_s9_redis_restarted_in_the_middle_of_a_run(tmp_path: Path) -> None:
    """The stream continues, nothing is lost, and afterwards everything works again."""
    with ExitStack() as stack:
        store = stack.enter_context(postgres_database())
        server: OwnRedis = stack.enter_context(own_redis())
        worker = stack.enter_context(working(tmp_path, store, server.url))
        readers = start_streams(worker.base, 4, words=60)
        wait_until(lambda: all(len(each.events) > 10 for each in readers))
        server.stop()
        seen = [len(each.events) for each in readers]
        wait_until(lambda: all(len(each.events) > before for each, before in zip(readers, seen, strict=True)))
        server.start()
        for reader in readers:
            reader.join()
            assert type_of(reader.frames[-2]) == "response.completed"
            whole = Reader(worker.base, "GET", f"/v1/responses/{reader.response_id}?stream=true")
            whole.join()
            assert whole.events == reader.events
        queued = respond(worker.base, **SLOW, input="5 words").json["id"]
        assert wait_until_settled(worker.base, [queued])[queued]["status"] == "completed"


def test_s8_what_waits_for_its_turn_when_the_server_stops_is_made_by_the_next(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    config = f"{CONFIG}\n[limits]\nconcurrent = 1\ngrace = 0.5\n"
    with working(tmp_path, store, config=config) as worker:
        running, waiting = (
            respond(worker.base, **SLOW, input=f"{words} words").json["id"] for words in (60, 10)
        )
        wait_for(worker.base, running, "in_progress")
        worker.stop()
    with working(tmp_path, store, config=config) as worker:
        ended = wait_until_settled(worker.base, [running, waiting])
    assert ended[running]["status"] == "failed"
    assert ended[waiting]["status"] == "completed"


def test_s8_what_waits_at_a_worker_that_leaves_is_made_by_another_at_once(tmp_path: Path) -> None:
    """The leaving worker continues the runs that it has begun."""
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    narrow = f"{CONFIG}\n[limits]\nconcurrent = 1\n"
    with working(tmp_path, store, config=narrow) as leaves, working(tmp_path, store) as stays:
        running = respond(leaves.base, **SLOW, input="4000 words").json["id"]
        wait_for(leaves.base, running, "in_progress")
        waiting = [respond(leaves.base, **SLOW, input="2 words").json["id"] for _ in range(3)]
        assert statuses_of(stays.base, waiting) == ["queued"] * 3
        leaves.ask_to_stop()
        ended = wait_until_settled(stays.base, waiting)
        assert {each["status"] for each in ended.values()} == {"completed"}
        assert statuses_of(stays.base, [running]) == ["in_progress"]


def test_s1_store_down_at_the_end_of_a_run(tmp_path: Path) -> None:
    """The client gets a failure and not a completed response; when the store is available again, so is the
    service, and the store has what the client was sent."""
    with ExitStack() as stack:
        postgres = stack.enter_context(own_postgres())
        log = stack.enter_context(own_redis()).url
        store = f"{postgres.url}/test".replace("postgresql://", "postgresql+psycopg://")
        worker = stack.enter_context(working(tmp_path, store, log))
        readers = start_streams(worker.base, 4, words=30)
        wait_until(lambda: all(len(each.events) > 10 for each in readers))
        postgres.stop()
        refused = respond(worker.base, model="demo")
        assert (refused.status, refused.error["code"]) == (503, "store_unavailable")
        assert respond(worker.base, model="demo", store=False).json["status"] == "completed"
        for reader in readers:
            reader.join()
            assert [type_of(each) for each in reader.frames[-3:-1]] == ["error", "response.failed"]
        postgres.start()
        ended = wait_until_settled(worker.base, [str(reader.response_id) for reader in readers])
        for reader in readers:
            assert ended[str(reader.response_id)]["error"]["code"].startswith("store_")
            whole = Reader(worker.base, "GET", f"/v1/responses/{reader.response_id}?stream=true")
            whole.join()
            assert whole.events == reader.events
        assert respond(worker.base, model="demo").json["status"] == "completed"


def test_s9_requests_with_one_key_at_all_workers_are_one_response(pair: Pair) -> None:
    """When a worker is killed in the meantime, the response that it was making fails, and another worker
    makes it anew."""
    headers = {"idempotency-key": "k1"}
    body = {"model": "demo-slow", "input": "5 words", "background": True}
    bases = (pair.first.base, pair.second.base)
    with ThreadPoolExecutor(10) as threads:
        tries = [
            threads.submit(call, bases[number % 2], "POST", "/v1/responses", body, headers)
            for number in range(10)
        ]
        (name,) = {each.result().json["id"] for each in tries}
    assert wait_for(pair.second.base, name, "completed")["id"] == name
    long = {**SLOW, "input": "300 words", "background": False, "stream": True}
    reader = Reader(pair.first.base, "POST", "/v1/responses", long, {"idempotency-key": "k2"})
    while len(reader.events) < 10:
        time.sleep(0.02)
    attached = Reader(pair.second.base, "POST", "/v1/responses", long, {"idempotency-key": "k2"})
    while len(attached.events) < 10:
        time.sleep(0.02)
    pair.first.kill()
    reader.join()
    attached.join()
    assert attached.response_id == reader.response_id
    assert type_of(attached.frames[-2]) == "response.failed"
    short = {**long, "input": "3 words"}
    again = call(pair.second.base, "POST", "/v1/responses", short, {"idempotency-key": "k2"})
    assert again.status == 200, "the key of what failed may be used, for another request too"
    assert again.final["status"] == "completed"
