"""`config check`: each value with the place that it comes from, nothing secret, nothing connected to."""

import tomllib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from openresponses_cli.commands.cli import main
from openresponses_server.settings import Settings
from openresponses_server.settings.files import masked
from openresponses_server.upstreams.dialects import without_password

FILE = """
port = 9001
store = "postgresql+psycopg://me:hunter2@127.0.0.1:1/x"
event_log = "redis://:hunter2@127.0.0.1:1/0"
api_keys = ["hunter2"]
default_model = "small"
[limits]
depth = 64
[models."gpt-4.1"]
tools = true
[aliases]
small = "local/m"
"a.b" = "m"
[[upstreams]]
name = "local"
url = "http://me:hunter2@127.0.0.1:1"
models = ["m"]
[upstreams.headers]
x-auth = "hunter2"
"a b" = "Bearer ${HUNTER} ${HUNTER:-hunter2}"
[[upstreams]]
profile = "openai"
api_key = "${HUNTER}"
options = { supersets = false }
[upstreams.retries]
times = 2
"""


def checked(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner(env=env).invoke(main, ["config", "check", *arguments])


def places_in(output: str) -> dict[str, str]:
    """Key as it is written, behind the name of its table → place; of upstreams the last."""
    places: dict[str, str] = {}
    table = ""
    for line in output.splitlines():
        if line.startswith("["):
            table = "" if line.startswith("[[") else f"{line.strip('[]')}."
        elif "  # " in line:
            pair, place = line.split("  # ")
            places[table + pair.partition(" = ")[0]] = place
    return places


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HUNTER", "hunter2")
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)
    return path


def test_every_value_has_its_place(config: Path) -> None:
    done = checked(
        "--all",
        str(config),
        "--port",
        "3",
        env={"OPENRESPONSES_BRIDGE_RETENTION": "1d", "XDG_DATA_HOME": "x"},
    )
    assert done.exit_code == 0, done.output
    places = places_in(done.output)
    expected = {
        "host": "default",
        "port": "--port",
        "retention": "OPENRESPONSES_BRIDGE_RETENTION",
        "store": f"{config}:3",
        "limits.depth": f"{config}:8",
        "limits.items": "default",
        'models."gpt-4.1".tools': f"{config}:10",
        'aliases."a.b"': f"{config}:13",
        "headers.x-auth": f"{config}:19",
        'headers."a b"': f"{config}:20",
        "profile": f"{config}:22",
        "options.supersets": f"{config}:24",
        "retries.times": f"{config}:26",
        "retries.first_wait": "default",
        "dialect": "profile openai",
        "url": "profile openai",
    }
    assert {name: places[name] for name in expected} == expected
    assert "port = 3 " in done.output


def test_what_is_not_set_is_not_shown(config: Path, tmp_path: Path) -> None:
    """What is shown gives the same settings as all of it."""
    empty = checked()
    assert (empty.exit_code, empty.output.count("\n")) == (0, 1)
    assert empty.output.startswith("# OK: ")
    short, long = (checked(*flags, str(config), "--host", "127.0.0.2").output for flags in ([], ["--all"]))
    assert "default" not in places_in(short).values()
    assert places_in(short)["host"] == "--host"
    settings = [msgspec.convert(tomllib.loads(text), Settings) for text in (short, long)]
    assert settings[0] == settings[1]


def test_the_place_of_a_flag_that_is_a_field_of_a_table(tmp_path: Path) -> None:
    codex = checked("--dialect", "codex", "--codex-path", "elsewhere", "--trace", str(tmp_path))
    assert places_in(codex.output)["codex.path"] == "--codex-path"
    assert places_in(codex.output)["trace.folder"] == "--trace"


def test_nothing_secret_is_shown(config: Path) -> None:
    done = checked(str(config), env={"OPENRESPONSES_BRIDGE_OPERATOR_KEYS": "hunter2,more"})
    assert done.exit_code == 0, done.output
    assert "hunter2" not in done.output
    assert "sha256" not in done.output
    assert 'api_key = "${HUNTER}"' in done.output
    assert 'operator_keys = ["***", "***"]  # OPENRESPONSES_BRIDGE_OPERATOR_KEYS' in done.output


