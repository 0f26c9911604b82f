"""Short messages between the processes of one machine: each reads a named pipe of its own in a folder that
they share. A message costs its writer one call, and its reader's loop wakes up for it."""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

_SUFFIX: Final = ".pipe"
_READ_AT_ONCE: Final = 64 * 1024  # what a pipe holds
_MOST_WAITING: Final = 10_000  # messages for a process that does not read, which may stand still
_MOST_BYTES: Final = min(select.PIPE_BUF, 512)  # of a message: its writing is never mixed with another's
_FLAGS: Final = os.O_NONBLOCK | os.O_NOFOLLOW
_log = structlog.get_logger(__name__)

Handler = Callable[[list[str]], None]
"""Called with the words of a message after the first one."""


class Pipes:
    """The pipe of `process` in `folder`, which is this user's alone, and those of the others there. A process
    can be sent messages from `open` to `close`, or until it stops. Messages of one sender arrive in their
    order; those to a process that has stopped, or reads none for long, are lost."""

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self.handlers: dict[str, Handler] = {}
        """What is called for messages, by their first word."""
        self._folder = folder
        self._path = folder / f"{process}{_SUFFIX}"
        self._file: int | None = None
        self._cut = b""  # the beginning of a message whose end is not read yet
        self._peers: dict[str, _Peer] = {}

    def open(self) -> None:
        """Receive messages from now on, on this loop. Raises OSError."""
        if self._file is not None:
            return
        draft = self._path.with_suffix(".new")  # nobody finds a pipe that nobody reads
        with suppress(FileNotFoundError):
            draft.unlink()
        os.mkfifo(draft, 0o600)
        self._file = os.open(draft, os.O_RDWR | _FLAGS)  # as a writer too: it has no end when others leave
        draft.rename(self._path)
        asyncio.get_running_loop().add_reader(self._file, self._receive)

    def close(self) -> None:
        """Receive no more messages."""
        for peer in list(self._peers.values()):
            peer.close()
        if self._file is not None:
            asyncio.get_running_loop().remove_reader(self._file)
            os.close(self._file)
            self._file = None
            with suppress(OSError):
                self._path.unlink()

    def send(self, process: str, *words: str) -> bool:
        """Send a message of words without spaces to that process; returns whether it is there to read it."""
        peer = self._peers.get(process) or self._connect(process)
        return peer is not None and peer.send(_message(words))

    def send_all(self, *words: str) -> None:
        """Send a message to every other process of the folder."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in names:
            process = name.removesuffix(_SUFFIX)
            if process in (name, self.process):
                continue
            if (peer := self._peers.get(process) or self._connect(process)) is not None:
                peer.send(_message(words))
            else:
                self._remove_left(name)

    def _connect(self, process: str) -> _Peer | None:
        try:
            file = os.open(self._folder / f"{process}{_SUFFIX}", os.O_WRONLY | _FLAGS)
        except OSError:  # ENXIO: it has stopped
            return None
        if not stat.S_ISFIFO(os.fstat(file).st_mode):
            os.close(file)
            return None
        peer = self._peers[process] = _Peer(file, lambda: self._peers.pop(process, None))
        return peer

    def _remove_left(self, name: str) -> None:
        """Remove the pipe of a process that has stopped."""
        with suppress(OSError):
            (self._folder / name).unlink()

    def _receive(self) -> None:
        assert self._file is not None
        try:
            data = os.read(self._file, _READ_AT_ONCE)
        except BlockingIOError:
            return
        *lines, self._cut = (self._cut + data).split(b"\n")
        for line in _latest(lines):
            kind, *words = line.decode(errors="replace").split(" ")
            try:
                if (handler := self.handlers.get(kind)) is not None:
                    handler(words)
            except Exception:  # the other messages must still be received
                _log.exception("pipes.internal_error")


def _message(words: tuple[str, ...]) -> bytes:
    return " ".join(words).encode() + b"\n"


def _latest(lines: list[bytes]) -> list[bytes]:
    """The messages without repetitions, each where it came last: in between it may have been revoked."""
    return [*dict.fromkeys(reversed(lines))][::-1]


class _Peer:
    """Another process' pipe. What it can't take now waits until it can."""

    def __init__(self, file: int, on_closed: Callable[[], object]) -> None:
        self._file = file
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[bytes, None] = {}

    def send(self, message: bytes) -> bool:
        """Send it, now or later; returns whether somebody reads there."""
        if len(message) > _MOST_BYTES:
            raise ValueError(f"a message has at most {_MOST_BYTES} bytes")
        if self._waiting:
            self._waiting.pop(message, None)  # its latest place counts, as for its reader
            self._waiting[message] = None
            if len(self._waiting) > _MOST_WAITING:
                self.close()
            return self._file >= 0
        return self._write(message)

    def close(self) -> None:
        """Close it; waiting messages are lost."""
        if self._file >= 0:
            if self._waiting:
                self._loop.remove_writer(self._file)
            os.close(self._file)
            self._file = -1
            self._on_closed()

    def _write(self, message: bytes) -> bool:
        try:
            os.write(self._file, message)
        except BlockingIOError:
            if not self._waiting:
                self._loop.add_writer(self._file, self._go_on)
            self._waiting[message] = None
        except OSError:  # nobody reads it any more
            self.close()
        return self._file >= 0

    def _go_on(self) -> None:
        while self._waiting and self._file >= 0:
            message = next(iter(self._waiting))
            try:
                os.write(self._file, message)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            del self._waiting[message]
        if self._file >= 0:
            self._loop.remove_writer(self._file)
