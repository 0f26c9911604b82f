"""Law S7: whose a response is, who may ask, and that no key gets anywhere else."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.settings import Settings, SettingsError, UpstreamSettings, load_settings
from openresponses_server.settings.files import hashed
from tests.support.serving import call, ready, respond, serving
from tests.support.upstream import Script, ScriptedUpstream, refusal, text

ALICE = {"authorization": "Bearer key-of-alice"}
BOB = {"x-api-key": "key-of-bob"}


@pytest.fixture(scope="module")
def keyed() -> Iterator[str]:
    with serving(Settings(api_keys=[hashed("key-of-alice"), hashed("key-of-bob")])) as base:
        yield base


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic key-of-alice"},
        {"authorization": "Bearer "},
        {"x-api-key": "wrong"},
        {"authorization": f"Bearer {hashed('key-of-alice')}"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages", "/v1/models"])
def test_s7_without_a_known_key_it_is_401(keyed: str, headers: dict[str, str], path: str) -> None:
    reply = call(keyed, "POST" if path != "/v1/models" else "GET", path, {"model": "demo"}, headers)
    assert reply.status == 401
    assert reply.error["type"] == "authentication_error"
    assert reply.headers["www-authenticate"] == "Bearer"
    assert b"wrong" not in reply.body
    assert b"alice" not in reply.body


def test_s7_either_header_is_taken(keyed: str) -> None:
    for headers in (ALICE, BOB):
        assert respond(keyed, headers, model="demo").status == 200


def test_s7_another_key_s_response_is_not_found(keyed: str) -> None:
    response_id = respond(keyed, ALICE, model="demo").json["id"]
    path = f"/v1/responses/{response_id}"
    assert call(keyed, "GET", path, headers=ALICE).status == 200
    for method, below in (
        ("GET", ""),
        ("GET", "?stream=true&starting_after=0"),
        ("GET", "/input_items"),
        ("POST", "/cancel"),
        ("DELETE", ""),
    ):
        reply = call(keyed, method, path + below, headers=BOB)
        assert (reply.status, reply.error["code"]) == (404, "response_not_found"), below
        guessed = call(keyed, method, "/v1/responses/resp_guessed" + below, headers=BOB)
        assert (guessed.status, guessed.error["code"]) == (404, "response_not_found"), below
    chained = respond(keyed, BOB, model="demo", previous_response_id=response_id)
    assert (chained.status, chained.error["code"]) == (400, "previous_response_not_found")
    assert respond(keyed, ALICE, model="demo", previous_response_id=response_id).status == 200
    assert call(keyed, "DELETE", path, headers=ALICE).status == 200


def test_health_asks_for_no_key_and_metrics_do(keyed: str) -> None:
    assert call(keyed, "GET", "/healthz").status == 200
    assert ready(keyed).json["status"] == "ready"
    assert call(keyed, "GET", "/metrics").status == 401


def test_keys_come_from_the_file_or_the_environment_and_are_kept_as_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "one")
    path = tmp_path / "bridge.toml"
    path.write_text(f'api_keys = ["${{THE_KEY}}", "{hashed("two")}"]')
    assert load_settings(path).api_keys == [hashed("one"), hashed("two")]
    monkeypatch.setenv("OPENRESPONSES_BRIDGE_API_KEYS", "three, four")
    assert load_settings().api_keys == [hashed("three"), hashed("four")]
    assert load_settings(path).api_keys == [hashed("one"), hashed("two")]


def test_an_upstream_s_key_goes_out_in_its_header_and_nowhere_else(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "s3cret")
    headers = {"authorization": "Bearer s3cret"}, {"x-api-key": "s3cret"}
    for dialect, expected in zip(("chat", "anthropic"), headers, strict=True):
        upstream_settings = UpstreamSettings(url=upstream.url, dialect=dialect, api_key="${UPSTREAM_KEY}")
        settings = Settings(upstreams=[upstream_settings])
        assert "s3cret" not in repr(settings)
        upstream.scripts["m"] = refusal(400, message="Wrong key s3cret given")
        with serving(settings) as base:
            reply = respond(base, model="m")
        assert expected.items() <= upstream.last("m").headers.items()
        assert reply.error["message"] == "Wrong key [key] given"


def test_pass_through_sends_the_client_s_key(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "fallback")
    upstream_settings = UpstreamSettings(url=upstream.url, pass_through=True, api_key_env="UPSTREAM_KEY")
    upstream.scripts["m"] = Script(text("a"))
    with serving(Settings(upstreams=[upstream_settings])) as base:
        respond(base, BOB, model="m")
        assert upstream.last("m").headers["authorization"] == "Bearer key-of-bob"
        respond(base, model="m")
        assert upstream.last("m").headers["authorization"] == "Bearer fallback"


PROXIED = {"x-forwarded-for": "192.0.2.1"}


def test_s7_a_key_that_nobody_has_checked_reaches_only_upstreams_that_check_it(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy stands before the server: the key may be made up, and there may be none."""
    monkeypatch.setenv("UPSTREAM_KEY", "operators-own")
    at = partial(UpstreamSettings, url=upstream.url)
    upstreams = [
        at(name="t", models=["t", "both"], pass_through=True, api_key_env="UPSTREAM_KEY"),
        at(name="own", models=["own", "both"], api_key_env="UPSTREAM_KEY"),
        at(name="other", models=["falls-over"], api_key_env="UPSTREAM_KEY", failover=["t"]),
        at(name="header", models=["header"], headers={"authorization": "Bearer ${UPSTREAM_KEY}"}),
        at(name="open", models=["open"]),
        at(name="sent", models=["sent"], pass_through=True),
    ]
    bodies: dict[str, dict[str, Any]] = {
        "/v1/responses": {"input": "x"},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
        "/v1/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}]},
        "/v1/embeddings": {"input": "x"},
        "/v1/responses/compact": {"input": "x"},
        "/v1/responses/input_tokens": {"input": "x"},
        "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "x"}]},
    }
    with serving(Settings(upstreams=upstreams)) as base:
        for path, body in bodies.items():
            for model in ("own", "header", "open"):
                for key in (BOB, {}):
                    refused = call(base, "POST", path, {"model": model, **body}, PROXIED | key)
                    assert refused.status == 403, (path, model)
                    assert "set `api_keys`" in refused.error["message"]
            refused = call(base, "POST", path, {"model": "t", **body}, PROXIED)
            assert refused.status == 401, path
        assert upstream.received == []
        # the client's own key, and nothing else
        for model in ("t", "both", "falls-over", "sent"):
            assert respond(base, BOB | PROXIED, model=model).status == 200
            assert upstream.received[-1].headers["authorization"] == "Bearer key-of-bob"
        upstream.scripts["both"] = refusal(503, message="Busy")
        before = len(upstream.received)
        assert respond(base, BOB | PROXIED, model="both").status == 503
        assert {each.headers["authorization"] for each in upstream.received[before:]} == {"Bearer key-of-bob"}
        assert respond(base, PROXIED, model="sent").status == 200
        assert "authorization" not in upstream.received[-1].headers
        # this machine has one user
        for key in (BOB, {}):
            assert respond(base, key, model="own").status == 200
            assert upstream.received[-1].headers["authorization"] == "Bearer operators-own"


def test_pass_through_and_own_keys_exclude_each_other() -> None:
    from openresponses_server.api.app import create_app

    upstream = UpstreamSettings(url="http://x", name="open", pass_through=True)
    with pytest.raises(SettingsError, match="upstream open: pass_through and api_keys"):
        create_app(Settings(upstreams=[upstream], api_keys=[hashed("k")]))
