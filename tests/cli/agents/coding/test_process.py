"""An agent's process: its exit code, signals, and a terminal that is its own."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from openresponses_cli.agents.coding.running import run_agent

RUNNER = """
import sys
from openresponses_cli.agents.coding.running import run_agent
code = run_agent(sys.argv[1:], {})
print("ended", code, flush=True)
sys.exit(code)
"""
# says that it is there, counts the signals that it gets, and ends at SIGTERM
COUNTING = """
import os, signal, sys, time
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append("INT"))
signal.signal(signal.SIGHUP, lambda *_: seen.append("HUP"))
def end(*_):
    print("saw", *seen, os.isatty(0), flush=True)
    sys.exit(9)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(("program", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_exit_code_is_the_agents(program: str, code: int) -> None:
    assert run_agent(["/bin/sh", "-c", program], {}) == code


def test_handlers_are_what_they_were_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run_agent(["/bin/true"], {})
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_agent([str(tmp_path / "none")], {})


def test_signals_go_on_to_it() -> None:
    """Without a terminal that sends them to both."""
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER, sys.executable, "-c", COUNTING],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in (signal.SIGINT, signal.SIGHUP):
            process.send_signal(number)
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read().splitlines() == ["saw INT HUP False", "ended 9"]
    assert process.returncode == 9


def test_ctrl_c_in_its_terminal_reaches_it_once() -> None:
    """The terminal sends it to both, and `run` goes on until the agent has ended."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", RUNNER, sys.executable, "-c", COUNTING])
    try:
        assert "ready" in until(terminal, "ready")
        os.write(terminal, b"\x03")
        time.sleep(0.2)
        os.kill(child, signal.SIGTERM)
        assert "saw INT True" in until(terminal, "ended 9")
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 9
    finally:
        os.close(terminal)


def until(terminal: int, word: str) -> str:
    """What is read up to and with this word."""
    output = ""
    while word not in output:
        assert select.select([terminal], [], [], 10)[0], output
        output += os.read(terminal, 1000).decode()
    return output
