"""Programs of the operator that run as children of the server: started, read, and ended together with their
own children."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from importlib import resources
from typing import Final

import structlog

from openresponses_server.tasks import end_tasks

NOT_FOUND: Final = 127
"""The exit code of a child whose program can't be run, as shells have it."""
_LAST_WORDS: Final = 3.0  # seconds for reading what an ended program has written
_BUFFERED: Final = 64 * 1024  # half of the bytes that are buffered before reading pauses
# folders and languages; keys and proxies with passwords are given by name in the settings
_INHERITED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL"),
    *("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
)
_log = structlog.get_logger(__name__)


def inherited_environment(*more: str) -> dict[str, str]:
    """The variables of the server's own environment that its children get: those that name folders and
    languages, and `more`."""
    return {name: os.environ[name] for name in (*_INHERITED, *more) if name in os.environ}


def kill_group(pid: int) -> None:
    """Kill the process, which leads a group of its own, and what it has started, also after it has ended; on
    Windows the process alone."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL)


class ChildProcess:
    """A running program, with pipes for its input, output and standard error."""

    def __init__(self, process: Process, transport: asyncio.SubprocessTransport) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self._process = process
        self._transport = transport

    @classmethod
    async def start(cls, command: Collection[str], environment: Mapping[str, str], cwd: str) -> ChildProcess:
        """Start a program, which the system ends with the server where it can. Raises OSError; a program that
        is not found ends with the code `NOT_FOUND` instead."""
        loop = asyncio.get_running_loop()
        launcher = resources.files(__package__).joinpath("launcher.py")
        # as asyncio.create_subprocess_exec does, which keeps the transport to itself
        transport, streams = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(_BUFFERED, loop),
            *(sys.executable, "-I", "-S", str(launcher), str(os.getpid()), *command),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment,
            cwd=cwd,
            start_new_session=True,  # its own process group, to be ended with its children
        )
        return cls(Process(transport, streams, loop), transport)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self, seconds: float) -> int | None:
        """The exit code; None if the program still runs after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode

    def kill(self) -> None:
        """Kill the program and its children."""
        kill_group(self.pid)

    async def stop(self, seconds: float, readers: Collection[asyncio.Task[None]] = ()) -> None:
        """End the program and its children: close its input, kill them after `seconds`. `readers` are the
        tasks that read its output; they are ended too."""
        self.stdin.close()
        await self.wait(seconds)
        self.kill()
        await self._process.wait()
        if readers:  # only a process that left the group can still hold the other ends of the pipes
            await asyncio.wait(readers, timeout=_LAST_WORDS)
            await end_tasks(readers)
        self._transport.close()


class LineTooLong(ValueError):
    """A line has more bytes than allowed."""


class LineSplitter:
    """Splits bytes into lines of at most `most` bytes; the cost is linear however the bytes were cut."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; returns the lines completed by them, without their ends. Raises LineTooLong."""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._held, whole[0]])
            self._held, self._size = [], 0
        if rest:
            self._held.append(rest)
            self._size += len(rest)
        if self._size > self._most or any(len(line) > self._most for line in whole):
            raise LineTooLong
        return [line for each in whole if (line := each.strip())]


_LONGEST: Final = 500  # logged characters of a line
_PER_WINDOW: Final = 20  # lines
_WINDOW: Final = 10.0  # seconds
_STDERR_READ: Final = 16 * 1024


async def log_stderr(
    stream: asyncio.StreamReader, event: str, clean: Callable[[str], str], **fields: str
) -> None:
    """Log a process's standard error as `event` with these fields, bounded and without secrets. Reads to the
    end, so that the process never blocks; logs a bounded number of lines in each window, and then how many
    were left out (`event` with `_left_out`)."""
    loop = asyncio.get_running_loop()
    begun, lines, rest = loop.time(), 0, b""
    while data := await stream.read(_STDERR_READ):
        *whole, rest = (rest + data).split(b"\n")
        rest = rest[:_LONGEST]
        for line in whole:
            now = loop.time()
            if now - begun > _WINDOW:
                if lines > _PER_WINDOW:
                    _log.info(f"{event}_left_out", lines=lines - _PER_WINDOW, **fields)
                begun, lines = now, 0
            lines += 1
            if lines <= _PER_WINDOW and line.strip():
                # cleaned before it is cut: half a secret would not be found
                text = clean(line[: 4 * _LONGEST].decode("utf-8", "replace"))[:_LONGEST]
                _log.info(event, line=text, **fields)
