"""Progress is for a person at a terminal: on stderr, above it what is printed, nothing in a pipe."""

import io
import json
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from click.testing import CliRunner

from openresponses_cli.commands.cli import main
from openresponses_cli.commands.progress import CountedReader, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def test_a_bar_on_a_terminal_is_gone_at_its_end(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    with redirect_stderr(terminal), progress("exporting [bold]x[/]", 3) as advance:
        advance(2)
        print("to a pipe")
        advance(1)
    drawn = terminal.getvalue()
    assert "exporting [bold]x[/]" in drawn
    assert "3/3" in drawn
    assert drawn.endswith("\x1b[2K")
    assert capsys.readouterr().out == "to a pipe\n"


@pytest.mark.parametrize("total", [None, 10])
def test_bytes_of_an_unknown_or_a_known_number(terminal: Terminal, total: int | None) -> None:
    with redirect_stderr(terminal), progress("importing", total, "bytes") as advance:
        reader = CountedReader(io.BytesIO(b"a\nbcdefgh\n"), advance)
        while reader.readline(4):
            pass
    assert "10/10" in terminal.getvalue() or "10/?" in terminal.getvalue()


def test_a_dumb_terminal_gets_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with redirect_stderr(terminal), progress("exporting") as advance:
        advance(1)
    assert terminal.getvalue() == ""


def test_no_pipe_gets_any(tmp_path: Path, demo: str) -> None:
    store = f"sqlite:///{tmp_path / 's.sqlite3'}"
    exported = tmp_path / "lines"
    for words in (
        ["db", "upgrade", "--create", "--store", store],
        ["db", "export", "--store", store, str(exported)],
        ["db", "import", "--store", store, str(exported)],
        ["db", "sweep", "--store", store],
    ):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        assert not {"\x1b", "\r"} & set(done.output)
    done = CliRunner().invoke(main, ["conform", demo, "--model", "demo", "--only", "transport", "--json"])
    assert done.stderr == ""
    assert all(json.loads(line) for line in done.stdout.splitlines())
