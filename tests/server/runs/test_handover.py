"""What waits in a process that is to leave is given to others (law S8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from openresponses_server.settings import Settings
from tests.support.in_process import InProcess
from tests.support.waiting import wait_until

SLOW = {"model": "demo-slow", "input": "400 words", "background": True}


@pytest.mark.parametrize("store", ["sqlite", "memory"])
def test_s8_what_is_stored_while_its_server_leaves_is_made_by_the_next(tmp_path: Path, store: str) -> None:
    """It was accepted, and was not yet among those that waited. A store in memory has no other server."""
    url = f"sqlite:///{tmp_path}/sessions.sqlite3" if store == "sqlite" else "memory://"
    leaving = InProcess(Settings(store=url, default_model="demo"))
    service = leaving.app.state.service
    leaving.run(service.runs.stop_claiming(service.running))
    queued = leaving.call("POST", "/v1/responses", SLOW).json
    assert queued["status"] == "queued"
    leaving.call("GET", "/healthz")
    assert len(service.running) == (0 if store == "sqlite" else 1)
    if store == "memory":
        leaving.call("POST", f"/v1/responses/{queued['id']}/cancel")
        return leaving.close()
    other = InProcess(Settings(store=url, default_model="demo", lease=1.0))
    target = f"/v1/responses/{queued['id']}"
    wait_until(lambda: other.call("GET", target).json["status"] != "queued")
    other.call("POST", f"{target}/cancel")
    other.close()
    leaving.close()
