"""What `/metrics` counts: of all workers of a host, and how store and log do."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from openresponses_server.limits.gate import Gate
from openresponses_server.observation.metric_values import remove_stopped, share_metrics
from openresponses_server.observation.metrics import Metrics
from openresponses_server.settings import Limits, Settings
from openresponses_server.store.base import Lease, LeaseLost, StoreError
from openresponses_server.store.logs.base import LogError
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.measured import measured_log, measured_store
from openresponses_server.store.memory import MemoryStore
from tests.support.processes import base_of, started
from tests.support.services import redis_server
from tests.support.serving import call, respond, serving
from tests.support.shared import REPOSITORY
from tests.support.stores import frames, record
from tests.support.waiting import wait_until
from tests.support.workers import Reader, working


def values(text: str) -> dict[str, float]:
    """Each series with its labels, and its value."""
    samples = re.findall(r"^openresponses_bridge_(\S+) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in samples}


def read(base: str) -> dict[str, float]:
    return values(call(base, "GET", "/metrics").body.decode())


def slow(base: str) -> Reader:
    """A stream that takes a while."""
    return Reader(base, "POST", "/v1/responses", {"model": "demo-slow", "input": "x", "stream": True})


def counted(metrics: Metrics) -> dict[str, float]:
    return values(metrics.text().decode())


class FailingLog(MemoryLog):
    at_hand = False
    shared = True

    async def open(self, run_id: str) -> None:
        raise LogError

    async def close(self, run_id: str) -> None:
        await asyncio.sleep(10)


async def test_calls_are_timed_and_failures_counted_by_their_codes() -> None:
    metrics = Metrics(Gate(Limits()))
    store = measured_store(MemoryStore(), metrics.called)
    await store.put(record("r", owner="k", lease=Lease("w", 4e9)), frames(0, 1))
    await store.checkpoint("r", Lease("w", 4e9), None, frames(2, 3))
    with pytest.raises(LeaseLost):
        await store.finish("r", "another", record("r").response)
    with pytest.raises(StoreError):
        await store.put(record("r", owner="l"))
    assert [piece.last async for piece in store.frames("r", "k")] == [1, 3]
    assert store.name.startswith("memory-")
    samples = counted(metrics)
    assert samples['store_seconds_count{call="put"}'] == 2
    assert samples['store_seconds_count{call="checkpoint"}'] == 1
    assert samples['failures_total{call="put",code="store_conflict",part="store"}'] == 1
    assert not [name for name in samples if name.startswith("failures_total") and "finish" in name]


async def test_log_in_memory_is_not_measured_and_another_is() -> None:
    metrics = Metrics(Gate(Limits()))
    here = MemoryLog()
    assert measured_log(here, metrics.called) is here
    log = measured_log(FailingLog(), metrics.called)
    with pytest.raises(LogError):
        await log.open("r")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await log.close("r")
    samples = counted(metrics)
    assert samples['failures_total{call="open",code="event_log_unavailable",part="log"}'] == 1
    assert samples['failures_total{call="close",code="timeout",part="log"}'] == 1


async def test_wait_for_a_place_is_measured() -> None:
    gate = Gate(Limits(concurrent=1))
    metrics = Metrics(gate)

    async def hold(seconds: float) -> None:
        async with gate.slot("", waits=True):
            await asyncio.sleep(seconds)

    await asyncio.gather(hold(0.2), hold(0.0))
    samples = counted(metrics)
    assert samples['background_wait_seconds_count{where="place"}'] == 2
    assert 0.15 < samples['background_wait_seconds_sum{where="place"}'] < 5


def test_streams_are_counted_while_they_are_open_and_runs_that_are_lost() -> None:
    with serving(Settings(checkpoint_interval=0.05)) as base:
        assert read(base)["streams"] == 0
        reader = slow(base)
        wait_until(lambda: read(base)["streams"] == 1 and reader.response_id is not None)
        assert read(base)["running"] == 1
        assert call(base, "DELETE", f"/v1/responses/{reader.response_id}").status == 200
        reader.join()
        wait_until(lambda: read(base)["streams"] == 0)
        assert read(base)["runs_lost_total"] == 1
        assert read(base)['store_seconds_count{call="checkpoint"}'] >= 1


@pytest.mark.slow
def test_servers_of_a_host_that_share_a_folder_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "counts"))
    store = f"sqlite:///{tmp_path}/s.sqlite3"
    requests = 'requests_total{route="/v1/responses",status="200"}'
    with working(tmp_path, store) as one, working(tmp_path, store) as other:
        for worker in (one, other, other):
            assert respond(worker.base, model="demo").status == 200
        wait_until(lambda: read(one.base)[requests] == read(other.base)[requests] == 3)
        slow(other.base)
        wait_until(lambda: read(one.base)["running"] == 1)
        other.kill()
        wait_until(lambda: read(one.base)["running"] == 0)
        assert read(one.base)[requests] == 3
        wait_until(lambda: read(one.base).get("runs_settled_total", 0) == 1)


COUNTING = """
import os
from openresponses_server.limits.gate import Gate
from openresponses_server.observation.metrics import Metrics
from openresponses_server.settings import Limits

