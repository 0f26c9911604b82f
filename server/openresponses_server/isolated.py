"""Python child processes that can import what this process can, and nothing from their working directory.

A model, a client or anyone who can write there may have put a `json.py` into the working directory. `python
-m` and `python -c` search it first, and so do the process pools of the standard library and of anyio.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from typing import Final

_READ: Final = 65536


def isolated_command(module: str, *arguments: str) -> list[str]:
    """The command line of a process that calls the module's `main`. `-I` ignores the working directory, the
    script's folder and PYTHON… variables; `sys.path` is this process's, without entries that depend on the
    working directory."""
    path = [entry for entry in sys.path if os.path.isabs(entry)]
    run = "from openresponses_server.serving.preload import run_main; run_main"
    program = f"import sys; sys.path[:] = {path!r}; {run}({module!r})"
    return [sys.executable, "-I", "-u", "-c", program, *arguments]


class IsolatedProcess:
    """A process whose `main` answers lines of bytes by lines, one after the other, on the socket that is its
    standard input. Its working directory is the root, and its output is discarded."""

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
        """Send a line, given without its line end, and return the answer. Raises ConnectionError if the
        process has ended. After an error or a cancellation, call `end`."""
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
        """Kill the process."""
        self._socket.close()
        self._process.kill()
        self._process.wait()
