"""`kill -9` at a random moment, then a restart: law S1, law S2."""

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.crashes import check_client, resume_all, saved, start_streams, wait_until_settled
from tests.support.services import postgres_database, redis_server
from tests.support.workers import Reader, working

LONGEST = 2.5  # seconds of the streams; the kill comes before


def crash_and_resume(folder: Path, streams: int, seed: int) -> None:
    """One round on one machine: SQLite, and an event log that dies with the process."""
    store = f"sqlite:///{folder}/sessions-{seed}.sqlite3"
    chosen = random.Random(seed)
    with working(folder, store) as worker:
        readers = start_streams(worker.base, streams, words=int(LONGEST * 16))
        time.sleep(chosen.uniform(0.3, LONGEST + 0.5))
        worker.kill()
    for reader in readers:
        reader.join()
    sent = [reader for reader in readers if reader.response_id is not None]
    had = saved(store, [str(reader.response_id) for reader in sent])
    with working(folder, store) as worker:
        check_all(worker.base, sent, had)


def check_all(base: str, sent: list[Reader], had: dict) -> None:  # type: ignore[type-arg]
    resumed = resume_all(base, sent)
    for reader in resumed.values():
        reader.join()
    finals = wait_until_settled(base, list(resumed))
    for before in sent:
        response_id = str(before.response_id)
        whole = Reader(base, "GET", f"/v1/responses/{response_id}?stream=true")
        whole.join()
        check_client(before, resumed[response_id], whole, had.get(response_id), finals[response_id])


@pytest.mark.timeout(60)
def test_s1_s2_a_crash_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    crash_and_resume(tmp_path, streams=8, seed=int(time.time()))


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(20))
def test_s1_s2_fifty_streams_and_a_crash(tmp_path: Path, seed: int) -> None:
    crash_and_resume(tmp_path, streams=50, seed=seed)


@pytest.mark.timeout(60)
def test_s2_response_in_the_background_that_was_seen_is_not_made_once_more(tmp_path: Path) -> None:
    """It was stored as queued; a crash right after its first events must not begin another one under its
    id."""
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    body = {"model": "demo-slow", "input": "40 words", "background": True, "stream": True}
    with working(tmp_path, store) as worker:
        reader = Reader(worker.base, "POST", "/v1/responses", body)
        while len(reader.frames) < 3:
            time.sleep(0.005)
        worker.kill()
    reader.join()
    with working(tmp_path, store) as worker:
        check_all(worker.base, [reader], {})


@pytest.mark.timeout(60)
def test_s9_clients_of_a_dead_worker_resume_on_another(tmp_path: Path) -> None:
    two_workers(tmp_path, streams=8, seed=int(time.time()))


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(20))
def test_s9_fifty_streams_on_two_workers_and_one_dies(tmp_path: Path, seed: int) -> None:
    two_workers(tmp_path, streams=50, seed=seed)


def two_workers(folder: Path, streams: int, seed: int) -> None:
    """PostgreSQL and Redis between them. The log outlives the worker, so that every client gets all that
    any client saw."""
    with ExitStack() as stack:
        store = stack.enter_context(postgres_database())
        event_log = stack.enter_context(redis_server())
        first = stack.enter_context(working(folder, store, event_log))
        second = stack.enter_context(working(folder, store, event_log))
        doomed = start_streams(first.base, streams - streams // 2, words=int(LONGEST * 16))
        safe = start_streams(second.base, streams // 2, words=int(LONGEST * 16))
        time.sleep(random.Random(seed).uniform(0.4, LONGEST + 0.5))
        first.kill()
        for reader in doomed:
            reader.join()
        sent = [reader for reader in doomed if reader.response_id is not None]
        check_all(second.base, sent, {})
        for reader in safe:
            reader.join()
            assert reader.done
            assert b"response.completed" in reader.frames[-2]
