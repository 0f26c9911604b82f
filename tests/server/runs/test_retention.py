"""Responses are kept for as long as the settings say, and no longer."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from openresponses_server.runs.support import RunSupport
from openresponses_server.settings import Settings, SettingsError, load_settings, seconds_of
from openresponses_server.store.memory import MemoryStore
from tests.support.serving import call, respond, serving
from tests.support.sockets import opened_socket
from tests.support.stores import record


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("90m", 5400), ("12h", 43200), ("30d", 2592000), ("forever", None)]
)
def test_durations(text: str, seconds: float | None) -> None:
    assert seconds_of(load_settings(retention=text).retention) == seconds


@pytest.mark.parametrize("text", ["30", "d", "-1d", "1.5h", "30 days", ""])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="retention"):
        load_settings(retention=text)


def test_expired_response_is_gone_at_once_and_soon_from_the_disk(tmp_path: Path) -> None:
    file = tmp_path / "sessions.sqlite3"
    with serving(Settings(store=f"sqlite:///{file}", retention="1s", lease=1.0)) as base:
        response_id = respond(base, model="demo").json["id"]
        path = f"/v1/responses/{response_id}"
        while call(base, "GET", path).status == 200:
            time.sleep(0.05)
        assert call(base, "GET", f"{path}?stream=true").status == 404
        assert call(base, "GET", f"{path}/input_items").status == 404
        assert call(base, "POST", f"{path}/cancel").status == 404
        refused = respond(base, model="demo", previous_response_id=response_id)
        assert refused.error["code"] == "previous_response_not_found"
        with closing(sqlite3.connect(file)) as connection:
            while connection.execute("SELECT 1 FROM responses WHERE id = ?", (response_id,)).fetchone():
                time.sleep(0.05)


def test_prewarmed_response_expires_too() -> None:
    with serving(Settings(retention="1s", lease=1.0)) as base:
        with opened_socket(base) as socket:
            path = f"/v1/responses/{socket.turn(input='Rules', generate=False).final['id']}"
        while call(base, "GET", path).status == 200:
            time.sleep(0.05)


async def test_what_expired_goes_even_if_a_run_cannot_be_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await store.put(record("gone", expires_at=time.time() - 1))
    runs = RunSupport(Settings(), store)

    async def fail() -> int:
        raise RuntimeError("a defect")

    monkeypatch.setattr(runs.settler, "sweep", fail)
    await runs._maintain()
    assert [line async for line in store.export()] == []


def test_expired_responses_are_swept(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    with serving(Settings(store=store, retention="1s")) as base:
        short = respond(base, model="demo").json["id"]
    with serving(Settings(store=store)) as base:
        long = respond(base, model="demo").json["id"]
    time.sleep(1.0)
    with serving(Settings(store=store)) as base:
        assert call(base, "GET", f"/v1/responses/{short}").status == 404
        assert call(base, "GET", f"/v1/responses/{long}").status == 200


async def test_a_clock_that_is_set_back_does_not_stop_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[float] = []

    class Store(MemoryStore):
        async def sweep(self, now: float) -> int:
            swept.append(now)
            return await super().sweep(now)

    wall, running = [2e9], [5.0]  # a machine that has just started
    clock = SimpleNamespace(time=lambda: wall[0], monotonic=lambda: running[0])
    monkeypatch.setattr("openresponses_server.runs.support.time", clock)
    support = RunSupport(Settings(store="memory:"), Store())
    for _ in range(3):
        await support._remove_expired()
    wall[0] -= 1e6
    running[0] += 301.0
    for _ in range(3):
        await support._remove_expired()
    assert swept == [2e9, 2e9 - 1e6]
