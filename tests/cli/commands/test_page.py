"""docs/terminal.md is true: its commands run."""

import gzip
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_cli.commands.cli import main
from tests.support.document_blocks import commands
from tests.support.model_scripts import SCRIPTS, played
from tests.support.serving import respond
from tests.support.shared import REPOSITORY

PAGE = "docs/terminal.md"
ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the page's commands take for granted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capture.sse").write_bytes(encode_sse(played(SCRIPTS["text_then_tool"]).events))
    clean = encode_sse(played(SCRIPTS["text_then_tool"]).events) + b"data: [DONE]\n\n"
    (tmp_path / "packed.sse.gz").write_bytes(gzip.compress(clean))
    (tmp_path / "body.json").write_text('{"model":"demo","input":"Hi"}')
    return tmp_path


@pytest.mark.parametrize("heading", ["Looking at a stream", "Stored responses", "Talking with a model"])
def test_its_commands_run(folder: Path, demo: str, heading: str) -> None:
    response = respond(demo, model="demo", input="Write 3 words").json
    for command in commands(PAGE, heading):
        command = command.replace("$ID", response["id"])
        program, *words = shlex.split(command.partition(" < ")[0].replace(ADDRESS, demo))
        assert program == "openresponses-bridge"
        stdin = (folder / "capture.sse").read_bytes() if " < capture.sse" in command else None
        done = CliRunner().invoke(main, words, input=stdin)
        assert done.exit_code == 0, (command, done.output)


LINES = re.findall(r"`[^`]*(_OPENRESPONSES_BRIDGE_COMPLETE)=(\w+)_source ", (REPOSITORY / PAGE).read_text())


@pytest.mark.parametrize(("variable", "shell"), LINES)
def test_each_shell_gets_its_completion(variable: str, shell: str) -> None:
    """As the program's own name asks for it; what completes is what there is."""

    def complete(mode: str, **words: str) -> str:
        env = {variable: f"{shell}_{mode}", **words}
        return CliRunner(env=env).invoke(main, prog_name="openresponses-bridge").stdout

    assert "openresponses-bridge" in complete("source")
    typed = {"COMP_WORDS": "openresponses-bridge ins", "COMP_CWORD": "ins" if shell == "fish" else "1"}
    assert "inspect" in complete("complete", **typed)


def test_every_shell_of_the_page_is_one_that_click_knows() -> None:
    assert {shell for _, shell in LINES} == {"bash", "zsh", "fish"}


def test_the_pictures_show_commands_that_there_are() -> None:
    """They are recorded by `make terminals`, hold nothing from elsewhere, and each is on its page."""
    pages = {"demo": "docs/library.md", "inspect": "docs/terminal.md", "run-codex": "README.md"}
    pictures = sorted((REPOSITORY / "docs" / "images").glob("terminal-*.svg"))
    assert [path.stem for path in pictures] == [f"terminal-{name}" for name in pages]
    for path, page in zip(pictures, pages.values(), strict=True):
        text = path.read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        assert "url(http" not in text
        assert "<script" not in text
        assert f"images/{path.name})" in (REPOSITORY / page).read_text(encoding="utf-8")
    shown = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", pictures[0].read_text(encoding="utf-8")))
    output = CliRunner(env={"COLUMNS": "100"}).invoke(main, ["demo"]).stdout
    assert output.splitlines()[-1].split()[-1] in shown  # as it is now
    assert "22 events" in output
    assert "22&#160;events" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_what_the_variable_gives(shell: str) -> None:
    env = {"_OPENRESPONSES_BRIDGE_COMPLETE": f"{shell}_source"}
    by_variable = CliRunner(env=env).invoke(main, prog_name="openresponses-bridge").stdout
    assert CliRunner().invoke(main, ["completion", shell]).stdout == by_variable
    assert CliRunner().invoke(main, ["completion", "powershell"]).exit_code == 2