def test_what_is_printed_is_the_config_it_stands_for(tmp_path: Path, config: Path) -> None:
    """As TOML it gives the same settings again, but for what is masked."""
    read = tomllib.loads(checked("--all", str(config)).output)
    again = msgspec.convert(read, Settings)
    assert (again.port, again.limits.depth, again.default_model) == (9001, 64, "small")
    assert again.aliases == {"small": "local/m", "a.b": "m"}
    assert again.upstreams[1].retries.times == 2
    plain = tmp_path / "plain.toml"
    plain.write_text('store = "memory://"\n[[upstreams]]\nprofile = "ollama"\n')
    printed = checked(str(plain), "--all").output
    plain.write_text(printed)
    second = [line.partition("  # ")[0] for line in checked(str(plain), "--all").output.splitlines()]
    assert sorted(second) == sorted(line.partition("  # ")[0] for line in printed.splitlines())
    odd = 'aliases = { "odd" = "a\\u007f\\u0085\\U000E0041" }\n[[upstreams]]\nprofile = "ollama"\n'
    plain.write_text(odd)
    assert tomllib.loads(checked(str(plain)).output)["aliases"] == tomllib.loads(odd)["aliases"]


def test_flags_say_where_an_upstream_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "hunter2")
    done = checked("--upstream", "ollama", "--model", "m", "--api-key-env", "A_KEY", "--store", "memory:")
    places = places_in(done.output)
    expected = {"profile": "--upstream", "model": "--model", "api_key_env": "--api-key-env"}
    assert {name: places[name] for name in expected} == expected
    assert places["url"] == "profile ollama"
    assert "hunter2" not in done.output


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("prot = 1", [], ":1: 'prot' is not a setting (did you mean 'port'?)"),
        ("x = [", [], "Invalid value"),
        ("", ["--host", "0.0.0.0"], "loopback"),
        ("", ["--model", "m"], "--upstream"),
        ("", ["--upstream", "nonsense"], "--upstream: 'nonsense' is not one of"),
        ("", ["--upstream", "ollama", "--api-key-env", "NO_SUCH"], "--api-key-env: the environment variable"),
        ("", ["--store", "sqllite:"], "--store: "),
        ("port = 1", ["--allowed-host", "a/b"], "--allowed-host: 'a/b' is not"),
        (
            "[[upstreams]]\nurl = 'ftp://me:hunter2@x?hunter2'",
            [],
            ":2: upstreams[0].url: upstream: 'ftp://x'",
        ),
        ('port = "\\u001b[2J"', [], "Expected `int`"),
        (
            'retention = "3"',
            [],
            ":1: retention: it is not a time such as 30s, 10m, 12h, 30d or 4w, or forever",
        ),
        ('drain = "forever"', [], ":1: drain: it is not a time such as 30s, 10m, 12h, 30d or 4w"),
        ("[[upstreams]]\nprofile = 'openai\\u001b[2J'", [], "upstreams[0].profile: 'openai"),
    ],
)
def test_what_can_not_be_used_ends_it_with_1(tmp_path: Path, text: str, flags: list[str], said: str) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text(text)
    done = checked(str(path), *flags)
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stdout == ""
    assert bool(flags) <= ("$." not in done.stderr)
    assert done.stderr.removesuffix("\n").isprintable()
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    ("flag", "variable", "value", "said"),
    [
        ("--port", "PORT", "70000", "70000 is not in the range 0<=x<=65535."),
        ("--retention", "RETENTION", "3", "'3' is not a time such as 30s, 10m, 12h, 30d or 4w, or forever"),
        ("--drain", "DRAIN", "forever", "'forever' is not a time such as 30s, 10m, 12h, 30d or 4w"),
        ("--store", "STORE", "x:", "'x' is not one of: memory, sqlite"),
    ],
)
def test_a_wrong_value_names_the_flag_or_the_variable(
    flag: str, variable: str, value: str, said: str
) -> None:
    name = f"OPENRESPONSES_BRIDGE_{variable}"
    by_flag, by_variable = checked(flag, value), checked(env={name: value})
    for done, place, other in ((by_flag, flag, name), (by_variable, name, flag)):
        assert done.exit_code in (1, 2)
        assert f"{place}" in done.stderr
        assert said in done.stderr
        assert other not in done.stderr.splitlines()[-1]
        assert "$." not in done.stderr


