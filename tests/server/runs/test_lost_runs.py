"""A run that another worker has settled while it went on: its client is sent the end that all others get."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from openresponses_server.runs.settle import Settler
from openresponses_server.settings import Settings
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.stores import open_store
from tests.support.serving import call, respond, serving, violations
from tests.support.workers import Reader, type_of


class Two(Struct):
    """A server, and the store under which another worker settles."""

    base: str
    file: Path

    def running(self) -> str:
        """The id of the one run that there is."""
        while True:
            rows = []
            with closing(sqlite3.connect(self.file)) as database, suppress(sqlite3.OperationalError):
                # no tables yet
                rows = database.execute("SELECT id FROM responses WHERE lease_until IS NOT NULL").fetchall()
            if rows:
                ((response_id,),) = rows
                return str(response_id)
            time.sleep(0.02)

    def settle(self) -> str:
        """Take the run that there is from the server, and settle it; its id."""
        response_id = self.running()

        async def work() -> None:
            store = open_store(f"sqlite:///{self.file}")
            await store.now()
            with closing(sqlite3.connect(self.file, timeout=60)) as database, database:
                database.execute("UPDATE responses SET lease_worker = 'other' WHERE lease_until IS NOT NULL")
            record = await store.get(response_id)
            assert record is not None
            await Settler(store, MemoryLog(), 5.0).end(record, "other")
            await store.close()

        asyncio.run(work())
        return response_id


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    file = tmp_path / "sessions.sqlite3"
    with serving(Settings(store=f"sqlite:///{file}", checkpoint_interval=0.2, lease=1.0)) as base:
        yield Two(base, file)


def kept_end(two: Two, response_id: str) -> dict[str, Any]:
    response: dict[str, Any] = call(two.base, "GET", f"/v1/responses/{response_id}").json
    assert response["error"]["code"] == "response_interrupted"
    return response


def test_s1_stream_of_a_lost_run_ends_as_the_store_has_it(two: Two) -> None:
    body = {"model": "demo-slow", "input": "400 words", "stream": True}
    reader = Reader(two.base, "POST", "/v1/responses", body)
    while len(reader.frames) < 8:
        time.sleep(0.02)
    response_id = two.settle()
    reader.join()
    assert reader.done
    response = kept_end(two, response_id)
    types = [type_of(each) for each in reader.events.values()]
    assert types.count("response.failed") == 1
    assert "error" not in types
    assert json.loads(reader.frames[-2].split(b"data: ", 1)[1])["response"] == response
    last = max(reader.events)
    assert sorted(reader.events) == list(range(last + 1))
    again = call(two.base, "GET", f"/v1/responses/{response_id}?stream=true")
    assert violations(again) == []


def test_s1_whole_answer_of_a_lost_run_fails_as_the_store_has_it(two: Two, tmp_path: Path) -> None:
    reader = Reader(two.base, "POST", "/v1/responses", {"model": "demo-slow", "input": "400 words"})
    response_id = two.settle()
    reader.join()
    error = json.loads(reader.data)["error"]
    response = kept_end(two, response_id)
    assert (error["code"], error["message"]) == (response["error"]["code"], response["error"]["message"])
    assert respond(two.base, model="demo").json["status"] == "completed"


def test_deleted_response_is_reported_as_lost(two: Two) -> None:
    body = {"model": "demo-slow", "input": "400 words", "stream": True}
    reader = Reader(two.base, "POST", "/v1/responses", body)
    assert call(two.base, "DELETE", f"/v1/responses/{two.running()}").status == 200
    reader.join()
    assert b'"code":"response_lost"' in reader.frames[-2]
