"""`run`, `chat` and `agent` report an upstream that does not answer in the words of `doctor` and `serve`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from openresponses_cli.commands.cli import main
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.serving import serving
from tests.support.upstream import Script, ScriptedUpstream, refusal, text

COMMANDS = {
    "run": ["run", "codex", "--program", "/bin/true"],
    "chat": ["chat", "Hi"],
    "agent": ["agent", "Say hi"],
    "doctor": ["doctor"],
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("WRONG_KEY", "sk-wrong-0123456789")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def keyed() -> Iterator[ScriptedUpstream]:
    """Refuses every key, and every request for its list of models."""

    class Keyed(ScriptedUpstream):
        def _script(self, received: object) -> Script:
            return refusal(401, code="invalid_api_key", message="No such key")

    with Keyed() as upstream:
        yield upstream


def said(command: str, *flags: str) -> Result:
    return CliRunner().invoke(main, [*COMMANDS[command], *flags])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("model", [(), ("--model", "qwen3")], ids=["unnamed", "named"])
def test_a_server_that_does_not_run_is_said_not_to(
    command: str, model: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "profiles"
    folder.mkdir()
    shipped = 'title = "The house"\ndialect = "chat"\nstart = "house serve"\n[dialects.chat]\n'
    folder.joinpath("house.toml").write_text(f'{shipped}url = "http://127.0.0.1:9/v1"\n')
    config = tmp_path / "c.toml"
    named = f'model = "{model[1]}"\n' if model else ""
    config.write_text(f'profiles = "profiles"\n[[upstreams]]\nprofile = "house"\n{named}')
    shown = said(command, "--config", str(config), *(model if command != "doctor" else ()))
    assert shown.exit_code == (1 if command == "doctor" else 2), shown.output
    line = (
        "The house isn't answering at http://127.0.0.1:9/v1 (Connection refused): is `house serve` running?"
    )
    assert line in shown.output
    assert "no model was found" not in shown.output
    assert "Traceback" not in shown.output


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("model", [(), ("--model", "m")], ids=["unnamed", "named"])
def test_a_key_that_is_refused_is_said_to_be(
    command: str, model: tuple[str, ...], keyed: ScriptedUpstream
) -> None:
    shown = said(command, "--upstream", keyed.url, "--api-key-env", "WRONG_KEY", *model)
    assert shown.exit_code == (1 if command == "doctor" else 2), shown.output
    assert f"refuses the key at {keyed.url}: it answered with status 401" in shown.output
    assert "sk-wrong" not in shown.output


@pytest.mark.parametrize("command", COMMANDS)
def test_an_upstream_without_a_list_wants_a_model_named(command: str) -> None:
    with ScriptedUpstream() as upstream:
        shown = said(command, "--upstream", upstream.url)
    assert f"answers at {upstream.url}, but does not list its models" in shown.output
    if command != "doctor":
        assert shown.exit_code == 2
        assert "name a model with --model" in shown.output


@pytest.mark.parametrize("command", COMMANDS)
def test_an_address_without_its_scheme_gets_it_suggested(command: str) -> None:
    shown = said(command, "--upstream", "localhost:11434")
    assert "if it is an address, add its scheme: http://localhost:11434 or https://…" in shown.output


def test_a_model_that_is_named_needs_no_list() -> None:
    with ScriptedUpstream() as upstream:
        command = [sys.executable, "-P", "-m", "openresponses_server", "chat", "Hi"]
        shown = subprocess.run(
            [*command, "--upstream", upstream.url, "--model", "m"], capture_output=True, text=True
        )
    assert (shown.returncode, "Hello there" in shown.stdout) == (0, True), shown.stderr


def test_chat_says_that_it_waits() -> None:
    busy = refusal(429, {"retry-after": "1"}, message="Slow down")
    with (
        ScriptedUpstream({"m": [busy, Script(text("At last"))]}) as upstream,
        serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base,
    ):
        shown = said("chat", "--server", base, "--model", "m")
    assert shown.exit_code == 0, shown.output
    assert "Slow down [rate_limit_exceeded]: asked again in 1 s" in shown.output
    assert shown.output.index("asked again") < shown.output.index("At last")


def test_the_start_warns_of_certificates_that_are_not_checked(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[[upstreams]]\nurl = "https://127.0.0.1:9"\nname = "lax"\nverify = false\n')
    shown = said("doctor", "--config", str(config))
    assert "its certificate is not checked (verify = false)" in shown.output