def test_it_makes_no_file(tmp_path: Path) -> None:
    done = checked("--all", env={"XDG_DATA_HOME": str(tmp_path)})
    assert done.exit_code == 0
    assert f"default: {tmp_path}" in done.output
    assert list(tmp_path.iterdir()) == []


def test_several_keys_of_an_upstream_are_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    keys = "['${HUNTER}', 'hunter2', ['print', '--of', 'hunter2']]"
    path.write_text(f"api_keys = ['${{HUNTER}}']\n[[upstreams]]\nprofile = 'openai'\napi_keys = {keys}\n")
    done = checked(str(path), env={"HUNTER": "hunter2"})
    assert done.exit_code == 0, done.output
    assert "hunter2" not in done.output
    assert 'api_keys = ["${HUNTER}", "***", ["***", "***", "***"]]' in done.output
    assert "OPENAI_API_KEY" not in done.output


def test_what_a_process_is_given_and_whom_traces_are_of_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text(
        "[trace]\nkeys = ['hunter2']\n[[upstreams]]\nprofile = 'codex'\n"
        "[upstreams.codex]\nargs = ['-c', 'key=hunter2']\n"
        "[upstreams.codex.env]\nA_KEY = 'hunter2'\nOTHER = '${HUNTER}'\n"
    )
    done = checked(str(path), env={"HUNTER": "hunter2"})
    assert done.exit_code == 0, done.output
    assert "hunter2" not in done.output
    assert "sha256" not in done.output
    assert 'codex.args = ["***", "***"]' in done.output
    assert 'codex.env.A_KEY = "***"' in done.output
    assert 'codex.env.OTHER = "${HUNTER}"' in done.output


@pytest.mark.parametrize("value", ["x = " + "[" * 2000 + "]" * 2000, ".".join("a" * 2000) + " = 1"])
def test_tables_in_each_other_without_an_end_are_an_error(tmp_path: Path, value: str) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text(value)
    done = checked(str(path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"{path}: tables and lists are nested more than 32 deep\n"
    serves = CliRunner().invoke(main, ["serve", "--config", str(path)])
    assert (serves.exit_code, "nested more than 32 deep" in serves.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("secret", "***"),
        ("${A}", "${A}"),
        ("Bearer ${A}", "*** ${A}"),
        ("${A:-secret}", "*** ${A}"),
        ("$${A}", "***"),
        ("", "***"),
    ],
)
def test_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:1/v1", "http://h:1/v1"),
        ("http://me:pa/s@s@h:1/v1", "http://h:1/v1"),
        ("redis://:p@h/0?password=p", "redis://h/0"),
        ("sqlite:///a", "sqlite:///a"),
        ("sqlite:", "sqlite:"),
        ("memory://", "memory://"),
    ],
)
def test_without_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_prices_with_tiers_are_printed_as_they_were_given(tmp_path: Path) -> None:
    tier = "{ input = 1.0, output = 3.0, above = 200000 }"
    content = f'[prices."our-*"]\ninput = 0.5\noutput = 2.0\ntiers = [{tier}]\n'
    (tmp_path / "bridge.toml").write_text(content)
    done = checked("--all", str(tmp_path / "bridge.toml"))
    assert done.exit_code == 0, done.output
    assert f'"our-*".tiers = [{tier}]' in done.output
    printed = tomllib.loads(done.output)["prices"]
    assert printed == tomllib.loads(content)["prices"]
