"""`init`: the answers become a config that `serve` accepts."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from openresponses_cli.commands.cli import main
from openresponses_server.settings import load_settings


def run(path: Path, *answers: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["init", str(path)], input="\n".join(answers) + "\n")
    assert done.exit_code == code, done.output
    return done.output


def test_a_local_server(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    sent = run(path, "ollama", "", "", "", "", "")
    assert f"serve --config {path}" in sent
    settings = load_settings(path)
    (upstream,) = settings.upstreams
    assert (upstream.profile, upstream.name, upstream.models) == ("ollama", "ollama", [])
    assert (settings.host, settings.port, settings.api_keys) == ("127.0.0.1", 8080, [])


def test_several_upstreams_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "MY_KEY"):
        monkeypatch.setenv(variable, "k")
    monkeypatch.delenv("CLIENTS", raising=False)
    path = tmp_path / "bridge.toml"
    first = ("openai", "", "gpt-*, o3", "y")
    second = ("other", "http://127.0.0.1:9000/v1", "responses", "MY_KEY", "", "n")
    sent = run(path, *first, *second, "y", "CLIENTS", "9001")
    assert "CLIENTS is not set yet." in sent
    assert "Before that: " in sent
    monkeypatch.setenv("CLIENTS", "secret")
    settings = load_settings(path)
    openai, other = settings.upstreams
    assert (openai.profile, openai.models, openai.api_key_env) == ("openai", ["gpt-*", "o3"], None)
    assert (other.url, other.dialect, other.api_key_env) == (
        "http://127.0.0.1:9000/v1",
        "responses",
        "MY_KEY",
    )
    assert (settings.host, settings.port, len(settings.api_keys)) == ("0.0.0.0", 9001, 1)
    assert "secret" not in path.read_text()


def test_a_file_that_is_there_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text("port = 1")
    run(path, "n", code=1)
    assert path.read_text() == "port = 1"


def test_what_is_answered_wrongly_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    upstream = ("other", "nonsense", "http://127.0.0.1:9/v1", "", "sk-a key", "MY_KEY", "", "n")
    sent = run(path, *upstream, "n", "1")
    assert "is not an http" in sent
    assert "not the name of a variable" in sent
    assert "sk-a key" not in path.read_text()
    assert 'url = "http://127.0.0.1:9/v1"' in path.read_text()


def test_the_end_of_input_ends_it_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    done = CliRunner().invoke(main, ["init", str(path)], input="ollama\n")
    assert (done.exit_code, path.exists()) == (1, False)
    assert done.stderr == f"\n{path} is not written.\n"


def test_force_replaces_without_a_question(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text("port = 1")
    done = CliRunner().invoke(main, ["init", "--force", str(path)], input="ollama" + "\n" * 6)
    assert (done.exit_code, load_settings(path).port) == (0, 8080)


def given(path: Path, *flags: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["init", str(path), *flags], input="")
    assert done.exit_code == code, done.output
    return done.output


def test_with_an_upstream_given_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    path = tmp_path / "bridge.toml"
    given(path, "--upstream", "ollama", "--model", "a", "--model", "b", "--port", "0")
    settings = load_settings(path)
    (upstream,) = settings.upstreams
    assert (upstream.profile, upstream.models, settings.port) == ("ollama", ["a", "b"], 0)
    address = ("--upstream", "http://127.0.0.1:9/v1", "--dialect", "responses", "--api-key-env", "MY_KEY")
    given(path, *address, "--host", "0.0.0.0", "--key-env", "MY_KEY", "--force")
    settings = load_settings(path)
    (upstream,) = settings.upstreams
    assert (upstream.url, upstream.dialect) == ("http://127.0.0.1:9/v1", "responses")
    assert (upstream.api_key_env, settings.host, len(settings.api_keys)) == ("MY_KEY", "0.0.0.0", 1)
    assert "secret" not in path.read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--upstream", "olama"), "'olama' is not an address, nor one of"),
        (("--upstream", "ftp://127.0.0.1"), "is not an http"),
        (("--upstream", "http://127.0.0.1:9", "--dialect", "vscode"), "--dialect: 'vscode' is not a dialect"),
        (("--upstream", "ollama", "--dialect", "chat"), "--dialect belongs to an address"),
        (("--upstream", "ollama", "--api-key-env", "sk-a key"), "not the name of a variable"),
        (("--upstream", "ollama", "--host", "0.0.0.0"), "give --key-env as well"),
        (("--port", "1"), "the other flags need --upstream"),
    ],
)
def test_flags_that_are_wrong_write_nothing(tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    path = tmp_path / "bridge.toml"
    assert said in given(path, *flags, code=2)
    assert not path.exists()


def test_a_file_that_is_there_is_replaced_by_force_alone(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text("port = 1")
    assert "--force replaces it" in given(path, "--upstream", "ollama", code=2)
    assert path.read_text() == "port = 1"


def test_the_file_names_its_schema(tmp_path: Path) -> None:
    path, schema = tmp_path / "bridge.toml", tmp_path / "bridge.schema.json"
    run(path, "ollama", "", "", "", "", "")
    assert path.read_text().startswith("#:schema bridge.schema.json\n")
    printed = CliRunner().invoke(main, ["config", "schema"]).stdout
    assert schema.read_text("utf-8") == printed
    schema.write_text(printed.replace("retention", "kept"))  # of another version
    run(tmp_path / "other.toml", "ollama", "", "", "", "", "")
    assert schema.read_text("utf-8") == printed


@pytest.mark.parametrize("text", ["{}", '{"title": 3}', "[" * 100_000, "my notes", "\udcff"])
def test_a_file_that_is_no_schema_of_ours_stays(tmp_path: Path, text: str) -> None:
    path, schema = tmp_path / "bridge.toml", tmp_path / "bridge.schema.json"
    schema.write_text(text, "utf-8", "surrogateescape")
    run(path, "ollama", "", "", "", "", "")
    assert "#:schema" not in path.read_text()
    assert schema.read_text("utf-8", "surrogateescape") == text
    assert load_settings(path).port == 8080


def test_a_link_that_has_the_name_of_the_schema_is_not_followed(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "bridge.toml", tmp_path / "elsewhere"
    (tmp_path / "bridge.schema.json").symlink_to(elsewhere)
    run(path, "ollama", "", "", "", "", "")
    assert not elsewhere.exists()
    assert "#:schema" not in path.read_text()
