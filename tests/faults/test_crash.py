"""`kill -9` at a random moment, then a restart (laws S1, S2)."""

import random
import time
from pathlib import Path

import pytest

from tests.support.crashes import (
    check_all,
    saved,
    start_streams,
)
from tests.support.scale import MANY
from tests.support.serving import respond
from tests.support.sockets import opened_socket
from tests.support.workers import Reader, SocketReader, working, working_together

LONGEST = 2.5  # seconds that the streams take; the kill comes before their end


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


def test_s1_s2_a_crash_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    crash_and_resume(tmp_path, streams=8, seed=int(time.time()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 * MANY))
def test_s1_s2_fifty_streams_and_a_crash(tmp_path: Path, seed: int) -> None:
    crash_and_resume(tmp_path, streams=50, seed=seed)


def test_s2_response_in_the_background_that_was_seen_is_not_made_once_more(tmp_path: Path) -> None:
    """It was stored as queued; a crash immediately after its first events must not start another one under
    its id."""
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


def socket_turns(base: str, streams: int) -> list[SocketReader]:
    """Take a second turn, which continues the first one, on each connection."""
    readers = []
    for number in range(streams):
        first = respond(base, model="demo", input=f"Client {number}").json["id"]
        body = {"model": "demo-slow", "input": f"{int(LONGEST * 16)} words", "previous_response_id": first}
        readers.append(SocketReader(base, body))
    return readers


def check_continued(base: str, sent: list[SocketReader]) -> None:
    """Each client continues its conversation on a new connection, with what was stored of the turn."""
    for reader in sent:
        with opened_socket(base) as socket:
            turn = socket.turn(previous_response_id=reader.response_id, input="Go on.")
            assert turn.final["status"] == "completed"
            assert turn.final["previous_response_id"] == reader.response_id
            again = socket.turn(previous_response_id=turn.final["id"], input="And on.")
            assert again.final["status"] == "completed"


def crash_of_sockets(folder: Path, streams: int, seed: int) -> None:
    """On one machine, the worker is started again: each client resumes over HTTP, then continues."""
    store = f"sqlite:///{folder}/sessions-{seed}.sqlite3"
    with working(folder, store) as worker:
        readers = socket_turns(worker.base, streams)
        time.sleep(random.Random(seed).uniform(0.3, LONGEST))
        worker.kill()
    for reader in readers:
        reader.join()
    sent = [reader for reader in readers if reader.response_id is not None]
    had = saved(store, [str(reader.response_id) for reader in sent])
    with working(folder, store) as worker:
        check_all(worker.base, sent, had)
        check_continued(worker.base, sent)


def test_s1_s2_turns_on_websockets_are_resumed_over_http_and_continued(tmp_path: Path) -> None:
    crash_of_sockets(tmp_path, streams=6, seed=int(time.time()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 * MANY))
def test_s1_s2_thirty_websockets_and_a_crash(tmp_path: Path, seed: int) -> None:
    crash_of_sockets(tmp_path, streams=30, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 * MANY))
def test_s9_thirty_websockets_on_two_workers_and_one_dies(tmp_path: Path, seed: int) -> None:
    with working_together(tmp_path) as (first, second):
        readers = socket_turns(first.base, 30)
        time.sleep(random.Random(seed).uniform(0.3, LONGEST))
        first.kill()
        for reader in readers:
            reader.join()
        sent = [reader for reader in readers if reader.response_id is not None]
        check_all(second.base, sent, {})
        check_continued(second.base, sent)


def test_s9_clients_of_a_dead_worker_resume_on_another(tmp_path: Path) -> None:
    several_workers(tmp_path, 2, streams=8, seed=int(time.time()))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("seed", range(2 * MANY))
def test_s9_fifty_streams_on_several_workers_and_all_but_one_die(
    tmp_path: Path, seed: int, workers: int
) -> None:
    """The second of three workers dies while it may be settling the runs of the first."""
    several_workers(tmp_path, workers, streams=50, seed=seed)


def several_workers(folder: Path, count: int, streams: int, seed: int) -> None:
    """Workers that share PostgreSQL and Redis. The log outlives the workers, so that every client gets every
    event that any client saw."""
    chosen = random.Random(seed)
    with working_together(folder, count) as workers:
        shares = [streams * (number + 1) // count - streams * number // count for number in range(count)]
        readers = [
            start_streams(each.base, share, words=int(LONGEST * 16))
            for each, share in zip(workers, shares, strict=True)
        ]
        *dying, left = workers
        *doomed, safe = readers
        time.sleep(chosen.uniform(0.4, LONGEST + 0.5))
        for each in dying:
            each.kill()
            time.sleep(chosen.uniform(0.0, 1.0) if count > 2 else 0)
        lost = [reader for each in doomed for reader in each]
        for reader in lost:
            reader.join()
        sent = [reader for reader in lost if reader.response_id is not None]
        check_all(left.base, sent, {})
        for reader in safe:
            reader.join()
            assert reader.done
            assert b"response.completed" in reader.frames[-2]
