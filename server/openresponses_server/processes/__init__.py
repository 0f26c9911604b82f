"""Programs of the operator that run as children of the server: started, read, and ended together with their
own children."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from importlib import resources
from typing import Final, NamedTuple

import structlog

from openresponses_server.tasks import end_tasks

NOT_FOUND: Final = 127
"""The exit code of a child whose program can't be run, as shells have it."""
_LAST_WORDS: Final = 3.0  # seconds for reading what an ended program has written
_KEPT: Final = 512  # bytes of each end of an oversized line
_DISCARDED: Final = 32  # times as many bytes as a line may have are read to find its end
_STUCK: Final = 30.0  # seconds for which a program may read nothing of what it is sent
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


class EndingProtocol(SubprocessStreamProtocol):
    """The protocol of a program whose end is known at once. `Process.wait` waits in some releases of Python
    until nobody holds the program's pipes, which what it has started may do for ever."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(_BUFFERED, loop)
        self.ended = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.ended.set()


class ChildProcess:
    """A running program, with pipes for its input, output and standard error."""

    def __init__(
        self, process: Process, transport: asyncio.SubprocessTransport, protocol: EndingProtocol
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self._process = process
        self._transport = transport
        self._ended = protocol.ended

    @classmethod
    async def start(cls, command: Collection[str], environment: Mapping[str, str], cwd: str) -> ChildProcess:
        """Start a program, which the system ends with the server where it can. Raises OSError; a program that
        is not found ends with the code `NOT_FOUND` instead."""
        loop = asyncio.get_running_loop()
        launcher = resources.files(__package__).joinpath("launcher.py")
        # as asyncio.create_subprocess_exec does, which keeps the transport to itself
        transport, streams = await loop.subprocess_exec(
            lambda: EndingProtocol(loop),
            *(sys.executable, "-I", "-S", str(launcher), str(os.getpid()), *command),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment,
            cwd=cwd,
            start_new_session=True,  # its own process group, to be ended with its children
        )
        return cls(Process(transport, streams, loop), transport, streams)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self, seconds: float) -> int | None:
        """The exit code; None if the program still runs after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
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
        await self._ended.wait()
        if readers:  # only a process that left the group can still hold the other ends of the pipes
            await asyncio.wait(readers, timeout=_LAST_WORDS)
            await end_tasks(readers)
        self._transport.close()


# `{"jsonrpc":"2.0","id":1,…` or `…,"jsonrpc":"2.0","id":1}`, in either order
_ID: Final = rb'"id"\s*:\s*(-?[0-9]{1,18}|"[^"\\]{0,200}")'
_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"'
_FIRST: Final = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,")
_LAST: Final = re.compile(rb"(?<!\\)" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*$")
_OF_REQUEST: Final = re.compile(rb"\s*\{(?:\s*(?:" + _VERSION + rb"|" + _ID + rb')\s*,){0,2}\s*"method"')


class OversizedLine(NamedTuple):
    """The two ends of a line that has more bytes than allowed; the rest was discarded."""

    start: bytes
    end: bytes

    @property
    def answered(self) -> int | str | None:
        """The id of the request that it answers, if it is an answer of JSON-RPC; None if its ends do not
        say."""
        match = _FIRST.match(self.start) or _LAST.search(self.end)
        if match is None or _OF_REQUEST.match(self.start):
            return None
        raw: bytes = match[1]
        return raw[1:-1].decode(errors="replace") if raw.startswith(b'"') else int(raw)


class LineTooLong(ValueError):
    """A line has so many bytes that its end is not waited for."""


class LineSplitter:
    """Splits bytes into lines of at most `most` bytes; the cost is linear however the bytes were cut. Of a
    longer line only its ends are kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: list[bytes] = []
        self._size = 0
        self._oversized: OversizedLine | None = None
        """The ends of the line that is being read, once it is too long."""

    def feed(self, data: bytes) -> list[bytes | OversizedLine]:
        """Add bytes; returns the lines completed by them, without their ends. Raises LineTooLong for a line
        that has many times as many bytes as it may and goes on."""
        *whole, rest = data.split(b"\n")
        lines: list[bytes | OversizedLine] = []
        for number, piece in enumerate(whole):
            if number == 0 or len(piece) > self._most:
                self._add(piece)
                line: bytes | OversizedLine = self._oversized or b"".join(self._held).strip()
                self._held, self._size, self._oversized = [], 0, None
            else:  # nothing was held
                line = piece.strip()
            if line:
                lines.append(line)
        if rest:
            self._add(rest)
            if self._size > _DISCARDED * self._most:
                raise LineTooLong
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._oversized is not None:
            start, end = self._oversized
            self._oversized = OversizedLine(start, (end + piece[-_KEPT:])[-_KEPT:])
            return
        self._held.append(piece)
        if self._size > self._most:
            line = b"".join(self._held)
            self._held = []
            self._oversized = OversizedLine(line[:_KEPT], line[-_KEPT:])


class LineWriter:
    """Writes lines to a program without waiting for it, as long as it reads."""

    def __init__(self, child: ChildProcess, most: int) -> None:
        """`most`: the bytes that it may have left unread."""
        self._pipe = child.stdin.transport
        self._most = most
        self._written = 0
        self._read = 0  # what the program had read when it was last found to leave too much
        self._since: float | None = None

    def write(self, line: bytes) -> bool:
        """Write a line, given with its end; returns False, and writes nothing, while the program has left too
        much unread. Raises BrokenPipeError if the program had ended before, and TimeoutError if it has read
        nothing for half a minute."""
        unread = self._pipe.get_write_buffer_size()
        if unread > self._most:
            now, read = asyncio.get_running_loop().time(), self._written - unread
            if self._since is None or read != self._read:
                self._since, self._read = now, read
            if now - self._since >= _STUCK:
                raise TimeoutError
            return False
        self._since = None
        if not self._pipe.is_closing():
            self._written += len(line)
            self._pipe.write(line)
        if self._pipe.is_closing():  # now, if nobody has the other end any more
            raise BrokenPipeError
        return True


_LONGEST: Final = 500  # logged characters of a line
_CLEANED: Final = 4 * _LONGEST  # bytes of it that are kept: half a secret would not be found
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
    has_ended = False
    while not has_ended:
        data = await stream.read(_STDERR_READ)
        *whole, rest = (rest + data).split(b"\n")
        has_ended = not data
        if has_ended:
            whole = [rest]  # last words need not end their line
        rest = rest[:_CLEANED]
        for line in whole:
            now = loop.time()
            if now - begun > _WINDOW:
                if lines > _PER_WINDOW:
                    _log.info(f"{event}_left_out", lines=lines - _PER_WINDOW, **fields)
                begun, lines = now, 0
            lines += 1
            if lines <= _PER_WINDOW and line.strip():
                text = clean(line[:_CLEANED].decode("utf-8", "replace"))[:_LONGEST]
                _log.info(event, line=text, **fields)
