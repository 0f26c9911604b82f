"""Law S1 on a real file system that is full: it contains the store and the event log of one server."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.crashes import wait_until_settled
from tests.support.mounts import mounted
from tests.support.serving import call, respond, violations
from tests.support.workers import CONFIG, Reader, slow_stream, type_of, working

ENDS = {"response.completed", "response.failed"}
LOGS = pytest.mark.parametrize("log", ["file:", "file:?fsync=0.05"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as disk:
        yield disk


def fill(disk: Path) -> Path:
    file = disk / "filler"
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(os.urandom(4096))
    return file


def begin(base: str) -> list[Reader]:
    return [slow_stream(base, 60) for _ in range(6)]


def check_ends(base: str, readers: list[Reader]) -> None:
    """Each client got one end, and the events that it got are the stored ones."""
    for reader in readers:
        reader.join()
        assert [type_of(each) for each in reader.frames if type_of(each) in ENDS] == [
            type_of(reader.frames[-2])
        ]
    ids = [str(reader.response_id) for reader in readers]
    wait_until_settled(base, ids)
    for reader, response_id in zip(readers, ids, strict=True):
        whole = call(base, "GET", f"/v1/responses/{response_id}?stream=true")
        assert violations(whole) == []
        assert whole.body == b"".join(reader.frames)


@LOGS
def test_s1_streams_on_a_disk_that_gets_full_are_stored_as_they_were_read(
    disk: Path, tmp_path: Path, log: str
) -> None:
    with working(tmp_path, f"sqlite:///{disk}/s.sqlite3", log, config=CONFIG) as worker:
        before = respond(worker.base, model="demo", input="Hello").json
        readers = begin(worker.base)
        filler = fill(disk)
        refused = respond(worker.base, model="demo", instructions="x" * 40_000)
        assert (refused.status, refused.error["code"]) == (503, "store_full")
        assert call(worker.base, "GET", f"/v1/responses/{before['id']}").json == before
        filler.unlink()
        check_ends(worker.base, readers)
        assert respond(worker.base, model="demo", instructions="x" * 40_000).status == 200


@LOGS
def test_s1_streams_on_a_disk_that_stays_full_fail_with_the_reason(
    disk: Path, tmp_path: Path, log: str
) -> None:
    with working(tmp_path, f"sqlite:///{disk}/s.sqlite3", log, config=CONFIG) as worker:
        readers = begin(worker.base)
        filler = fill(disk)
        for reader in readers:
            reader.join()
            assert type_of(reader.frames[-2]) == "response.failed"
            assert b'"code":"store_full"' in reader.frames[-2]
        filler.unlink()
        check_ends(worker.base, readers)
