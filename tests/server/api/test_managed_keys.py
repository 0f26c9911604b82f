"""Keys that `openresponses-bridge keys` manages while a server runs (law S7)."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from websockets.sync.client import connect

from openresponses_cli.commands.cli import main
from openresponses_server.api.app import create_app
from openresponses_server.settings import Limits, Price, Settings, SettingsError, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.documents import blocks_of, commands_of
from tests.support.managed_keys import Managed
from tests.support.quotas import used
from tests.support.serving import call, respond, serving
from tests.support.upstream import ScriptedUpstream
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    store = f"sqlite:///{tmp_path_factory.mktemp('keys')}/s.sqlite3"
    settings = Settings(store=store, managed_keys=True, api_keys=[hashed("configured")])
    with serving(settings) as base:
        yield Managed(base, store)


def test_s7_a_key_is_accepted_while_the_server_runs_until_it_is_revoked(managed: Managed) -> None:
    key_id, headers = managed.add("--name", "laptop", "--owner", "alice")
    managed.becomes(headers, 200)
    response_id = respond(managed.base, headers, model="demo").json["id"]
    _, second = managed.add("--owner", "alice")
    _, other = managed.add()
    for each, status in ((second, 200), (other, 404), ({"x-api-key": "configured"}, 404)):
        managed.becomes(each, 200)
        assert call(managed.base, "GET", f"/v1/responses/{response_id}", headers=each).status == status
    assert managed.keys("revoke", key_id).output == f"{key_id} revoked\n"
    refused = managed.becomes(headers, 401)
    unknown = call(managed.base, "GET", "/v1/models", headers={"authorization": "Bearer orb_unknown"})
    assert refused.json == unknown.json
    assert call(managed.base, "GET", f"/v1/responses/{response_id}", headers=second).status == 200
    assert call(managed.base, "GET", "/v1/models").status == 401


def test_the_list_never_has_a_key(managed: Managed) -> None:
    key_id, headers = managed.add(
        "--name", "of a\x7fb"[:4], "--owner", "list", "--requests", "9", "--model", "demo"
    )
    key = headers["authorization"].split()[1]
    listed = managed.keys("list").output
    assert key_id in listed
    assert f"…{key[-4:]}  live" in listed
    assert "requests_per_minute=9  models=demo" in listed
    assert key not in listed
    (shown,) = [
        each
        for each in map(json.loads, managed.keys("list", "--json").output.splitlines())
        if each["id"] == key_id
    ]
    assert key[-4:] == shown["last_four"]
    assert "hash" not in shown
    assert "no key has the id 'key_0'" in managed.keys("revoke", key_id, "key_0").output
    assert "live" in next(line for line in managed.keys("list").output.splitlines() if key_id in line)


def test_limits_are_changed_while_the_server_runs(managed: Managed) -> None:
    key_id, headers = managed.add("--requests", "1")
    managed.becomes(headers, 200)
    first = respond(managed.base, headers, model="demo", store=False)
    assert (first.status, first.headers["x-ratelimit-limit-requests"]) == (200, "1")
    over = respond(managed.base, headers, model="demo", store=False)
    assert (over.status, over.error["code"]) == (429, "rate_limit_exceeded")
    configured = respond(managed.base, {"x-api-key": "configured"}, model="demo", store=False)
    assert "x-ratelimit-limit-requests" not in configured.headers
    assert managed.keys("limit", key_id, "--requests", "default", "--concurrent", "3").exit_code == 0
    managed.becomes(headers, 200, "/v1/responses", model="demo", input="x", store=False)


@contextmanager
def priced(upstream: ScriptedUpstream, folder: Path, limits: Limits | None = None) -> Iterator[Managed]:
    """A server whose model `m` has a price, of which each response costs four dollars, and `other` none."""
    for model in ("m", "other"):
        upstream.scripts[model] = used(1_000_000, 1_000_000)
    store = f"sqlite:///{folder}/s.sqlite3"
    settings = Settings(
        store=store,
        managed_keys=True,
        upstreams=[UpstreamSettings(url=upstream.url)],
        prices={"m": Price(input=1.0, output=3.0)},
        limits=limits or Limits(),
    )
    with serving(settings) as base:
        yield Managed(base, store)


def test_a_key_has_a_budget_of_its_own_while_the_server_runs(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    with priced(upstream, tmp_path, Limits(usd_per_day_per_key=4.0)) as managed:
        base = managed.base
        key_id, headers = managed.add("--usd-per-day", "9.5")
        _, other = managed.add()
        managed.becomes(other, 200)
        ask = {"model": "m", "input": "x", "store": False}
        path = "/v1/responses"
        statuses = [call(base, "POST", path, ask, headers).status for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        assert [call(base, "POST", path, ask, other).status for _ in range(2)] == [200, 429]
        assert "usd_per_day=9.5" in managed.keys("list").output
        assert "usd_per_day=12.5" in managed.keys("limit", key_id, "--usd-per-day", "12.5").output
        managed.becomes(headers, 200, path, **ask)
        assert call(base, "POST", path, ask, headers).status == 429
        over = managed.becomes(headers, 429, path, **ask)
        assert (over.error["code"], over.error["message"][:41]) == (
            "budget_exceeded",
            "One API key may spend 12.5 US dollars a d",
        )
        assert managed.keys("limit", key_id, "--usd-per-day", "default").exit_code == 0
        wait_until(lambda: "4 US dollars" in call(base, "POST", path, ask, headers).error["message"])
        assert call(base, "POST", path, {**ask, "model": "other"}, headers).error["code"] == (
            "model_without_price"
        )


def test_keys_of_one_owner_share_the_lowest_budget(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with priced(upstream, tmp_path) as managed:
        base = managed.base
        keys = [managed.add("--owner", "alice", "--usd-per-day", dollars)[1] for dollars in ("8", "100")]
        _, free = managed.add()
        managed.becomes(free, 200)
        ask = {"model": "m", "input": "x", "store": False}
        statuses = [call(base, "POST", "/v1/responses", ask, each).status for each in (*keys, *keys, free)]
        assert statuses == [200, 200, 429, 429, 200]


def test_a_budget_is_never_void_without_prices(managed: Managed) -> None:
    _, headers = managed.add("--usd-per-day", "0.000000000001")
    managed.becomes(headers, 200)
    refused = respond(managed.base, headers, model="demo", store=False)
    assert (refused.status, refused.error["code"]) == (400, "model_without_price")
    listed = managed.keys("list", "--json").output
    assert '"usd_per_day":1e-12' in listed
    assert "usd_per_day=0.000000000001" in managed.keys("list").output


def test_a_key_is_for_its_models_on_every_surface(managed: Managed) -> None:
    key_id, headers = managed.add("--model", "demo", "--model", "other-*")
    listed = managed.becomes(headers, 200).json["data"]
    assert {model["id"] for model in listed} == {"demo"}
    message = [{"role": "user", "content": "Hi"}]
    bodies: dict[str, dict[str, Any]] = {
        "/v1/responses": {"input": "Hi"},
        "/v1/chat/completions": {"messages": message},
        "/v1/messages": {"messages": message, "max_tokens": 9},
        "/v1/responses/compact": {"input": [{"role": "user", "content": "Hi"}]},
        "/v1/embeddings": {"input": "Hi"},
    }
    for path, body in bodies.items():
        refused = call(managed.base, "POST", path, {**body, "model": "demo-2"}, headers)
        assert refused.status == 403, path
        assert "demo-2" in refused.error["message"]
    contents = [{"role": "user", "parts": [{"text": "Hi"}]}]
    counted: dict[str, dict[str, Any]] = {
        "/v1/responses/input_tokens": {"input": "Hi"},
        "/v1/messages/count_tokens": {"messages": message},
        "/vscode/v1/tokens": {"text": "Hi"},
        "/inspector/v1/context": {"input": "Hi"},
        "/v1beta/models/{model}:countTokens": {"contents": contents},
        "/v1beta/models/{model}:generateContent": {"contents": contents},
    }
    for path, body in counted.items():
        for model, status in (("demo", 200), ("demo-2", 403), ("other-1", 404)):
            reply = call(managed.base, "POST", path.format(model=model), {**body, "model": model}, headers)
            assert reply.status == status, (path, model)
    assert respond(managed.base, headers, model="demo").status == 200
    assert respond(managed.base, headers).status == 403, "the default model's name is asked for as well"
    assert managed.keys("limit", key_id, "--all-models").exit_code == 0
    managed.becomes(headers, 404, "/v1/responses", model="demo-2", input="Hi", store=False)


def test_an_expired_key_is_not_accepted(managed: Managed) -> None:
    _, headers = managed.add("--expires", "2001-01-31")
    _, later = managed.add("--expires", "1d")
    managed.becomes(later, 200)
    assert call(managed.base, "GET", "/v1/models", headers=headers).status == 401


def test_a_key_that_expires_later_than_any_date_is_listed(managed: Managed, tmp_path: Path) -> None:
    key_id, _ = managed.add("--expires", "9999-12-31T23:59:59")
    exported = CliRunner().invoke(main, ["db", "export", "--store", managed.store])
    lines = [json.loads(line) for line in exported.stdout.splitlines()]
    (line,) = [each for each in lines if each.get("key") == key_id]
    late = line | {"key": "late", "hash": "0" * 64, "expires_at": 9e11}
    (tmp_path / "keys").write_text(json.dumps(late) + "\n")
    done = CliRunner().invoke(main, ["db", "import", "--store", managed.store, str(tmp_path / "keys")])
    assert done.exit_code == 0, done.output
    rows = managed.keys("list").output.splitlines()
    shown = [row for row in rows if row.startswith((key_id, "late"))]
    assert [row.rpartition("  ")[2] for row in shown] == ["expires=9999-12-31T23:59Z"] * 2


def test_a_websocket_of_a_revoked_key_ends_at_its_next_turn(managed: Managed) -> None:
    key_id, headers = managed.add()
    managed.becomes(headers, 200)
    create = json.dumps({"type": "response.create", "model": "demo", "input": "Hi", "store": False})
    with connect(managed.base.replace("http", "ws") + "/v1/responses", additional_headers=headers) as socket:
        socket.send(create)
        while json.loads(socket.recv())["type"] != "response.completed":
            pass
        managed.keys("revoke", key_id)
        managed.becomes(headers, 401)
        socket.send(create)
        while (event := json.loads(socket.recv()))["type"] != "error":
            assert event["type"] != "response.completed"
        assert event["status"] == 401


@pytest.mark.parametrize(
    ("page", "heading"), [("keys.md", "Keys that are managed"), ("rotating-keys.md", "Managed keys")]
)
def test_the_commands_of_the_pages_can_be_given(
    managed: Managed, tmp_path: Path, page: str, heading: str
) -> None:
    config = tmp_path / "bridge.toml"
    config.write_text(f'store = "{managed.store}"\nmanaged_keys = true\n')
    (block,) = [each for each in blocks_of(f"docs/{page}") if each.heading == heading]
    shown, key_id = "key_0123456789abcdef", ""
    for line in commands_of(block):
        program, group, what, *arguments = shlex.split(line)
        assert (program, group) == ("openresponses-bridge", "keys")
        options = [each.replace(shown, key_id).replace(config.name, str(config)) for each in arguments]
        store = [] if "--config" in options else ["--store", managed.store]
        done = CliRunner().invoke(main, ["keys", what, *store, *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        key_id = key_id or done.stderr.split()[0]
    assert "revoked" in done.output


def test_a_store_in_memory_and_pass_through_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a store that all processes share"):
        create_app(Settings(managed_keys=True))
    upstream = UpstreamSettings(url="http://127.0.0.1:1", pass_through=True)
    with pytest.raises(SettingsError, match="pass_through"):
        create_app(Settings(managed_keys=True, store=f"sqlite:///{tmp_path}/s.db", upstreams=[upstream]))
    for what in (["add"], ["list"], ["revoke", "key_1"]):
        done = CliRunner().invoke(main, ["keys", *what, "--store", "memory://"])
        assert done.exit_code == 2
        assert "no server would see keys in memory" in done.output


def test_a_mistyped_store_has_no_keys_and_is_not_made(tmp_path: Path) -> None:
    mistyped = tmp_path / "sesions.sqlite3"
    for what in (["list"], ["revoke", "key_1"], ["limit", "key_1", "--tokens", "9"]):
        done = CliRunner().invoke(main, ["keys", *what, "--store", f"sqlite:///{mistyped}"])
        assert done.exit_code == 2
        assert f"no session store was found at {mistyped}" in done.output
        assert not mistyped.exists()
    done = CliRunner().invoke(main, ["keys", "add", "--store", f"sqlite:///{mistyped}"])
    assert (done.exit_code, mistyped.exists()) == (0, True)
    assert str(mistyped) in done.stderr


@pytest.mark.parametrize(
    "flags",
    [
        ["--requests", "0"],
        ["--requests", "-1"],
        ["--requests", "many"],
        ["--tokens", "1" * 30],
        ["--usd-per-day", "0"],
        ["--usd-per-day", "-1"],
        ["--usd-per-day", "nan"],
        ["--usd-per-day", "inf"],
        ["--usd-per-day", "1e3"],
        ["--usd-per-day", "1_0"],
        ["--usd-per-day", "1000000.01"],
        ["--usd-per-day", "0.0000000000001"],
        ["--usd-per-day", "٣"],
        ["--expires", "soon"],
        ["--expires", "99999999d"],
        ["--expires", "999999w"],
        ["--expires", "1969-12-31"],
        ["--name", ""],
        ["--owner", "a\nb"],
        ["--model", "x" * 201],
    ],
)
def test_wrong_flags_are_refused(managed: Managed, flags: list[str]) -> None:
    assert managed.keys("add", *flags).exit_code == 2
