"""`/readyz` over slow, locked or silent stores: a monitor's result answers at once."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import structlog

from openresponses_server.settings import Settings
from openresponses_server.store.base import StoreError
from openresponses_server.store.logs.base import LogError
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.readiness import StoreMonitor
from openresponses_server.store.sql import sqlite
from openresponses_server.store.sql import store as probing
from openresponses_server.store.sql.database import Database
from openresponses_server.store.sql.writes import Write
from tests.support.serving import Reply, call, respond, serving
from tests.support.stores import Place
from tests.support.waiting import NEVER, until

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
        assert _shown(monitor) == (StoreError.UNAVAILABLE, "The session store has not answered yet.")
        store.answers.set()
        await until(lambda: monitor.store_outage is None)
        store.answers.clear()
        assert monitor.store_outage is None  # it has the time that it may take
        await until(lambda: monitor.store_outage is not None)
        assert _shown(monitor) == (StoreError.UNAVAILABLE, "The session store does not answer.")


async def test_s8_store_that_has_answered_is_not_out_before_it_is_asked_again() -> None:
    monitor = StoreMonitor(MemoryStore(), MemoryLog(), interval=NEVER, timeout=0.0)
    async with monitor.going():
        await until(lambda: monitor.store_outage is None)


def _shown(monitor: StoreMonitor) -> tuple[str, str]:
    assert monitor.store_outage is not None
    return monitor.store_outage.code, monitor.store_outage.message


class _Unreachable(MemoryLog):
    """A log whose server is out until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.is_out = True

    async def check(self) -> None:
        if self.is_out:
            raise LogError(details="Error 111 connecting to redis.internal:6379.")


async def test_s8_the_address_of_an_event_log_that_is_out_is_logged_and_not_shown_to_a_probe() -> None:
    log = _Unreachable()
    monitor = StoreMonitor(MemoryStore(), log, interval=0.01)
    with structlog.testing.capture_logs() as lines:
        async with monitor.going():
            await monitor.seen()
            assert monitor.log_outage is not None
            assert monitor.log_outage.message == "The event log can't be reached."
            log.is_out = False
            while monitor.log_outage is not None:
                await asyncio.sleep(0.01)
    changed = [line for line in lines if line["event"] == "readiness.changed"]
    assert [line["event_log"] for line in changed] == ["event_log_unavailable", "ready"]
    assert changed[0]["reason"] == (
        "The event log can't be reached: Error 111 connecting to redis.internal:6379."
    )
    assert "reason" not in changed[1]


def _until(base: str, status: int) -> Reply:
    while (reply := call(base, "GET", "/readyz")).status != status:
        time.sleep(0.02)
    return reply


def test_s8_locked_database_is_reported_and_no_probe_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_WRITTEN_EVERY", 0.1)
    path = tmp_path / "s.sqlite3"
    with serving(Settings(store=f"sqlite:///{path}")) as base:
        _until(base, 200)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert _until(base, 503).error["code"] == "store_unavailable"
            for _ in range(20):
                _until(base, 503)
            other.execute("ROLLBACK")
        _until(base, 200)


def test_s8_a_full_disk_is_reported_though_what_is_small_still_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's log has room of its own, which it uses again."""
    free = [2**30]
    monkeypatch.setattr(sqlite, "free_bytes", lambda folder: free[0] if folder == tmp_path else None)
    with serving(Settings(store=f"sqlite:///{tmp_path}/s.sqlite3")) as base:
        _until(base, 200)
        free[0] = 4096
        assert _until(base, 503).error["code"] == "store_full"
        assert respond(base, model="demo").status == 200
        _until(base, 503)
        free[0] = 2**30
        _until(base, 200)


async def test_s8_a_store_has_room_with_a_mebibyte_and_is_full_with_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [2**20]
    monkeypatch.setattr(sqlite, "free_bytes", lambda folder: free[0])
    place = Place(f"sqlite:///{tmp_path}/s.sqlite3")
    store = place.open()
    await store.probe()
    free[0] -= 1
    with pytest.raises(StoreError, match="full"):
        await store.probe()
    await place.close()


async def test_s8_a_probe_writes_now_and_then_and_reads_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_WRITTEN_EVERY", NEVER)
    written = []
    execute = Database.execute

    async def counted(self: Database, write: Write) -> bool:
        written.append(write)
        return await execute(self, write)

    monkeypatch.setattr(Database, "execute", counted)
    place = Place(f"sqlite:///{tmp_path}/s.sqlite3")
    store = place.open()
    for _ in range(3):
        await store.probe()
    assert len(written) == 1
    await place.close()


def test_s8_what_a_probe_writes_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_WRITTEN_EVERY", 0.0)
    path = tmp_path / "s.sqlite3"
    with serving(Settings(store=f"sqlite:///{path}")) as base:
        _until(base, 200)
    with closing(sqlite3.connect(path)) as database:
        for table in ("responses", "response_frames", "response_pieces"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
