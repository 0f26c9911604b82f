"""Law S1 if the event log's folder can't be used: events are stored before they are sent, so that a killed
worker loses none of them, and the server reports the fault."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.crashes import check_one_end, start_streams, wait_until_settled
from tests.support.mounts import make_read_only, mounted
from tests.support.serving import call
from tests.support.waiting import wait_until
from tests.support.workers import Reader, working

SAID = "The event log can't be written."


@pytest.fixture(params=["read-only", "another user's", "another user's file"])
def unusable(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder for the log, and its fault."""
    with ExitStack() as stack:
        if request.param == "read-only":
            disk = stack.enter_context(mounted(tmp_path / "disk"))
            folder = disk / "logs"
            for each in (folder, folder / "events"):
                each.mkdir(mode=0o700)
            make_read_only(disk)
        else:
            folder = tmp_path / "logs"
            if os.geteuid():
                pytest.skip("only root can give a folder away")
            if request.param == "another user's":
                folder.mkdir(mode=0o700)
            else:
                folder.write_bytes(b"")
            os.chown(folder, 12345, 12345)
        yield folder


def test_s1_what_was_sent_without_a_log_is_there_after_a_kill(unusable: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    with working(tmp_path, store, f"file://{unusable}") as worker:
        wait_until(lambda: call(worker.base, "GET", "/readyz").json.get("event_log") == SAID)
        readers = start_streams(worker.base, 4, words=200)
        wait_until(lambda: all(len(reader.events) > 20 for reader in readers))
        worker.kill()
    for reader in readers:
        reader.join()
    with working(tmp_path, store) as worker:
        wait_until_settled(worker.base, [str(reader.response_id) for reader in readers])
        for reader in readers:
            whole = Reader(worker.base, "GET", f"/v1/responses/{reader.response_id}?stream=true")
            whole.join()
            check_one_end(whole)
            assert reader.events.items() <= whole.events.items(), "what was sent is gone"
