"""The command line: replay, validate, demo, and how they end."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from openresponses_cli.commands.cli import main
from tests.support.debug_mode import without_durations
from tests.support.forked import Forked
from tests.support.shared import REPOSITORY, shared_files
from tests.support.upstream import chunk, text

CHAT = b"".join(step for step in text("Hel", "lo") if isinstance(step, bytes))


def run(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    path = tmp_path / "capture.sse"
    path.write_bytes(CHAT)
    return path


def test_replay_chat_to_responses_is_a_valid_stream(captured: Path) -> None:
    result = run("replay", str(captured))
    assert result.exit_code == 0
    assert result.stdout.startswith("event: response.created\ndata: {")
    assert result.stdout.endswith("data: [DONE]\n\n")
    checked = run("validate", stdin=result.stdout_bytes)
    assert (checked.exit_code, checked.stdout) == (0, "")


def test_replay_to_snapshot_is_one_json(captured: Path) -> None:
    result = run("replay", str(captured), "--from", "chat", "--to", "snapshot")
    response = json.loads(result.stdout)
    assert (response["object"], response["status"], response["model"]) == (
        "response",
        "completed",
        "scripted",
    )
    assert response["output"][0]["content"][0]["text"] == "Hello"


def test_replay_to_vscode_is_parts_line_by_line(captured: Path) -> None:
    parts = lines(run("replay", str(captured), "--to", "vscode"))
    assert "".join(part["value"] for part in parts if isinstance(part.get("value"), str)) == "Hello"


def test_replay_to_openai_uses_its_spelling() -> None:
    capture = chunk(reasoning_content="Hm") + CHAT
    openai = run("replay", "--to", "openai", stdin=capture).stdout
    published = run("replay", "--to", "responses", stdin=capture).stdout
    assert "event: response.reasoning_text.delta" in openai
    assert "event: response.reasoning.delta" in published


def test_replay_reads_stdin_json_lines_and_every_line_end(captured: Path) -> None:
    expected = run("replay", str(captured), "--to", "vscode").stdout
    payloads = [line.removeprefix(b"data: ") for line in CHAT.split(b"\n\n")]
    for capture in (
        CHAT,
        b"\n".join(payloads),
        CHAT.replace(b"\n\n", b"\n"),
        CHAT.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + CHAT,
    ):
        result = run("replay", "-", "--to", "vscode", stdin=capture)
        assert (result.exit_code, result.stdout) == (0, expected)


def test_replay_of_responses_goes_through_unchanged(captured: Path) -> None:
    stream = run("replay", str(captured)).stdout
    again = run("replay", "--from", "responses", "--to", "responses", stdin=stream.encode())
    assert again.stdout == stream
    assert again.stderr == ""


def test_replay_of_a_cut_capture_ends_as_failed() -> None:
    result = run("replay", "--to", "snapshot", stdin=chunk(content="Hel"))
    assert (result.exit_code, json.loads(result.stdout)["status"]) == (0, "failed")


@pytest.mark.parametrize("command", ["replay", "validate"])
@pytest.mark.parametrize(
    ("capture", "line"),
    [
        (b"", 1),
        (b"\n\n\n", 1),
        (b"\x00\x01\x02", 1),
        (b"<html>", 1),
        (b'{"choices":[]}\n{broken\n', 2),
        (b'{"choices":[]}\n\n[1]\n', 3),
        (b'data: {"choices":[]}\n\ndata: {broken\n\n', 3),
        (b"event: x\ndata: nonsense\n\n", 2),
        (b": only a comment\n\n", 2),
        (b'{"choices":[]}\n"\xff"\n', 2),
    ],
    ids=repr,
)
def test_unreadable_capture_is_2_and_names_the_line(command: str, capture: bytes, line: int) -> None:
    if command == "validate":  # which would say at line 1 that this is Chat Completions
        capture = capture.replace(b'{"choices":[]}', b'{"type":"response.created"}')
    result = run(command, stdin=capture)
    assert result.exit_code == 2
    assert f"line {line}:" in result.stderr
    assert "Traceback" not in result.stderr


def test_capture_of_no_known_dialect_is_2() -> None:
    result = run("replay", stdin=b'{"hello": "world"}\n')
    assert result.exit_code == 2
    assert "line 1:" in result.stderr
    named = {
        "codex",
        "vscode",
        "bedrock",
        "bedrock-invoke",
        "anthropic",
        "responses",
        "copilot",
        "gemini",
        "interactions",
        "chat",
    }
    assert set(result.stderr.strip().rpartition("not one of: ")[2].split(", ")) == named


def test_missing_file_is_2() -> None:
    for command in ("replay", "validate"):
        result = run(command, "no/such/file")
        assert result.exit_code == 2
        assert "no/such/file" in result.stderr


def test_what_was_repaired_is_reported_on_stderr() -> None:
    fragment = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
    capture = chunk(tool_calls=[{**fragment, "id": "a"}, {**fragment, "id": "b"}]) + chunk("tool_calls")
    assert "repair: " in run("replay", stdin=capture).stderr


def test_validate_reports_rule_event_and_message(captured: Path) -> None:
    good = run("replay", str(captured)).stdout
    frames = good.split("\n\n")
    broken = "\n\n".join([*frames[:2], *frames[3:]])  # output_item.added is missing
    result = run("validate", stdin=broken.encode())
    assert result.exit_code == 1
    assert result.stdout.splitlines()
    assert all(": event " in line for line in result.stdout.splitlines())
    sent = lines(run("validate", "--json", stdin=broken.encode()))
    assert {"rule", "event_index", "message"} <= set(sent[0])
    assert len(sent) == len(result.stdout.splitlines())


def test_demo_shows_calls_events_parts_and_ends_with_what_they_add_up_to() -> None:
    result = run("demo")
    assert result.exit_code == 0
    for shown in ("machine.text(", "response.output_text.delta", "LanguageModel", "gave exactly machine"):
        assert shown in " ".join(result.stdout.split())
    assert "no violations" in result.stdout
    assert '"object": "response"' not in result.stdout


def test_demo_gives_scripts_its_response() -> None:
    response = json.loads(run("demo", "--json").stdout)
    assert (response["object"], response["status"], len(response["output"])) == ("response", "completed", 3)


def test_help_names_every_command_and_its_flags() -> None:
    assert isinstance(main, click.Group)
    sent = run("--help").stdout
    for name in ("serve", "replay", "validate", "demo"):
        assert name in sent
        assert run(name, "--help").exit_code == 0
    flags = run("serve", "--help").stdout
    for flag in (
        "host",
        "port",
        "config",
        "upstream",
        "dialect",
        "model",
        "api-key-env",
        "store",
        "event-log",
        "workers",
    ):
        assert f"--{flag}" in flags
    assert run("unheard-of").exit_code == 2
    assert "No such command 'serv' (did you mean 'serve'?)." in run("serv").stderr


def test_version_is_the_installed_one() -> None:
    output = run("--version").stdout
    version = re.escape(metadata.version("openresponses-bridge"))
    assert re.fullmatch(rf"openresponses-bridge {version}( \([0-9a-f]{{12}}\))?\n", output)


def test_help_loads_no_server() -> None:
    """A quick start: nothing heavy is imported to show the help."""
    code = (
        "import sys, openresponses_cli.commands.cli as c\n"
        "c.main(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    for module in ("uvicorn", "httptools", "starlette", "msgspec", "rich.console"):
        assert module not in shown.stdout.split()


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [("click", []), ("click", ["validate", "-"]), ("uvicorn", ["serve", "--port", "0"]), ("rich", ["demo"])],
)
def test_what_is_not_installed_is_a_line_that_says_what_to_install(
    missing: str, arguments: list[str]
) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import openresponses_server.__main__ as program; program.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    command = " ".join(["openresponses-bridge", *arguments[:1]])
    install = "pip install openresponses-server"
    assert done.returncode == 2
    assert done.stderr == f"{command} needs {missing}, which is not installed: {install}\n"


def test_a_module_of_our_own_that_is_missing_is_a_defect() -> None:
    code = (
        "import sys; sys.modules['openresponses_cli.commands.cli'] = None\n"
        "import openresponses_server.__main__ as program; program.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_closed_pipe_is_no_error(captured: Path) -> None:
    captured.write_bytes(chunk(content="x") * 20_000)
    command = f"{sys.executable} -m openresponses_server replay {captured} | head -c 100"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=REPOSITORY, capture_output=True)
    assert done.returncode == 0
    assert without_durations(done.stderr) == b""


def test_replay_follows_a_capture_that_is_still_written() -> None:
    process = Forked[bytes](["replay", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(chunk(content="Hello"))
        process.stdin.flush()
        assert process.stdout.readline() == b"event: response.created\n"
        assert b"response.output_text.delta" in b"".join(process.stdout.readline() for _ in range(13))
        process.stdin.close()
        assert process.stdout.read().endswith(b"data: [DONE]\n\n")
        assert process.wait(60) == 0


@pytest.mark.parametrize("capture", shared_files("chat") + shared_files("chat-irespdelta", "*.sse"))
def test_recorded_chat_streams_replay_without_violations(capture: Path) -> None:
    replayed = run("replay", str(capture))
    assert replayed.exit_code == 0
    checked = run("validate", stdin=replayed.stdout_bytes)
    assert (checked.exit_code, checked.stdout) == (0, "")
    final = json.loads(replayed.stdout.split("data: ")[-2].partition("\n")[0])["response"]
    snapshot = json.loads(run("replay", "-", "--to", "snapshot", stdin=replayed.stdout_bytes).stdout)
    assert snapshot == final


@pytest.mark.parametrize(
    "capture", shared_files("responses") + shared_files("responses-inline") + shared_files("openresponses")
)
@pytest.mark.parametrize("sink", ["responses", "openai", "vscode", "snapshot"])
def test_recorded_responses_streams_replay_to_everything(capture: Path, sink: str) -> None:
    result = run("replay", str(capture), "--to", sink)
    assert result.exit_code == 0
    assert result.stdout
    assert run("validate", str(capture)).exit_code in (0, 1)
