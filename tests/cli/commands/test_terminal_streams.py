"""What commands print reaches any terminal and any pipe, in every encoding, also without a reader."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import IO

import click
import pytest

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_cli.commands.flags import Form
from openresponses_cli.commands.terminal import SPELLINGS
from tests.support.command_line import commands
from tests.support.debug_mode import without_durations
from tests.support.forked import Forked, ForkServer
from tests.support.model_scripts import SCRIPTS, played
from tests.support.shared import REPOSITORY

PROGRAM = [sys.executable, "-m", "openresponses_server"]
PRINTED = [REPOSITORY / "server" / "openresponses_cli" / part for part in ("commands", "agents")]
STREAM = encode_sse(played(SCRIPTS["text"]).events) + b"data: [DONE]\n\n"
BROKEN = b"".join(part + b"\n\n" for part in STREAM.split(b"\n\n") if b'" there"' not in part)


@cache
def forks() -> ForkServer:
    """It has imported what these commands need, so that the end of each process is short."""
    return ForkServer(
        modules=[
            "openresponses_bridge.emitter.machine",
            "openresponses_cli.commands.inspecting",
            "openresponses_cli.commands.replaying",
            "openresponses_server.__main__",
            "rich.console",
        ]
    )


def ended(
    *arguments: str, stdin: bytes, stdout: int | IO[bytes] = subprocess.PIPE, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """How the command ended, whole with the end of Python."""
    pipes = {"stdin": subprocess.PIPE, "stdout": stdout, "stderr": subprocess.PIPE}
    environment = os.environ | variables
    with Forked[bytes](arguments, server=forks(), is_whole=True, env=environment, **pipes) as process:
        output = process.communicate(stdin)
    return subprocess.CompletedProcess(arguments, process.returncode, *output)


def run(*arguments: str, encoding: str = "utf-8", stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return ended(*arguments, stdin=stdin, PYTHONIOENCODING=encoding, COLUMNS="80", NO_COLOR="1")


def without_reader(*arguments: str, stdin: bytes) -> int:
    """The exit code of a command whose standard output is a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    done = ended(*arguments, stdin=stdin, stdout=writer)
    os.close(writer)
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
    return done.returncode


@pytest.mark.parametrize(
    ("command", "encoding"),
    [
        ("demo", "cp1252"),
        ("demo", "ascii"),
        ("demo --json", "cp1252"),
        ("inspect", "cp1252"),
        ("inspect --json", "cp1252"),
        ("validate --explain schema", "ascii"),
    ],
)
def test_every_character_is_printed_in_every_encoding(command: str, encoding: str) -> None:
    done = run(*command.split(), encoding=encoding, stdin=STREAM.replace(b"Hello", "H→中😀".encode()))
    assert (done.returncode, without_durations(done.stderr)) == (0, b"")
    if command.endswith("--json"):
        assert json.loads(done.stdout.decode("utf-8"))["status"] == "completed"
    elif command == "demo":
        assert b"-> machine.start()" in done.stdout


def test_our_own_characters_have_a_spelling_in_ascii() -> None:
    files = [path for folder in PRINTED for path in folder.rglob("*.py")]
    used = {sign for path in files for sign in re.sub(r"\A.*?^SPELLINGS", "", path.read_text("utf-8"))}
    lacking = {sign for sign in used if not sign.isascii()} - set(SPELLINGS)
    assert not lacking, "give each a spelling in commands/terminal.py"
    assert all(spelling.isascii() for spelling in SPELLINGS.values())


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("validate", 1),
        ("validate --by-rule", 1),
        ("inspect", 1),
        ("inspect --json", 1),
        ("replay", 0),
        ("demo", 0),
    ],
)
def test_a_verdict_outlives_the_reader_of_the_pipe(command: str, code: int) -> None:
    assert without_reader(*command.split(), stdin=BROKEN) == code


def test_reports_outlive_the_reader_of_the_pipe_whole(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    code = without_reader("validate", "--junit", str(report), stdin=BROKEN + b"junk\n\n" + BROKEN)
    there = tmp_path / "there.xml"
    stdin = BROKEN + b"junk\n\n" + BROKEN
    assert code == run("validate", "--junit", str(there), stdin=stdin).returncode
    assert report.read_bytes() == there.read_bytes()


def test_a_clean_verdict_outlives_it_too() -> None:
    assert without_reader("inspect", stdin=STREAM) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["demo", "inspect", "validate", "replay"])
def test_output_that_can_not_be_written_is_said(command: str, unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = ended(command, stdin=BROKEN, stdout=full, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, without_durations(done.stderr)) == (
        1,
        b"Error: standard output: No space left on device\n",
    )


def test_closed_streams_lead_nowhere() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" <&- >&-', "sh", *PROGRAM, "demo"],
        env={**os.environ, "PYTHONWARNINGS": "default"},  # of a file that nobody closes
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (done.returncode, without_durations(done.stderr)) == (0, b"")


def forms() -> list[tuple[str, click.Option, str]]:
    return [
        (path, option, word)
        for path, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and isinstance(option.type, Form)
        for word in option.type.name.split("|")
    ]


def test_what_help_shows_is_accepted_as_shown() -> None:
    """Words of a form in small letters are values; those in capitals stand for something."""
    tried = 0
    for path, option, word in forms():
        context = click.Context(click.Command(path))
        assert option.type.get_metavar(option, context) == option.type.name
        if not word.isupper():
            option.type.convert(word, option, context)
            tried += 1
    assert tried >= 10
