"""`completion`: what it prints is taken by the shells themselves, each without anything of its user's."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from openresponses_cli.commands.cli import _COMMANDS

pytestmark = pytest.mark.timeout(120)

# what is typed before the tab → what it becomes
TYPED = {
    "openresponses-bridge inspe": "openresponses-bridge inspect",
    "openresponses-bridge keys rev": "openresponses-bridge keys revoke",
    "openresponses-bridge serve --upst": "openresponses-bridge serve --upstream",
    "openresponses-bridge replay --to vsc": "openresponses-bridge replay --to vscode",
    "openresponses-bridge completion zs": "openresponses-bridge completion zsh",
    "openresponses-bridge validate captu": "openresponses-bridge validate capture.sse",
}
PROMPT = "ready> "


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home without settings, and the program as it is installed: under its name in the PATH."""
    program = tmp_path / "bin" / "openresponses-bridge"
    program.parent.mkdir()
    code = "import sys; sys.argv[0] = 'openresponses-bridge'; from openresponses_cli.__main__ import main"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}; main()" "$@"\n')
    program.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    (home / "capture.sse").write_text("")
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "ZDOTDIR": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "200",
    }


def shell_of(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    return path


class Terminal:
    """A shell at a terminal."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            cwd=environment["HOME"],
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def write(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until this is shown; what comes behind it stays."""
        while text not in self.shown:
            self.shown += os.read(self._ours, 65536).decode("utf-8", "replace")
        self.shown = self.shown.partition(text)[2]

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._ours)


BEGIN = {
    "bash": (["--norc", "--noprofile", "-i"], f"PS1='{PROMPT}'; bind 'set bell-style none'"),
    "zsh": (
        ["-f", "-i"],
        f"unsetopt beep zle_bracketed_paste; autoload -Uz compinit; compinit -u -D; PS1='{PROMPT}'",
    ),
}


@pytest.mark.parametrize("shell", BEGIN)
def test_a_tab_completes(shell: str, environment: dict[str, str]) -> None:
    flags, prepare = BEGIN[shell]
    terminal = Terminal([shell_of(shell), *flags], environment)
    try:
        # the prompt is spelled in two parts, so that it is not seen where it is typed
        terminal.write(prepare.replace(PROMPT, PROMPT[:2] + "''" + PROMPT[2:]) + "\n")
        terminal.wait_for(PROMPT)
        terminal.write(f'eval "$(openresponses-bridge completion {shell})"; echo is""there\n')
        terminal.wait_for("isthere")
        terminal.wait_for(PROMPT)
        for typed, completed in TYPED.items():
            terminal.write(typed)
            terminal.wait_for(typed)
            terminal.write("\t")
            terminal.wait_for(completed.removeprefix(typed))
            terminal.write("\x15")  # ^U: the line is gone
            terminal.write(" echo on''ward\n")
            terminal.wait_for("onward")
            terminal.wait_for(PROMPT)
    finally:
        terminal.close()


def test_bash_gets_all_commands(environment: dict[str, str]) -> None:
    script = (
        'eval "$(openresponses-bridge completion bash)"\n'
        'COMP_WORDS=(openresponses-bridge ""); COMP_CWORD=1\n'
        "_openresponses_bridge_completion openresponses-bridge\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = run([shell_of("bash"), "--norc", "--noprofile", "-c", script], environment)
    assert done.splitlines() == list(_COMMANDS)


def test_fish_completes(environment: dict[str, str]) -> None:
    """As its user has it: from the file of completions, which is read when the program is first typed."""
    fish = shell_of("fish")
    folder = Path(environment["XDG_CONFIG_HOME"]) / "fish" / "completions"
    folder.mkdir(parents=True)
    script = run(["openresponses-bridge", "completion", "fish"], environment)
    (folder / "openresponses-bridge.fish").write_text(script)
    for typed, completed in TYPED.items():
        offered = run([fish, "-c", f"complete -C '{typed}'"], environment).splitlines()
        assert completed.rpartition(" ")[2] in [each.partition("\t")[0] for each in offered], (typed, offered)
    offered = run([fish, "-c", "complete -C 'openresponses-bridge '"], environment).splitlines()
    assert {each.partition("\t")[0] for each in offered} == set(_COMMANDS)


def run(command: list[str], environment: dict[str, str]) -> str:
    program = shutil.which(command[0], path=environment["PATH"])
    assert program is not None
    done = subprocess.run(
        [program, *command[1:]],
        env=environment,
        cwd=environment["HOME"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
