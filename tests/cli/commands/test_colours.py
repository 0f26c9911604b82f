"""Colours: one function says whether there may be any, and every command that has some asks it."""

from __future__ import annotations

import ast
import io
import os
import pty
import re
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.text import allows_colours
from openresponses_cli.commands.cli import main
from openresponses_cli.commands.progress import progress
from openresponses_server.observation.logs import configure_logs
from tests.support.forked import Forked
from tests.support.model_scripts import SCRIPTS, played
from tests.support.serving import respond
from tests.support.shared import REPOSITORY

SGR = re.compile(r"\x1b\[[0-9;:]*m")
"""What changes colours and other attributes (ECMA-48, 8.3.117)."""
VARIABLES = ("NO_COLOR", "FORCE_COLOR", "TERM")
# variables, on a terminal → whether there are colours
CASES: dict[str, tuple[dict[str, str], bool, bool]] = {
    "a terminal": ({"TERM": "xterm"}, True, True),
    "a pipe": ({"TERM": "xterm"}, False, False),
    "NO_COLOR": ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
    "an empty NO_COLOR": ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
    "a dumb terminal": ({"TERM": "dumb"}, True, False),
    "FORCE_COLOR in a pipe": ({"TERM": "xterm", "FORCE_COLOR": "1"}, False, True),
    "an empty FORCE_COLOR in a pipe": ({"TERM": "xterm", "FORCE_COLOR": ""}, False, False),
    "FORCE_COLOR and NO_COLOR": ({"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "0"}, True, False),
    "FORCE_COLOR on a dumb terminal": ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, False),
}


@pytest.mark.parametrize("name", CASES)
def test_colours_are_where_they_may_be(name: str) -> None:
    variables, is_terminal, expected = CASES[name]
    assert allows_colours(variables, is_terminal=is_terminal) is expected


def set_up(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[bool, bool]:
    """Set the variables and streams of a case; return whether they are terminals, and have colours."""
    variables, is_terminal, expected = CASES[name]
    for each in VARIABLES:
        monkeypatch.delenv(each, raising=False)
    for each, value in variables.items():
        monkeypatch.setenv(each, value)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: is_terminal)
    return is_terminal, expected


def _inspect(_base: str) -> list[str]:
    return ["inspect", "capture.sse"]


def _show(base: str) -> list[str]:
    return ["responses", "show", respond(base, model="demo").json["id"], "--server", base]


# each module that has colours → a use of its command that shows some
SHOWS: dict[str, Callable[[str], list[str]]] = {
    "agent.py": lambda _base: ["agent", "hi"],
    "chat.py": lambda base: ["chat", "--server", base, "--model", "demo", "hi"],
    "conform.py": lambda base: ["conform", base, "--model", "demo", "--only", "transport"],
    "corpus_checking.py": lambda _base: ["corpus", "check", "reports", "--wire", "openai", "--only", "text"],
    "demo.py": lambda _base: ["demo"],
    "inspect.py": _inspect,
    "responses.py": _show,
}
ELSEWHERE = {"progress.py", "terminal.py"}
"""What is no command: the bars have a test of their own, and the last one asks for all."""


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("module", SHOWS)
def test_a_command_has_them_where_they_may_be(
    module: str, name: str, demo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capture.sse").write_bytes(encode_sse(played(SCRIPTS["text_then_tool"]).events))
    (tmp_path / "reports").write_text('{"id": "openai/text", "text": "other"}\n')
    words = SHOWS[module](demo)
    if module == "demo.py":
        monkeypatch.setattr("openresponses_cli.commands.demo._PAUSE", 0)
    _, expected = set_up(monkeypatch, name)
    done = CliRunner().invoke(main, words)
    assert done.exit_code in (0, 1), done.output
    assert done.output
    assert bool(SGR.search(done.output)) is expected, done.output


@pytest.mark.parametrize("name", CASES)
def test_so_has_a_bar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_terminal, expected = set_up(monkeypatch, name)

    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    with redirect_stderr(Stream()) as shown, progress("exporting", 3) as advance:
        advance(2)
    # in a pipe there is none, with or without colours
    assert bool(SGR.search(shown.getvalue())) is (expected and is_terminal)


@pytest.mark.parametrize("name", CASES)
def test_so_has_the_log_of_a_server(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is lines of JSON where it is in no terminal."""
    import structlog

    is_terminal, expected = set_up(monkeypatch, name)

    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    stream, before = Stream(), structlog.get_config()
    try:
        configure_logs(stream)
        structlog.get_logger().warning("something", count=1)
    finally:
        structlog.configure(**before)
    assert "something" in stream.getvalue()
    assert bool(SGR.search(stream.getvalue())) is (expected and is_terminal)


@pytest.mark.parametrize("name", [name for name, (_, is_terminal, _) in CASES.items() if is_terminal])
def test_a_real_terminal(name: str) -> None:
    variables, _, expected = CASES[name]
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    ours, theirs = pty.openpty()
    process = Forked[bytes](["demo"], stdout=theirs, env=environment | variables, cwd=REPOSITORY)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # Linux reports the end of a terminal so
        while data := os.read(ours, 65536):
            shown += data
    os.close(ours)
    assert process.wait() == 0
    assert b"machine.start" in shown
    assert bool(SGR.search(shown.decode())) is expected


_COLOURING = ("Console", "OutputStream", "style", "secho", "ConsoleRenderer")


def _colouring(path: Path) -> list[ast.Call]:
    """The calls of a module that make colours: consoles of rich's, styles of click's, structlog's lines."""
    text = path.read_text()
    if not any(f"{name}(" in text for name in _COLOURING):
        return []  # without reading it as Python, which would take a second for all
    return [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        # with or without what it is of
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in _COLOURING
    ]


def test_these_are_all_that_have_colours() -> None:
    """A console elsewhere, or one made in another way, fails here: it belongs into the table above."""
    asking = set()
    for path in sorted((REPOSITORY / "server").rglob("*.py")):
        for call in _colouring(path):
            text = ast.unparse(call)
            where = path.name
            if "ConsoleRenderer" in text:
                assert (where, "allows_colours(" in text) == ("logs.py", True)
                continue
            if not text.startswith("click.style("):  # the command line says for these whether they stay
                assert "**console_options(" in text, f"{path}: {text}"
            asking.add(where)
    assert asking == {*SHOWS, *ELSEWHERE} - {"terminal.py"}
