"""Records sessions in a terminal as pictures, docs/images/*.svg: `make terminals`.

Each command runs in a terminal of its own, and the picture shows the screen at the end. Codex is the real
one, from npm (tests/clients/.node, which `make clients` fills), with a model that answers by rules; if it is
missing, its picture stays unchanged, and the program reports that.
"""

import argparse
import fcntl
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.sse import DONE
from tests.support.loops import Answer
from tests.support.model_scripts import Step, played
from tests.support.rules_of_models import Seen, ruled
from tests.support.shared import REPOSITORY
from tests.support.upstream import ScriptedUpstream

IMAGES = REPOSITORY / "docs" / "images"
NODE = REPOSITORY / "tests" / "clients" / ".node" / "node_modules" / ".bin"
PROGRAM = "openresponses-bridge"
WIDTH, HEIGHT = 100, 40
_SECONDS = 120
_COLOURFUL = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
_PORT, _A_PORT = r"127\.0\.0\.1:\d+", "127.0.0.1:9000"
_FONTS = re.compile(r"@font-face \{\{[^}]*\}\}\s*")  # from an address on another network
_ERASED = "\x1b[2K"
_CURSOR = re.compile(r"\x1b\[\?25[hl]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\r")
_STEPS: list[Step] = [
    ("reasoning", "Paris? I have to look."),
    ("text", "It is "),
    ("text", "18 °C "),
    ("text", "in Paris now."),
    ("call", 0, "call_a", "get_forecast"),
    ("arguments", 0, '{"city":"Paris",'),
    ("arguments", 0, '"days":3}'),
    ("call_end", 0),
    ("end", "tool_calls"),
]
_PATCH = "*** Begin Patch\n*** Update File: notes.txt\n@@\n-buy milk\n+buy milk and tea\n*** End Patch\n"


def in_a_terminal(command: list[str], folder: Path, env: Mapping[str, str]) -> str:
    """The output of a command in its terminal, without the text that the command has erased."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**_COLOURFUL, **env, "TERM": "xterm-256color", "COLUMNS": str(WIDTH)},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    with suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 65536):
            written += piece
    os.close(ours)
    if process.wait(_SECONDS):
        sys.exit(
            f"{shlex.join(command)} ended with {process.returncode}:\n{written.decode(errors='replace')}"
        )
    return _CURSOR.sub("", written.decode(errors="replace").rpartition(_ERASED)[2])


def drawn(name: str, shown: str, output: str, changes: Mapping[str, str]) -> str:
    """The picture of a session: the command as it is typed, and its output."""
    for pattern, instead in changes.items():
        output = re.sub(pattern, instead, output)
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, highlight=False)
    console.print(Text.assemble(("$ ", "bold green"), (shown, "bold")))
    console.print(Text.from_ansi(output.strip("\n")))
    return console.export_svg(
        title=shown.partition(" --")[0],
        theme=DIMMED_MONOKAI,
        code_format=_FONTS.sub("", CONSOLE_SVG_FORMAT),
        unique_id=f"terminal-{name}",
    )


def demo(folder: Path) -> str:
    """The round trip."""
    output = in_a_terminal([sys.executable, "-m", "openresponses_server", "demo"], folder, _env(folder))
    return drawn("demo", f"{PROGRAM} demo", output, {})


def inspect(folder: Path) -> str:
    """A capture in which a delta is missing."""
    events = [event for event in played(_STEPS).events if getattr(event, "delta", "") != "18 °C "]
    (folder / "capture.sse").write_bytes(encode_sse(events) + DONE)
    command = f"{sys.executable} -m openresponses_server inspect capture.sse || true"
    output = in_a_terminal(["sh", "-c", command], folder, _env(folder))
    return drawn("inspect", f"{PROGRAM} inspect capture.sse", output, {})


def model(seen: Seen) -> Answer:
    """The model looks at a file, changes it, and reports that."""
    if "look" not in seen.results:
        return Answer("Let me look at the list.", calls=[("look", "exec_command", {"cmd": "cat notes.txt"})])
    if "change" not in seen.results:
        return Answer(calls=[("change", "apply_patch", {"input": _PATCH})])
    return Answer("Done: notes.txt says “buy milk and tea” now.")


def run_codex(folder: Path, codex: str) -> str:
    """Run the real Codex over a Chat model that has only functions."""
    (folder / "notes.txt").write_text("buy milk\n")
    with ScriptedUpstream() as upstream:
        upstream.answer = ruled("chat", model)
        changes = {re.escape(upstream.url): "http://localhost:9000/v1"}
        options = ["--upstream", upstream.url, "--model", "scripted"]
        words = [
            "run",
            "codex",
            *options,
            "--",
            "exec",
            "--skip-git-repo-check",
            "-s",
            "danger-full-access",
            "Add tea.",
        ]
        program = [sys.executable, "-m", "openresponses_server", *words[:2], "--program", codex, *words[2:]]
        (folder / "tmp").mkdir()  # it refuses a home within the folder for temporary files
        output = in_a_terminal(program, folder, _env(folder) | {"TMPDIR": str(folder / "tmp")})
    changes |= {
        re.escape(str(folder)): "~/list",
        _PORT: _A_PORT,
        r"(session id:\S* ?(?:\x1b\[\d*m)*) ?[0-9a-f-]{36}": r"\1 0199…",
        r"\S*/data/[^\s]*?(\d+)\.log": "~/.local/share/openresponses-bridge/agents/logs/4711.log",
    }
    shown = f"{PROGRAM} {shlex.join(words)}".replace(upstream.url, "http://localhost:9000/v1")
    return drawn("codex", shown, output, changes)


def _env(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "PYTHONPATH": str(REPOSITORY),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="make terminals")
    parser.add_argument("--codex", default=shutil.which("codex", path=f"{NODE}:{os.environ['PATH']}"))
    parser.add_argument("--to", type=Path, default=IMAGES)
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    pictures = {"demo": demo, "inspect": inspect}
    if arguments.codex:
        pictures["run-codex"] = lambda folder: run_codex(folder, arguments.codex)
    else:
        print("Codex was not found: `make clients` installs it, its picture stays as it is")
    for name, draw in pictures.items():
        with tempfile.TemporaryDirectory() as folder:
            (arguments.to / f"terminal-{name}.svg").write_text(draw(Path(folder).resolve()), encoding="utf-8")
            print(f"{arguments.to.name}/terminal-{name}.svg")


if __name__ == "__main__":
    main()
