"""Responses are kept for as long as the settings say, and no longer."""

import time
from pathlib import Path

import pytest

from server.settings import Settings, SettingsError, load_settings, seconds_of
from tests.support.serving import call, respond, serving


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("90m", 5400), ("12h", 43200), ("30d", 2592000), ("forever", None)]
)
def test_durations(text: str, seconds: float | None) -> None:
    assert seconds_of(load_settings(retention=text).retention) == seconds


@pytest.mark.parametrize("text", ["30", "d", "-1d", "1.5h", "30 days", ""])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="retention"):
        load_settings(retention=text)


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
