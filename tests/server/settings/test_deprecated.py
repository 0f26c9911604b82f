"""Deprecated settings: they work, and each command that looks at a file says what replaces them."""

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec import Meta, Struct

from openresponses_cli.commands.cli import main
from openresponses_server import settings as module
from openresponses_server.settings import Settings, deprecated_settings, load_settings
from openresponses_server.settings.files import deprecated_in

Old = Meta(extra={"deprecated": "use `new`"})


class Inner(Struct, frozen=True):
    old: Annotated[int, Old] = 0
    new: int = 0


class Outer(Struct):
    one: Inner = Inner()
    maybe: Inner | None = None
    many: list[Inner] = []
    named: dict[str, Inner] = {}
    table: Annotated[Inner | None, Old] = None
    anything: Any = None


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"one": {"new": 1}}, []),
        ({"one": {"old": 1}}, ["$.one.old"]),
        ({"maybe": {"old": 1}}, ["$.maybe.old"]),
        ({"many": [{"new": 1}, {"old": 1}]}, ["$.many[1].old"]),
        ({"named": {"x": {"old": 1}}}, ["$.named.x.old"]),
        ({"table": {"old": 1}}, ["$.table", "$.table.old"]),
        ({"anything": {"old": 1}}, []),
        ({"one": [{"old": 1}], "many": {"old": 1}, "named": 1, "unknown": 1}, []),
    ],
)
def test_deprecated_fields_are_found_wherever_they_are(given: Any, found: list[str]) -> None:
    kind = msgspec.inspect.type_info(Outer)
    assert list(deprecated_in(given, kind)) == [(path, "use `new`") for path in found]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a setting that is deprecated for the test."""
    field = ("stored_responses", Annotated[int, Old], 1000)
    monkeypatch.setattr(
        module,
        "Settings",
        msgspec.defstruct("Settings", [field], bases=(Settings,), frozen=True, kw_only=True),
    )
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "bridge.toml"
    path.write_text('port = 0\nstore = "memory://"\nstored_responses = 7\n')
    return path


def test_a_deprecated_setting_works_and_is_named_with_its_line(config: Path) -> None:
    assert load_settings(config).stored_responses == 7
    assert deprecated_settings(config) == [f"{config}:3: stored_responses is deprecated: use `new`"]
    config.write_text("port = 0\n")
    assert deprecated_settings(config) == deprecated_settings(None) == []


def test_serve_and_config_check_print_it_on_stderr(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openresponses_cli.commands.serve._serve", lambda _settings: None)
    line = f"{config}:3: stored_responses is deprecated: use `new`\n"
    for words in (["serve", "--config", str(config)], ["config", "check", str(config)]):
        done = CliRunner().invoke(main, words)
        assert (done.exit_code, done.stderr) == (0, line)
        assert "deprecated" not in done.stdout


def test_doctor_notes_it(config: Path) -> None:
    done = CliRunner().invoke(main, ["doctor", "--json", "--config", str(config)])
    (check,) = [each for each in json.loads(done.stdout)["checks"] if each["check"] == "settings"]
    assert done.exit_code == 0
    assert check["state"] == "note"
    assert check["message"].endswith("can be used; " + deprecated_settings(config)[0])
