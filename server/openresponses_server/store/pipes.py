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
_READ_AT_ONCE: Final = 64 * 1024  # the size of a pipe
_MOST_WAITING: Final = 10_000  # messages for a process that does not read, perhaps because it is stopped
_MOST_BYTES: Final = min(select.PIPE_BUF, 512)  # of a message: it is never mixed with others
_FLAGS: Final = os.O_NONBLOCK | os.O_NOFOLLOW
_log = structlog.get_logger(__name__)

Handler = Callable[[list[str]], None]
"""Called with the words of a message after the first one."""


class Pipes:
    """The pipe of `process` in `folder`, which belongs to this user only, and those of the other processes
    there. A process can be sent messages from `open` to `close`, or until it stops. Messages of one sender
    arrive in their order. Those to a process that has stopped, or does not read for long, are lost."""

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self.handlers: dict[str, Handler] = {}
        """The functions that are called for messages, by the first word of the message."""
        self._folder = folder
        self._path = folder / f"{process}{_SUFFIX}"
        self._file: int | None = None
        self._cut = b""  # the beginning of a message that was not read completely
        self._peers: dict[str, _Peer] = {}

    def open(self) -> None:
        """Receive messages from now on, on this event loop. Raises OSError."""
        if self._file is not None:
            return
        draft = self._path.with_suffix(".new")  # so that nobody finds a pipe that is not read yet
        with suppress(FileNotFoundError):
            draft.unlink()
        os.mkfifo(draft, 0o600)
        self._file = os.open(draft, os.O_RDWR | _FLAGS)  # also as a writer: it does not end when others leave
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
        """Send a message of words without spaces to that process. Returns whether the process can read it."""
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
    """Return the messages without repetitions, each at its last position: it may have been revoked in
    between."""
    return [*dict.fromkeys(reversed(lines))][::-1]


class _Peer:
    """The pipe of another process. What it can't accept now waits until it can."""

    def __init__(self, file: int, on_closed: Callable[[], object]) -> None:
        self._file = file
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[bytes, None] = {}

    def send(self, message: bytes) -> bool:
        """Send the message, now or later. Returns whether anybody reads the pipe."""
        if len(message) > _MOST_BYTES:
            raise ValueError(f"a message has at most {_MOST_BYTES} bytes")
        if self._waiting:
            self._waiting.pop(message, None)  # its last position counts, as for its reader
            self._waiting[message] = None
            if len(self._waiting) > _MOST_WAITING:
                self.close()
            return self._file >= 0
        return self._write(message)

    def close(self) -> None:
        """Close the pipe; waiting messages are lost."""
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
