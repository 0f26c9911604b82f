"""A response in the background that asks to be made again whenever its worker stops. What a worker that is
killed leaves is a copy of its database from the middle of the run; `tests/faults/test_made_again.py` kills
workers for the same."""

import time
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.crashes import left_by
from tests.support.serving import Reply, call, serving, violations, wait_for
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, text
from tests.support.waiting import wait_until
from tests.support.workers import Reader, type_of

BEGINNING = ["response.created", "response.in_progress"]
RESTARTED = "openresponses-bridge:restarted"
HALF = [chunk(role="assistant", content="Half"), chunk(content=" of it")]


@pytest.mark.parametrize("asked", ["by the request", "by the config"])
def test_s1_response_that_is_withheld_is_made_again_whatever_was_made(
    upstream: ScriptedUpstream, tmp_path: Path, asked: str
) -> None:
    """Its workers stop in the middle of its words, twice; nobody sees any of them before its end."""
    upstream.scripts["m"] = [Script([*HALF, HANG]), Script([*HALF, HANG]), Script(text("Hello", " there"))]
    requested = {"openresponses-bridge:restart": "always"} if asked == "by the request" else {}
    body = {"model": "m", "input": "x", "background": True, "stream": True, **requested}
    database = tmp_path / "sessions.sqlite3"

    def settings() -> Settings:
        return Settings(
            upstreams=[UpstreamSettings(url=upstream.url)],
            store=f"sqlite:///{database}",
            checkpoint_interval=0.05,
            lease=1.0,
            background_restart="unseen" if requested else "always",
        )

    def half_made(attempt: int) -> bool:
        return len(upstream.received) == attempt and upstream.last("m").sent == sum(map(len, HALF))

    with serving(settings()) as base:
        reader = Reader(base, "POST", "/v1/responses", body)
        wait_until(lambda: len(reader.frames) == 2 and half_made(1))
        response_id = str(reader.response_id)
        time.sleep(0.2)  # several checkpoints
        polled = call(base, "GET", f"/v1/responses/{response_id}").json
        assert (polled["status"], polled["output"], polled["usage"]) == ("in_progress", [], None)
        database = left_by(base, response_id, database, 1)
    with serving(settings()) as base:
        wait_until(lambda: half_made(2))
        time.sleep(0.2)
        database = left_by(base, response_id, database, 2)
    with serving(settings()) as base:
        rest = Reader(base, "GET", f"/v1/responses/{response_id}?stream=true&starting_after=1")
        final = wait_for(base, response_id, "completed")
        rest.join()
        whole = call(base, "GET", f"/v1/responses/{response_id}?stream=true")
    check(whole, final)
    seen = [type_of(each) for each in list(reader.events.values())[:2]]
    assert seen == BEGINNING
    assert list(rest.events) == list(range(2, len(whole.events)))
    assert len(upstream.received) == 3


def check(whole: Reply, final: dict[str, Any]) -> None:
    """The stream of the third making, of which the two before are said, and of them no word."""
    assert violations(whole) == []
    assert whole.final == final
    assert [part["text"] for part in final["output"][0]["content"]] == ["Hello there"]
    assert whole.types[:4] == [*BEGINNING, RESTARTED, RESTARTED]
    assert [event["attempt"] for event in whole.events[2:4]] == [2, 3]
    assert b"Half" not in whole.body
