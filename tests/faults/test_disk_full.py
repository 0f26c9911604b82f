"""Law S1: the disk under the SQLite store becomes full, and later has room again."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from sqlalchemy import Pool, event

from openresponses_server.settings import Settings
from tests.support.crashes import wait_until_settled
from tests.support.failing_store import store_ends_within
from tests.support.serving import Reply, call, respond, serving, violations
from tests.support.workers import Reader, type_of

BIG = "x" * 40_000  # an update with this text does not fit into the rest of a page
ROOMY = 2**30


class Disk:
    """A limit that SQLite puts on the pages of its file. If the limit is below the present size, the file
    can't grow."""

    def __init__(self) -> None:
        self.pages = ROOMY

    def limit(self, connection: Any, *_: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {self.pages}")

    def fill(self) -> None:
        self.pages = 1

    def make_room(self) -> None:
        self.pages = ROOMY


class Place(Struct):
    """A server and the disk under its store."""

    base: str
    disk: Disk


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A run tries to store its end for half a second here, instead of five."""
    store_ends_within(monkeypatch, 0.5)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    disk = Disk()
    event.listen(Pool, "checkout", disk.limit)
    settings = Settings(store=f"sqlite:///{tmp_path}/s.sqlite3", checkpoint_interval=0.1, lease=1.5)
    try:
        with serving(settings) as base:
            yield Place(base, disk)
    finally:
        event.remove(Pool, "checkout", disk.limit)


def get(base: str, response_id: str) -> Reply:
    return call(base, "GET", f"/v1/responses/{response_id}")


def begin_stream(base: str) -> Reader:
    """Start a run that goes on for two more seconds, and return when a part of it is stored."""
    request = {"model": "demo-slow", "input": "40 words", "instructions": BIG, "stream": True}
    reader = Reader(base, "POST", "/v1/responses", request)
    while len(reader.frames) < 6:
        time.sleep(0.02)
    return reader


def test_s1_what_cannot_be_stored_is_refused_and_nothing_acknowledged_is_lost(place: Place) -> None:
    acknowledged = [respond(place.base, model="demo", input=f"Hello {n}").json for n in range(4)]
    place.disk.fill()
    for model in ("demo", "demo-slow"):  # the first read of the second stream is its last
        for how in ({}, {"stream": True}, {"background": True}):
            refused = respond(place.base, model=model, instructions=BIG, **how)
            assert (refused.status, refused.error["code"]) == (503, "store_full"), (model, how)
    assert respond(place.base, model="demo", store=False).json["status"] == "completed"
    for before in acknowledged:
        assert get(place.base, before["id"]).json == before
    place.disk.make_room()
    after = respond(place.base, model="demo", previous_response_id=acknowledged[-1]["id"]).json
    assert after["status"] == "completed"
    assert get(place.base, after["id"]).json == after


def test_s1_run_whose_end_cannot_be_stored_is_reported_as_failed_and_stored_later(place: Place) -> None:
    """The store later has what the client was sent, when there is room again."""
    reader = begin_stream(place.base)
    place.disk.fill()
    reader.join()
    sent = [type_of(each) for each in reader.frames[:-1]]
    assert sent[-2:] == ["error", "response.failed"]
    assert "response.completed" not in sent
    assert b'"code":"store_full"' in reader.frames[-2]
    response_id = str(reader.response_id)
    assert get(place.base, response_id).json["status"] != "completed"
    place.disk.make_room()
    ended = wait_until_settled(place.base, [response_id])[response_id]
    assert (ended["status"], ended["error"]["code"]) == ("failed", "store_full")
    assert ended["output"]
    whole = call(place.base, "GET", f"/v1/responses/{response_id}?stream=true")
    assert violations(whole) == []
    assert whole.body == b"".join(reader.frames)


def test_s1_run_that_finds_room_before_its_end_completes(place: Place) -> None:
    """Checkpoints that failed are made later: no event is missing."""
    reader = begin_stream(place.base)
    place.disk.fill()
    assert respond(place.base, model="demo", instructions=BIG).status == 503
    place.disk.make_room()
    reader.join()
    assert type_of(reader.frames[-2]) == "response.completed"
    whole = call(place.base, "GET", f"/v1/responses/{reader.response_id}?stream=true")
    assert violations(whole) == []
    assert whole.body == b"".join(reader.frames)


def test_s8_server_that_can_store_nothing_is_not_ready_until_there_is_room(place: Place) -> None:
    def until(status: int) -> Reply:
        while (reply := call(place.base, "GET", "/readyz")).status != status:
            time.sleep(0.05)
        return reply

    until(200)
    place.disk.fill()
    assert respond(place.base, model="demo", instructions=BIG).status == 503
    assert until(503).error["code"] == "store_full"
    time.sleep(1.5)  # space that a check has freed does not make the store ready again
    assert call(place.base, "GET", "/readyz").status == 503
    place.disk.make_room()
    until(200)
    assert respond(place.base, model="demo", instructions=BIG).status == 200
