"""Headers with an id of the session: one for each conversation of each key, on every worker."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.settings import Retries, Settings, SettingsError, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.upstreams.sessions import SessionHeaders
from tests.support.in_process import InProcess
from tests.support.upstream import Script, ScriptedUpstream, refusal, text

KEYS = {"alice": "key-of-alice-0123456789", "bob": "key-of-bob-0123456789"}
HEADERS = {"X-Example-Session": "ses_{session}"}
SEALING = base64.b64encode(b"s" * 32).decode()


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as running:
        running.scripts = {"m": Script(text("Hello"))}
        yield running


def worker(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch, sealing: str = SEALING, **more: Any
) -> InProcess:
    monkeypatch.setenv("SEALING_KEYS", sealing)
    settings = UpstreamSettings(
        url=upstream.url, name="one", session_headers=HEADERS, retries=Retries(times=1, first_wait=0.01)
    )
    keys = [hashed(key) for key in KEYS.values()]
    return InProcess(Settings(upstreams=[settings], api_keys=keys, sealing_key_env="SEALING_KEYS", **more))


def sent(
    app: InProcess, upstream: ScriptedUpstream, who: str, headers: dict[str, str] | None = None, **body: Any
) -> tuple[str, str]:
    """Return the header that the upstream got, and the response's id."""
    fields = {"authorization": f"Bearer {KEYS[who]}", **(headers or {})}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]
    reply = app.call("POST", "/v1/responses", {"model": "m", "input": "Hi", **body}, raw)
    assert reply.status == 200, reply.json
    return upstream.last("m").headers["x-example-session"], reply.json["id"]


NAMED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "prompt_cache_key": ({"prompt_cache_key": "secret-name"}, {}),
    "a header": ({}, {"session_id": "secret-name"}),
    "a conversation": ({}, {"openresponses-conversation": "secret-name"}),
    "a user": ({"user": "user_1_session_00001111"}, {}),
    "control characters": ({"prompt_cache_key": "a\r\nx-evil: 1\x00\ud83d\ude00"}, {}),
    "no ASCII": ({}, {"session_id": "\xff\xfe"}),
}


@pytest.mark.parametrize("how", NAMED)
def test_a_named_session_has_one_id_on_each_worker_and_each_key_its_own(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    body, headers = NAMED[how]
    first, second = worker(upstream, monkeypatch), worker(upstream, monkeypatch)
    try:
        ids = [sent(each, upstream, "alice", headers, **body)[0] for each in (first, first, second)]
        assert len(set(ids)) == 1
        assert ids[0].startswith("ses_")
        assert len(ids[0]) == 36
        assert "secret" not in ids[0]
        assert "x-evil" not in upstream.last("m").headers
        assert sent(first, upstream, "bob", headers, **body)[0] != ids[0]
    finally:
        first.close()
        second.close()


def test_a_chain_of_responses_has_one_id_from_its_first_turn(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    app = worker(upstream, monkeypatch, store=store)
    try:
        first, previous = sent(app, upstream, "alice")
        second, previous = sent(app, upstream, "alice", previous_response_id=previous)
        other, _ = sent(app, upstream, "alice")
    finally:
        app.close()
    restarted = worker(upstream, monkeypatch, store=store)
    try:
        third, _ = sent(restarted, upstream, "alice", previous_response_id=previous)
    finally:
        restarted.close()
    assert first == second == third != other


def test_a_retry_keeps_the_id(upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream.scripts = {"m": [refusal(503), Script(text("Hello")), Script(text("Hello"))]}
    app = worker(upstream, monkeypatch)
    try:
        sent(app, upstream, "alice")
    finally:
        app.close()
    assert len({each.headers["x-example-session"] for each in upstream.received}) == 1
    assert len(upstream.received) == 2


def test_an_id_is_of_one_server_key_and_one_upstream() -> None:
    def value(upstream: str, key: bytes, session: str) -> str:
        return SessionHeaders(upstream, {"x-s": "{session}"}, lambda: [key]).of(session)["x-s"]

    cases = [("a", b"k", "s"), ("a", b"l", "s"), ("b", b"k", "s"), ("a", b"k", "t"), ("a\0s", b"k", "")]
    assert len({value(*each) for each in cases}) == len(cases)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"x-s": "fixed"}, "{session} once"),
        ({"x-s": "{session}{session}"}, "{session} once"),
        ({"x-s": "{session}\r\nx-evil: 1"}, "visible ASCII characters"),
        ({"x-s": "{session}\x00"}, "visible ASCII characters"),
        ({"x-s": " {session}"}, "visible ASCII characters"),
        ({"x-s": "é{session}"}, "visible ASCII characters"),
        ({"x-s": "{session}" + "a" * 200}, "visible ASCII characters"),
        ({"x s": "{session}"}, "can't be the name of a header"),
        ({"x-s\n": "{session}"}, "can't be the name of a header"),
        ({"": "{session}"}, "can't be the name of a header"),
        ({"Authorization": "{session}"}, "has a value already"),
        ({"Content-Length": "{session}"}, "has a value already"),
        ({"x-own": "{session}"}, "has a value already"),
        ({"api-key": "{session}"}, "has a value already"),
        ({"x-s": "{session}", "X-S": "{session}"}, "has a value already"),
    ],
)
def test_a_template_that_can_t_be_sent_is_refused_at_the_start(headers: dict[str, str], said: str) -> None:
    settings = UpstreamSettings(
        url="http://127.0.0.1:9", headers={"X-Own": "1"}, api_key_header="api-key", session_headers=headers
    )
    with pytest.raises(SettingsError) as caught:
        InProcess(Settings(upstreams=[settings]))
    assert said in caught.value.message


def test_a_profile_has_headers_and_the_settings_replace_them(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEALING_KEYS", SEALING)
    (tmp_path / "own.toml").write_text(
        'title = "Own"\ndialect = "chat"\nsession_headers = { x-profile = "{session}" }\n'
        f'[dialects.chat]\nurl = "{upstream.url}"\n'
    )
    for more, there in (({}, "x-profile"), ({"session_headers": HEADERS}, "x-example-session")):
        settings = UpstreamSettings(profile="own", **more)  # type: ignore[arg-type]
        app = InProcess(
            Settings(upstreams=[settings], profiles=str(tmp_path), sealing_key_env="SEALING_KEYS")
        )
        try:
            app.call("POST", "/v1/responses", {"model": "m", "input": "Hi"})
        finally:
            app.close()
        names = {"x-profile", "x-example-session"} & set(upstream.last("m").headers)
        assert names == {there}
