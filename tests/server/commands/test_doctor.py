"""`doctor`: everything that `serve` and `run` need, each looked at by itself."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openresponses_server.commands.cli import main
from openresponses_server.settings import Settings
from openresponses_server.settings.files import hashed
from tests.support.serving import serving
from tests.support.upstream import ScriptedUpstream

pytestmark = pytest.mark.timeout(120)

Doctor = Callable[..., dict[str, tuple[str, str]]]


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Runs it; check → (state, message), and `ready` as `exit code`. No agent is installed."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def run(*words: str) -> dict[str, tuple[str, str]]:
        port = () if "--port" in words else ("--port", "0")
        done = CliRunner().invoke(main, ["doctor", "--json", "--store", "memory://", *port, *words])
        said: dict[str, Any] = json.loads(done.output)
        assert done.exit_code == (0 if said["ready"] else 1)
        found = {each["check"]: (each["state"], each["message"]) for each in said["checks"]}
        assert said["ready"] == all(state != "missing" for state, _ in found.values())
        return found

    return run


def install(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


def test_an_upstream_that_answers_is_enough(
    doctor: Doctor, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "secret-0123")
    upstream.models = ["qwen3"]
    found = doctor("--upstream", upstream.url, "--model", "qwen3", "--api-key-env", "A_KEY")
    upstream.models = None
    assert {state for state, _ in found.values()} == {"ok", "note"}
    assert found["key for upstream"] == ("ok", "A_KEY is set")
    assert "1 model: qwen3" in found["upstream"][1]
    assert "secret-0123" not in str(found)


def test_a_model_that_is_not_there_is_missing(doctor: Doctor, upstream: ScriptedUpstream) -> None:
    upstream.models = ["qwen3"]
    found = doctor("--upstream", upstream.url, "--model", "qwen4")
    upstream.models = []
    empty = doctor("--upstream", upstream.url)
    upstream.models = None
    state, message = found["upstream"]
    assert state == "missing"
    assert "not among them: 'qwen4' (did you mean 'qwen3'?)" in message
    assert empty["upstream"][0] == "missing"


def test_an_upstream_that_is_down_refuses_or_has_no_list(doctor: Doctor, upstream: ScriptedUpstream) -> None:
    down = doctor("--upstream", "http://127.0.0.1:9")["upstream"]
    assert down[0] == "missing"
    assert "isn't answering" in down[1]
    upstream.models = None
    silent = doctor("--upstream", upstream.url)["upstream"]
    assert silent[0] == "note"
    assert "does not list its models" in silent[1]


def test_a_key_that_is_not_set_is_missing(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    state, message = doctor("--upstream", "openai")["settings"]
    assert state == "missing"
    assert "OPENAI_API_KEY is not set" in message
    assert "$.upstreams[0].url" not in message


def test_its_own_server_is_no_upstream(doctor: Doctor) -> None:
    with serving(Settings(store="memory://")) as base:
        port = base.rpartition(":")[2]
        found = doctor("--port", port, "--upstream", base)
    assert found["port"][0] == "ok"
    assert found["upstream"][0] == "missing"
    assert "is this server itself" in found["upstream"][1]


def test_a_port_that_is_taken_is_said(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        other.close()
    assert doctor("--port", str(port))["port"] == ("ok", f"http://127.0.0.1:{port} is free")
    with ScriptedUpstream() as other_server:
        port = int(other_server.url.rpartition(":")[2].removesuffix("/v1"))
        state, message = doctor("--port", str(port))["port"]
    assert state == "note"
    assert "something else listens" in message
    with serving(Settings(store="memory://", api_keys=[hashed("k")])) as base:
        found = doctor("--port", base.rpartition(":")[2])
    assert found["port"] == ("ok", f"a server that asks for a key runs at {base}")


def test_a_store_that_takes_nothing_is_missing(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = doctor("--store", f"sqlite:///{tmp_path}/file/s.sqlite3")
    assert found["store"][0] == "missing"
    assert doctor("--event-log", "redis://:pass-word@127.0.0.1:9/0")["event log"][0] == "missing"


def test_a_data_folder_that_takes_nothing_is_missing(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert doctor()["data folder"][0] == "missing"


def test_agents_are_needed_when_they_are_named(doctor: Doctor) -> None:
    found = doctor()
    assert found["agent codex"] == ("note", "codex was not found: npm install -g @openai/codex")
    found = doctor("claude")
    assert found["agent codex"][0] == "note"
    assert found["agent claude"][0] == "missing"


@pytest.mark.parametrize(
    ("said", "state", "message"),
    [
        ("codex-cli 0.169.0", "ok", "Codex CLI 0.169.0 at "),
        ("codex-cli 0.80.0", "missing", "is too old, 0.130 to 0.169 work: npm install -g @openai/codex"),
        ("codex-cli 9.1.2", "note", "is newer than what was tried (0.130 to 0.169)"),
        ("hello", "missing", "does not say its version"),
        ("\x1b[2J0.150.0", "ok", "Codex CLI 0.150.0 at "),
    ],
)
def test_an_agents_version_is_known(
    doctor: Doctor, tmp_path: Path, said: str, state: str, message: str
) -> None:
    install(tmp_path, "codex", f"#!/bin/sh\necho '{said}'\n")
    found = doctor("codex")["agent codex"]
    assert found[0] == state
    assert message in found[1]


def test_an_agent_without_node_says_what_it_lacks(doctor: Doctor, tmp_path: Path) -> None:
    install(tmp_path, "codex", "#!/usr/bin/env node\n")
    assert "a program for Node.js, which was not found" in doctor("codex")["agent codex"][1]


def test_an_agent_that_hangs_is_not_waited_for(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openresponses_server.agents.coding.agents._TIMEOUT", 0.2)
    install(tmp_path, "codex", "#!/bin/sh\nexec /bin/sleep 20\n")
    assert "does not say its version" in doctor()["agent codex"][1]


def test_as_text_each_check_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    done = CliRunner().invoke(main, ["doctor", "--port", "0", "--store", "memory://", "codex"])
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert "ok       settings: flags and defaults can be used" in lines
    assert "MISSING  agent codex: codex was not found: npm install -g @openai/codex" in lines


def test_a_name_that_is_not_an_agents_is_a_usage_error() -> None:
    done = CliRunner().invoke(main, ["doctor", "claud"])
    assert done.exit_code == 2
    assert "did you mean 'claude'?" in done.output
