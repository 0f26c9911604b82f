"""All that is wrong in a configuration is said at once, each thing with its place and once."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openresponses_cli.commands.cli import main
from openresponses_server.settings import ConfigError, Settings, load_settings
from openresponses_server.settings.files import converted

WRONG = """prot = 1
workers = "many"
log_level = "loud"
store = "sqllite:"
event_log = "reddis://x"
prompts = "nowhere"
retention = "a year"
allowed_hosts = ["http://b"]

[limits]
grase = 1

[models."a.b"]
tols = true
context_window = 0

[[upstreams]]
profile = "olama"

[[upstreams]]
url = "http://x"
dialect = "antropic"

[[upstreams]]
url = 5

[[upstreams]]
url = "http://y"
name = "third"
api_key = "${NO_SUCH_KEY}"
headers = { x-first = "${NO_SUCH_HEADER}" }

[[mcp_servers]]
name = "nowhere"
"""
LINES = [1, 2, 3, 4, 5, 6, 7, 8, 11, 14, 15, 18, 22, 25, 30, 31, 33]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("wrong.toml").write_text(WRONG)
    return Path("wrong.toml")


def lines_named(text: str) -> list[int]:
    return sorted(int(line.split(":")[1]) for line in text.splitlines() if line.startswith("wrong.toml:"))


@pytest.mark.parametrize(
    "command", ["config check wrong.toml", "serve --config wrong.toml", "doctor --config wrong.toml"]
)
def test_every_mistake_is_named_with_its_line(config: Path, command: str) -> None:
    done = CliRunner().invoke(main, command.split(), terminal_width=1000)
    output = done.output.replace("Error: ", "").replace("MISSING  settings that can be used: ", "")
    assert done.exit_code in (1, 2)
    assert lines_named(output) == LINES


def test_flags_that_are_wrong_are_named_together(config: Path) -> None:
    done = CliRunner().invoke(main, ["serve", "--store", "sqllite:", "--event-log", "reddis:"])
    assert done.exit_code == 2
    assert "Error: --store: " in done.stderr
    assert "\n--event-log: " in done.stderr


def test_what_follows_from_a_mistake_is_not_another_one(tmp_path: Path) -> None:
    """Keys that can't be used, and upstreams: nothing is said of the host and of the model then."""
    config = tmp_path / "c.toml"
    config.write_text("host = '0.0.0.0'\napi_keys = 'k'\ndefault_model = 'm'\n[[upstreams]]\nurl = 5\n")
    done = CliRunner().invoke(main, ["config", "check", str(config)])
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == [f"{config}:2", f"{config}:5"]


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("port = 1\nhost = 5\n", "utf-8-sig")
    done = CliRunner().invoke(main, ["config", "check", str(config)])
    assert done.stderr == f"{config}:2: host: Expected `str`, got `int`\n"
    config.write_text("port = 1\n", "utf-8-sig")
    done = CliRunner().invoke(main, ["config", "check", str(config)])
    assert (done.exit_code, f"port = 1  # {config}:1" in done.stdout) == (0, True)


def test_what_is_not_utf_8_is_named_with_its_line(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_bytes(b"port = 1\nhost = '\xe9'\n")
    done = CliRunner().invoke(main, ["config", "check", str(config)])
    assert done.stderr == f"{config}:2: the file is not UTF-8: byte 0xe9\n"


@pytest.mark.parametrize("setting", ["api_keys", "operator_keys", "trace.keys", "wire_keys.openai"])
def test_an_empty_key_is_named(tmp_path: Path, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a variable that is set and empty: with it alone a server would start that nobody can ask."""
    monkeypatch.setenv("BLANK", " ")
    config = tmp_path / "c.toml"
    for empty in ("", " ", "${BLANK}"):
        config.write_text(f'{setting} = ["k", "{empty}"]\n')
        done = CliRunner().invoke(main, ["config", "check", str(config)])
        assert (done.exit_code, done.stderr) == (1, f"{config}:1: {setting}[1]: the key is empty\n")


def test_what_is_right_is_usable_without_the_rest() -> None:
    with pytest.raises(ConfigError) as wrong:
        converted({"port": 1, "host": 2, "prot": 3, "limits": {"grace": -1, "items": 5}}, Settings)
    assert [each.path for each in wrong.value.all] == ["$.prot", "$.host", "$.limits.grace"]
    usable: Settings = wrong.value.usable
    assert (usable.port, usable.host, usable.limits.items) == (1, Settings().host, 5)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"log_level": "inof"}, "not one of: debug, info (did you mean 'info'?)"),
        ({"background_restart": "never"}, "not one of: unseen, always"),
        ({"drain": "long"}, "it is not a time such as 30s"),
        ({"oidc": [{}]}, "Object missing required field"),
    ],
)
def test_a_value_that_is_wrong_is_told_what_is_right(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        load_settings(None, **fields)
