"""Settings from file, flags and environment; what can't be used is named."""

from pathlib import Path

import pytest

from openresponses_server.api.app import create_app
from openresponses_server.settings import (
    Settings,
    SettingsError,
    Timeouts,
    load_settings,
    of_worker,
    to_workers,
)
from openresponses_server.upstreams.dialects import base_url

FILE = """
port = 9001
[timeouts]
idle = 5
[[upstreams]]
name = "local"
url = "http://127.0.0.1:9/v1"
model = "m"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)
    return path


def test_file_then_overrides(config: Path) -> None:
    settings = load_settings(config, port=9002, host=None)
    assert (settings.port, settings.host) == (9002, "127.0.0.1")
    assert settings.timeouts == Timeouts(idle=5)
    assert settings.upstreams[0].model == "m"
    create_app(settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 'x'", "port: "),
        ("port = 70000", "port: "),
        ("ports = 1", "ports"),
        ("[timeouts]\nidle = 0", "timeouts.idle: "),
        ("[[upstreams]]\nname = 'x'", "url"),
        ("port = 1\nhost = @", "line 2"),
    ],
)
def test_wrong_file_is_named_with_its_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as wrong:
        load_settings(path)
    assert str(path) in str(wrong.value)
    assert message in str(wrong.value)


def test_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(SettingsError, match="NO_SUCH_KEY"):
        load_settings(upstreams=[{"url": "http://x", "api_key_env": "NO_SUCH_KEY"}])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"upstreams": [{"url": "ftp://x"}]}, "ftp://x"),
        ({"upstreams": [{"url": "x"}]}, "not an http"),
        ({"upstreams": [{"url": "http://x", "dialect": "morse"}]}, "morse"),
        ({"store": "redis://x"}, "redis"),
        ({"event_log": "carrier-pigeon://x"}, "carrier-pigeon"),
    ],
)
def test_settings_that_name_nothing_we_have(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        create_app(load_settings(None, **fields))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://host:1", "http://host:1/v1"),
        ("http://host:1/", "http://host:1/v1"),
        ("http://host:1/v1", "http://host:1/v1"),
        ("https://host/api/v3/", "https://host/api/v3"),
    ],
)
def test_base_url(given: str, expected: str) -> None:
    assert base_url(given) == expected


def test_workers_get_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENRESPONSES_BRIDGE_SETTINGS", "")
    settings = Settings(port=1, timeouts=Timeouts(idle=2))
    to_workers(settings)
    assert of_worker() == settings
