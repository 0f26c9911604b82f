"""No event that any client has read is lost when workers of one machine are killed or stop for a while (laws
S1, S2), with SQLite and the event log in files beside it, without Redis."""

import json
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.load.watch import children
from tests.support.crashes import check_one_end, start_streams, wait_until_settled
from tests.support.scale import MANY
from tests.support.serving import call, respond
from tests.support.waiting import wait_until
from tests.support.workers import CONFIG, Reader, Worker, type_of, working

THREE = f"{CONFIG}workers = 3\n"
LONGEST = 2.5  # seconds that the streams take; the kill comes before their end


@contextmanager
def machine(folder: Path, config: str = CONFIG) -> Iterator[Worker]:
    """A server with the default store, in this folder."""
    with working(folder, f"sqlite:///{folder}/sessions.sqlite3", config=config) as worker:
        yield worker


def text_of(events: dict[int, bytes]) -> str:
    """The text in these events."""
    deltas = [each for each in events.values() if type_of(each) == "response.output_text.delta"]
    return "".join(json.loads(each.split(b"data: ", 1)[1])["delta"] for each in deltas)


def check(base: str, clients: dict[str, list[Reader]]) -> None:
    """For each response, the events that any client has read are those that are stored and streamed now, up
    to one end; and each client that resumes after its last number gets the next ones."""
    finals = wait_until_settled(base, list(clients))
    for response_id, readers in clients.items():
        whole = Reader(base, "GET", f"/v1/responses/{response_id}?stream=true")
        whole.join()
        check_one_end(whole)
        events = whole.events
        final = finals[response_id]
        stored = "".join(part["text"] for item in final["output"] for part in item["content"])
        longest = max((text_of(reader.events) for reader in readers), key=len)
        assert stored.startswith(longest)
        for reader in readers:
            assert reader.events == {number: events[number] for number in reader.events}, (
                "what was read changed"
            )
            last = max(reader.events)
            rest = Reader(base, "GET", f"/v1/responses/{response_id}?stream=true&starting_after={last}")
            rest.join()
            assert rest.events == {number: each for number, each in events.items() if number > last}


def begun(readers: Sequence[Reader]) -> dict[str, list[Reader]]:
    """The clients that got the id of their response, by that id."""
    return {str(reader.response_id): [reader] for reader in readers if reader.response_id is not None}


def one_worker(folder: Path, streams: int, seed: int) -> None:
    chosen = random.Random(seed)
    with machine(folder) as worker:
        readers = start_streams(worker.base, streams, words=int(LONGEST * 16))
        time.sleep(chosen.uniform(0.3, LONGEST + 0.5))
        worker.kill()
    for reader in readers:
        reader.join()
    with machine(folder) as worker:
        check(worker.base, begun(readers))


def several_workers(folder: Path, streams: int, seed: int, *, frozen: bool) -> None:
    """Other clients read the same streams from any of the workers. Then some workers are killed, or one stops
    for longer than its leases last."""
    chosen = random.Random(seed)
    with machine(folder, THREE) as server:
        readers = start_streams(server.base, streams, words=200 if frozen else int(LONGEST * 16))
        wait_until(lambda: all(reader.response_id is not None for reader in readers))
        clients = begun(readers)
        for response_id in list(clients)[::2]:
            clients[response_id].append(
                Reader(server.base, "GET", f"/v1/responses/{response_id}?stream=true")
            )
        time.sleep(chosen.uniform(0.3, LONGEST))
        pids = children(server.pid)
        if frozen:
            (pid,) = chosen.sample(pids, 1)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(4.0)  # its leases last three seconds
            os.kill(pid, signal.SIGCONT)
        else:
            for pid in chosen.sample(pids, chosen.randint(1, 3)):
                os.kill(pid, signal.SIGKILL)
                time.sleep(chosen.choice((0.0, chosen.uniform(0.0, 1.0))))
        for each in clients.values():
            for reader in each:
                reader.join()
        wait_until(lambda: answers(server.base))
        check(server.base, {name: [each for each in group if each.events] for name, group in clients.items()})


def answers(base: str) -> bool:
    try:
        return call(base, "GET", "/readyz").status == 200
    except OSError:
        return False


def test_s1_s2_what_was_read_before_a_kill_is_there(tmp_path: Path) -> None:
    one_worker(tmp_path, streams=8, seed=int(time.time()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 * MANY))
def test_s1_s2_what_24_clients_read_before_a_kill_is_there(tmp_path: Path, seed: int) -> None:
    one_worker(tmp_path, streams=24, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 * MANY))
def test_s1_s2_what_60_clients_of_three_workers_read_before_kills_is_there(tmp_path: Path, seed: int) -> None:
    several_workers(tmp_path, streams=60, seed=seed, frozen=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(MANY))
def test_s1_s2_what_clients_of_a_frozen_worker_read_is_there(tmp_path: Path, seed: int) -> None:
    several_workers(tmp_path, streams=30, seed=seed, frozen=True)


def test_s9_workers_of_one_machine_stream_and_cancel_each_others_responses(tmp_path: Path) -> None:
    with machine(tmp_path) as makes, machine(tmp_path) as other:
        reader = start_streams(makes.base, 1, words=4000)[0]
        wait_until(lambda: reader.response_id is not None)
        name = reader.response_id
        along = Reader(other.base, "GET", f"/v1/responses/{name}?stream=true&starting_after=3")
        before = len(along.events)
        wait_until(lambda: len(along.events) > before + 30)
        cancelled = call(other.base, "POST", f"/v1/responses/{name}/cancel")
        assert cancelled.status == 200, cancelled.body
        reader.join()
        along.join()
        assert along.events == {number: each for number, each in reader.events.items() if number > 3}
        assert type_of(reader.frames[-2]) == "response.incomplete"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_s2_200_clients_resume_at_every_number(tmp_path: Path) -> None:
    with machine(tmp_path) as makes, machine(tmp_path) as other:
        reader = start_streams(makes.base, 1, words=60)[0]
        wait_until(lambda: len(reader.events) > 10)
        bases = (makes.base, other.base)
        early = [
            Reader(
                bases[number % 2],
                "GET",
                f"/v1/responses/{reader.response_id}?stream=true&starting_after={number % 10}",
            )
            for number in range(200)
        ]
        reader.join()
        for number, each in enumerate(early):
            each.join()
            assert each.events == {at: frame for at, frame in reader.events.items() if at > number % 10}
        for number in range(len(reader.events)):
            late = Reader(
                bases[number % 2],
                "GET",
                f"/v1/responses/{reader.response_id}?stream=true&starting_after={number}",
            )
            late.join()
            assert late.events == {at: frame for at, frame in reader.events.items() if at > number}


def test_s8_server_leaves_no_file_of_the_log_behind(tmp_path: Path) -> None:
    with machine(tmp_path) as worker:
        reader = start_streams(worker.base, 1, words=5)[0]
        reader.join()
        assert respond(worker.base, model="demo").status == 200
        worker.stop()
    assert not (tmp_path / "sessions.sqlite3-workers").exists()
