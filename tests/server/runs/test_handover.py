"""What waits in a process that is to leave is given to others (law S8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from openresponses_server.settings import Limits, Settings, UpstreamSettings
from tests.support.in_process import InProcess
from tests.support.upstream import Script, ScriptedUpstream
from tests.support.waiting import NEVER, wait_until

SLOW = {"model": "demo-slow", "input": "400 words", "background": True}


@pytest.mark.parametrize("store", ["sqlite", "memory"])
def test_s8_what_is_stored_while_its_server_leaves_is_made_by_the_next(tmp_path: Path, store: str) -> None:
    """It was accepted, and was not yet among those that waited. A store in memory has no other server."""
    url = f"sqlite:///{tmp_path}/sessions.sqlite3" if store == "sqlite" else "memory://"
    leaving = InProcess(Settings(store=url, default_model="demo", lease=NEVER))
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


def test_s8_what_waits_for_a_slot_is_made_by_the_next(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """It leaves at once; what is being made stays until it ends."""
    upstream.scripts["slow"] = Script(["for ever"])
    url = f"sqlite:///{tmp_path}/sessions.sqlite3"
    upstreams = [UpstreamSettings(url=upstream.url)]
    leaving = InProcess(Settings(store=url, upstreams=upstreams, limits=Limits(concurrent=1)))
    service = leaving.app.state.service
    body = {"model": "slow", "input": "x", "background": True}
    targets = [f"/v1/responses/{leaving.call('POST', '/v1/responses', body).json['id']}" for _ in range(2)]
    wait_until(lambda: leaving.call("GET", targets[0]).json["status"] == "in_progress")
    leaving.run(service.runs.stop_claiming(service.running))
    left = [service.running.find(target.rpartition("/")[2]) for target in targets]
    assert [run is not None for run in left] == [True, False]
    other = InProcess(Settings(store=url, upstreams=upstreams, lease=1.0))
    wait_until(lambda: other.call("GET", targets[1]).json["status"] == "in_progress")
    for process, target in zip((leaving, other), targets, strict=True):
        process.call("POST", f"{target}/cancel")
        process.close()
