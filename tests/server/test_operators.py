"""`/metrics` counts what all clients did: an operator's key, or a connection of this machine itself."""

from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from openresponses_server.api.app import create_app
from openresponses_server.errors import HttpError
from openresponses_server.http.auth import Keys, Operators
from openresponses_server.http.registry import ConnectionRegistry
from openresponses_server.serving.server import _config
from openresponses_server.settings import Settings, UpstreamSettings, load_settings
from openresponses_server.settings.files import hashed
from tests.support.serving import call, serving

ALICE = {"authorization": "Bearer key-of-alice"}
OPERATOR = {"authorization": "Bearer key-of-operator"}
KEYED = Settings(api_keys=[hashed("key-of-alice")])
LOOPBACK = ("127.0.0.1", 4000)


def status(
    settings: Settings,
    headers: dict[str, str],
    peer: tuple[str, int] | None = LOOPBACK,
    through: bool = False,
) -> int:
    """What `/metrics` answers to this peer."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "headers": raw, "client": peer}
    operators = Operators(settings.operator_keys, Keys(settings.api_keys, pass_through=through))
    try:
        operators.check(Request(scope))
    except HttpError as error:
        return error.http_status
    return 200


def test_an_operator_s_key_is_asked_for_where_there_is_one() -> None:
    settings = Settings(api_keys=[hashed("key-of-alice")], operator_keys=[hashed("key-of-operator")])
    with serving(settings) as base:
        sent = {
            name: call(base, "GET", "/metrics", headers=headers)
            for name, headers in (
                ("nobody", {}),
                ("alice", ALICE),
                ("hash", {"x-api-key": hashed("key-of-operator")}),
                ("operator", OPERATOR),
                ("x-api-key", {"x-api-key": "key-of-operator"}),
            )
        }
        assert {name: reply.status for name, reply in sent.items()} == {
            "nobody": 401,
            "alice": 401,
            "hash": 401,
            "operator": 200,
            "x-api-key": 200,
        }
        assert b"openresponses_bridge_requests_total" in sent["operator"].body
        assert all(b"openresponses" not in sent[name].body for name in ("nobody", "alice", "hash"))
        # it is not a client's key
        assert call(base, "GET", "/v1/models", headers=OPERATOR).status == 401


@pytest.mark.parametrize("settings", [Settings(), KEYED], ids=["keyless", "keyed"])
@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        (LOOPBACK, 200),
        (("127.8.9.1", 1), 200),
        (("::1", 1), 200),
        (("::ffff:127.0.0.1", 1), 200),
        (("10.0.0.7", 1), 403),
        (("::ffff:10.0.0.7", 1), 403),
        (("localhost.example.com", 1), 403),
        (("127.0.0.1.example.com", 1), 403),
        (None, 403),
    ],
)
def test_without_operators_only_this_machine_may_read(
    settings: Settings, peer: tuple[str, int] | None, expected: int
) -> None:
    assert status(settings, ALICE, peer) == expected


def test_without_operators_a_client_s_key_is_asked_for_where_clients_have_one() -> None:
    assert [status(settings, {}) for settings in (Settings(), KEYED)] == [200, 401]
    assert status(KEYED, ALICE) == 200


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Host", "Via", "x-forwarded-for"]
)
def test_what_came_through_a_proxy_is_not_of_this_machine(header: str) -> None:
    with serving(KEYED) as base:
        assert call(base, "GET", "/metrics", headers=ALICE).status == 200
        reply = call(base, "GET", "/metrics", headers=ALICE | {header: "127.0.0.1"})
        assert (reply.status, reply.error["code"]) == (403, "permission_denied")
    with_operator = Settings(operator_keys=[hashed("key-of-operator")])
    assert status(with_operator, OPERATOR | {header.lower(): "10.0.0.1"}, ("10.0.0.7", 1)) == 200


def test_a_forged_address_is_not_believed() -> None:
    """uvicorn puts the address of `x-forwarded-for` into the scope unless that is switched off."""
    assert _config(create_app(Settings()), ConnectionRegistry(Settings())).proxy_headers is False


def test_a_client_s_key_is_needed_as_well_where_clients_have_one() -> None:
    assert status(KEYED, {}) == 401
    assert status(Settings(), {}) == 200
    assert status(Settings(), ALICE, through=True) == 200


def test_operator_keys_come_from_the_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENRESPONSES_BRIDGE_OPERATOR_KEYS", "one, two")
    assert load_settings().operator_keys == [hashed("one"), hashed("two")]
    path = tmp_path / "bridge.toml"
    path.write_text(f'operator_keys = ["three", "{hashed("four")}"]')
    settings = load_settings(path, upstreams=[{"url": "http://x", "pass_through": True}])
    assert settings.operator_keys == [hashed("three"), hashed("four")]
    assert settings.upstreams == [UpstreamSettings(url="http://x", pass_through=True)]
