"""An agent's process: the terminal is its own, signals go on to it, and its exit code comes back."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

_OF_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to all processes in its foreground, so that the agent gets them by itself."""
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_SIGNALLED: Final = 128  # the exit code of a shell for what a signal ended, with the signal's number added


def run_agent(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run it to its end with this process's terminal, and return the exit code of a shell. Raises OSError
    when it can't be started."""
    with _forwarding() as children, subprocess.Popen(command, env=environment) as child:
        children.append(child)
        code = child.wait()
    return code if code >= 0 else _SIGNALLED - code


@contextmanager
def _forwarding() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Signals go to the processes in the list that it gives, and to those that are put into it later."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if number in _OF_TERMINAL and _in_foreground():
            return
        for child in children:
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (*_OF_TERMINAL, *_FORWARDED)}
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether this process's group is the one that a terminal sends its signals to."""
    with suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False
