"""The runs of a killed worker are settled long before its leases are over, if its death can be detected;
until then, clients that resume are not refused (laws S1, S2)."""

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from tests.support.crashes import start_streams, wait_until_settled
from tests.support.services import own_redis, postgres_database
from tests.support.serving import call, wait_for
from tests.support.workers import DONE, Reader, type_of, working

LEASE = 900.0  # far longer than a test may take
LONG = f"checkpoint_interval = 0.2\nlease = {LEASE}\n"


@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.slow), "postgres"])
def test_s1_killed_workers_runs_are_settled_by_another(tmp_path: Path, kind: str) -> None:
    with ExitStack() as stack:
        if kind == "sqlite":
            store, log = f"sqlite:///{tmp_path}/sessions.sqlite3", "memory://"
        else:
            store, log = stack.enter_context(postgres_database()), stack.enter_context(own_redis()).url
        doomed, other = (stack.enter_context(working(tmp_path, store, log, LONG)) for _ in range(2))
        readers = start_streams(doomed.base, 4, words=400)
        follower = Reader(other.base, "GET", f"/v1/responses/{waited_for(readers[0])}?stream=true")
        safe = start_streams(other.base, 2, words=60)
        time.sleep(0.5)
        doomed.kill()
        ended = wait_until_settled(other.base, [waited_for(each) for each in readers])
        follower.join()
        assert {each["error"]["code"] for each in ended.values()} == {"response_interrupted"}
        assert type_of(follower.frames[-2]) == "response.failed"
        for each in safe:
            each.join()
            assert type_of(each.frames[-2]) == "response.completed"


def waited_for(reader: Reader) -> str:
    while reader.response_id is None:
        time.sleep(0.01)
    return reader.response_id


def test_s1_killed_workers_runs_are_settled_when_it_is_started_again(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    with working(tmp_path, store, config=LONG) as worker:
        (reader,) = start_streams(worker.base, 1, words=400)
        response_id = waited_for(reader)
        worker.kill()
    with working(tmp_path, store, config=LONG) as worker:
        # the store is checked as soon as the server listens; a lease of LONG would end much later
        assert wait_for(worker.base, response_id, "failed")["error"]["code"] == "response_interrupted"


@pytest.mark.slow
def test_s1_frozen_worker_keeps_its_runs_until_its_leases_are_over(tmp_path: Path) -> None:
    """The worker may continue."""
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    with working(tmp_path, store, config=LONG) as frozen, working(tmp_path, store, config=LONG) as other:
        (reader,) = start_streams(frozen.base, 1, words=40)
        response_id = waited_for(reader)
        frozen.freeze()
        time.sleep(3.0)
        assert call(other.base, "GET", f"/v1/responses/{response_id}").json["status"] == "in_progress"
        frozen.thaw()
        reader.join()
        assert type_of(reader.frames[-2]) == "response.completed"


def test_s2_client_that_saw_what_neither_log_nor_store_got_is_not_refused(tmp_path: Path) -> None:
    """Redis stalls, so that the log lacks events that the client is sent; then the worker dies before it
    stores them."""
    rare = f"checkpoint_interval = 20.0\nlease = {LEASE}\n"
    with ExitStack() as stack:
        store = stack.enter_context(postgres_database())
        log = stack.enter_context(own_redis()).url
        doomed, other = (stack.enter_context(working(tmp_path, store, log, rare)) for _ in range(2))
        (reader,) = start_streams(doomed.base, 1, words=400)
        response_id = waited_for(reader)
        with redis.Redis.from_url(log) as admin:
            admin.client_pause(6000)
            before = len(reader.events)
            while len(reader.events) < before + 30:
                time.sleep(0.02)
            doomed.kill()
            admin.client_unpause()
        reader.join()
        last = max(reader.events)
        answered = call(other.base, "GET", f"/v1/responses/{response_id}?stream=true&starting_after={last}")
        assert answered.status == 200, answered.body
        assert answered.body.count(b"event: response.failed\n") == answered.body.count(b"event: ") == 1
        assert answered.body.endswith(DONE)
        end = json.loads(answered.body.split(b"data: ", 1)[1].split(b"\n", 1)[0])
        replayed = Reader(other.base, "GET", f"/v1/responses/{response_id}?stream=true")
        replayed.join()
        assert end["sequence_number"] == max(replayed.events)
        assert answered.body.startswith(replayed.events[end["sequence_number"]])
        third = stack.enter_context(working(tmp_path, store, log, rare))
        path = f"/v1/responses/{response_id}?stream=true&starting_after={end['sequence_number']}"
        assert [call(each.base, "GET", path).body for each in (other, third)] == [DONE, DONE]
