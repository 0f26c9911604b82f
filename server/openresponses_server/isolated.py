"""Python processes of this program's own, which import what this process can import and nothing from the
folder in which they run.

A model, a client or whoever filled the working directory may have put a `json.py` there. `python -m` and
`python -c` look there first, and with them the processes of the standard library's pools and of anyio's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final

_READ: Final = 65536
_STDIN: Final = 0


def isolated_command(module: str, *arguments: str) -> list[str]:
    """The command line of a process that calls `main` of this module. `-I` keeps the working directory, the
    folder of a script and PYTHON… variables out of it; its path is this process's, without what depends on
    the working directory."""
    path = [entry for entry in sys.path if os.path.isabs(entry)]
    program = f"import sys; sys.path[:] = {path!r}; from {module} import main; main()"
    return [sys.executable, "-I", "-u", "-c", program, *arguments]


class IsolatedProcess:
    """One that answers questions, a line of bytes each, by lines (`answer_lines` in its `main`), one after
    the other. Its working directory is the root, and what it prints goes nowhere."""

    def __init__(self, module: str) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                isolated_command(module),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )

    async def ask(self, line: bytes) -> bytes:
        """The answer to a line without an end. Raises ConnectionError when the process has ended. After that,
        and when it was cancelled, the process is to be ended."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, line + b"\n")
        answer = bytearray()
        while not answer.endswith(b"\n"):
            data = await loop.sock_recv(self._socket, _READ)
            if not data:
                raise ConnectionResetError("the process has ended")
            answer += data
        return bytes(answer[:-1])

    def end(self) -> None:
        """Whatever it does."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def answer_lines(answer: Callable[[bytes], bytes]) -> None:
    """Answer the questions of an `IsolatedProcess`, until its parent closes it or is gone."""
    with socket.socket(fileno=_STDIN) as parent, parent.makefile("rwb") as lines:
        for line in lines:
            lines.write(answer(line) + b"\n")
            lines.flush()