first = os.fork() != 0
metrics = Metrics(Gate(Limits()))
for _ in range(5 if first else 3):
    metrics.answered("/v1/responses", 200, None, 0.1)
metrics.streams = 2
metrics.refresh()
if first:
    os.wait()
    print(metrics.text().decode())
"""


def test_processes_with_one_folder_count_together(tmp_path: Path) -> None:
    """As the workers of a server do; what was open in one that has stopped is not any more."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTING],
        cwd=REPOSITORY,
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    samples = values(done.stdout)
    assert samples['requests_total{route="/v1/responses",status="200"}'] == 8
    assert samples["streams"] == 2


@pytest.mark.slow
def test_workers_of_one_server_count_together(tmp_path: Path) -> None:
    with started("--workers", "2", "--store", f"sqlite:///{tmp_path}/s.sqlite3", folder=tmp_path) as process:
        base = base_of(process)
        wait_until(lambda: call(base, "GET", "/readyz").status == 200)
        for _ in range(8):
            assert respond(base, model="demo").status == 200
        requests = 'requests_total{route="/v1/responses",status="200"}'
        wait_until(lambda: read(base).get(requests) == 8)  # counted when all of an answer is sent
        assert {read(base)[requests] for _ in range(8)} == {8}


def test_queue_depth_and_wait_are_reported(tmp_path: Path) -> None:
    with redis_server() as redis:
        settings = Settings(store=f"sqlite:///{tmp_path}/s.sqlite3", event_log=redis)
        with serving(settings) as base:
            queued = respond(base, model="demo", background=True).json
            wait_until(
                lambda: call(base, "GET", f"/v1/responses/{queued['id']}").json["status"] == "completed"
            )
            samples = read(base)
            assert samples['background_wait_seconds_count{where="queue"}'] == 1
            assert samples["queue_depth"] == 0
            assert samples['event_log_seconds_count{call="open"}'] >= 1


async def test_what_waits_for_any_worker_is_counted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openresponses_server.observation.metrics._REFRESHED_EVERY", 0.01)
    metrics, calls = Metrics(Gate(Limits())), 0

    async def depth() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StoreError(StoreError.UNAVAILABLE, "gone")
        return 7

    keeping = asyncio.create_task(metrics.keep(depth))
    while calls < 3:
        await asyncio.sleep(0.01)
    keeping.cancel()
    assert counted(metrics)["queue_depth"] == 7


def test_folder_is_made_for_several_workers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "PROMETHEUS_MULTIPROC_DIR"
    monkeypatch.delenv(name, raising=False)
    share_metrics(1)
    assert name not in os.environ
    share_metrics(2)
    folder = Path(os.environ[name])
    assert folder.stat().st_mode & 0o777 == 0o700
    share_metrics(3)
    assert os.environ[name] == str(folder)
    folder.rmdir()
    monkeypatch.delenv(name)


def test_what_a_stopped_process_said_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        f"gauge_livesum_{os.getpid()}.db",
        "gauge_livesum_1.db",
        "gauge_livemax_odd.db",
        "counter_99999999.db",
    ]
    for each in [*names, "gauge_livesum_99999999.db"]:
        (tmp_path / each).touch()

    def kill(process: int, _signal: int) -> None:
        if process == 1:
            raise PermissionError
        if process == 99999999:
            raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    remove_stopped(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(names)
