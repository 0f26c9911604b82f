"""docs/troubleshooting.md is true: its commands run, and what it names is there."""

import json
import re
import shlex
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from openresponses_cli.commands.cli import main
from tests.support.document_blocks import commands
from tests.support.serving import ready
from tests.support.shared import REPOSITORY

PAGE = "docs/troubleshooting.md"
ADDRESS = "http://127.0.0.1:8080"
NAMES = json.loads((REPOSITORY / "snapshots" / "server" / "names.json").read_bytes())
TEXT = (REPOSITORY / PAGE).read_text(encoding="utf-8")


def test_its_commands_run(tmp_path: Path, demo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bridge.toml").write_text('port = 0\nstore = "memory://"\n')
    ran = []
    for command in commands(PAGE, "Look first"):
        program, *words = shlex.split(command.replace(ADDRESS, demo))
        ran.append(program)
        if program == "curl":
            assert ready(demo, path=words[-1].removeprefix(demo)).json["status"] == "ready"
            continue
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, (command, done.output)
    assert ran == ["openresponses-bridge", "openresponses-bridge", "curl", "openresponses-bridge"]


def test_what_is_said_at_the_start_is_said(tmp_path: Path) -> None:
    (tmp_path / "bridge.toml").write_text("prot = 1\n")
    shown = [
        cell for first, _ in rows("The server does not start") for cell in re.findall("`([^`]+)`", first)
    ]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cases = {
            "'…' is not a setting": ["--config", str(tmp_path / "bridge.toml")],
            "without API keys only a loopback address can be bound": ["--host", "0.0.0.0"],
            "can't listen on …: Address already in use": ["--port", str(taken.getsockname()[1])],
        }
        for message, flags in cases.items():
            assert message in shown
            done = CliRunner().invoke(main, ["serve", "--store", "memory://", *flags])
            assert done.exit_code == 2
            assert re.search(re.escape(message).replace("…", ".+"), " ".join(done.output.split())), (
                done.output
            )


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below this heading."""
    _, _, below = TEXT.partition(f"\n## {heading}\n")
    lines = below.partition("\n## ")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][2:]


def test_every_code_is_one_that_clients_get_and_stands_in_order() -> None:
    page = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    statuses = dict(re.findall(r"^\| `(\w+)` \| ([\d, ]+) \|", page, re.MULTILINE))
    statuses["context_length_exceeded"] = "400"  # given to what upstreams refuse
    cells = [first for first, _ in rows("A client gets an error")]
    assert cells == sorted(cells)
    for first in cells:
        status, codes = first[:3], re.findall(r"`(\w+)`", first)
        assert codes
        for code in codes:
            assert status in statuses[code], code


def test_every_setting_event_and_flag_is_there() -> None:
    text = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    flags = {flag for name in NAMES["commands and flags"] for flag in name.split() if flag[0] == "-"}
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= flags
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+|[a-z_]+\.[a-z_]+)[`( ]", text))
    settings = {part for name in NAMES["settings"] for part in (name, name.rpartition(".")[2])}
    others = {
        "context_length_exceeded",
        "cost_usd",
        "max_output_tokens",
        "mcp_list_tools",
        "response.incomplete",
    }
    known = settings | set(NAMES["error codes"]) | set(NAMES["events of the log"]) | others
    assert {"readiness.changed", "timeouts.first_byte", "managed_keys"} <= named
    assert sorted(named - known) == []
