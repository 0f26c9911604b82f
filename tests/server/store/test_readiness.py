"""`/readyz` under stores that are slow, locked or silent: answered at once, out of a monitor."""

import asyncio
import sqlite3
import statistics
import time
from contextlib import closing
from pathlib import Path

import pytest

from openresponses_server.settings import Settings
from openresponses_server.store.base import StoreError
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.readiness import StoreMonitor
from openresponses_server.store.sql import store as probing
from tests.support.serving import Reply, call, serving

AT_MOST = 0.05  # seconds; probes wait one


class _Silent(MemoryStore):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def probe(self) -> None:
        await self.answers.wait()


async def test_s8_store_that_does_not_answer_is_out_after_a_while_and_back_when_it_does() -> None:
    store = _Silent()
    monitor = StoreMonitor(store, MemoryLog(), interval=0.01, timeout=0.1)
    async with monitor.going():
        await monitor.seen()
        assert monitor.store_outage == (StoreError.UNAVAILABLE, "The session store has not answered yet.")
        store.answers.set()
        await asyncio.sleep(0.05)
        assert monitor.store_outage is None
        store.answers.clear()
        assert monitor.store_outage is None  # it has the time that it may take
        await asyncio.sleep(0.2)
        assert monitor.store_outage == (StoreError.UNAVAILABLE, "The session store does not answer.")


def _until(base: str, status: int, times: list[float]) -> Reply:
    deadline = time.monotonic() + 60
    while True:
        begun = time.perf_counter()
        reply = call(base, "GET", "/readyz")
        times.append(time.perf_counter() - begun)
        if reply.status == status:
            return reply
        assert time.monotonic() < deadline, f"/readyz is not {status}"
        time.sleep(0.02)


def test_s8_locked_database_is_reported_and_no_probe_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_WRITTEN_EVERY", 0.1)
    path = tmp_path / "s.sqlite3"
    times: list[float] = []
    with serving(Settings(store=f"sqlite:///{path}")) as base:
        _until(base, 200, [])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert _until(base, 503, times).error["code"] == "store_unavailable"
            for _ in range(20):
                _until(base, 503, times)
            other.execute("ROLLBACK")
        _until(base, 200, times)
    print(f"/readyz: median {statistics.median(times) * 1000:.1f} ms, longest {max(times) * 1000:.1f} ms")
    assert statistics.quantiles(times, n=20)[-1] < AT_MOST


def test_s8_what_a_probe_writes_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_WRITTEN_EVERY", 0.0)
    path = tmp_path / "s.sqlite3"
    with serving(Settings(store=f"sqlite:///{path}")) as base:
        _until(base, 200, [])
    with closing(sqlite3.connect(path)) as database:
        for table in ("responses", "response_frames", "response_pieces"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
