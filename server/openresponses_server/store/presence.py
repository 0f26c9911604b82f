"""Detects stopped processes of a store by locks or connections that end with a process, which is sooner than
the end of their leases."""

from __future__ import annotations

import asyncio
import errno
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

if sys.platform != "win32":  # `file_presence` detects nothing there
    import fcntl

# Each process of a machine holds a lock on a file of its own. The kernel releases the lock when the process
# ends, however it ends, and not before: an unlocked file proves that its process has stopped, also across
# containers that share the folder. Network file systems may keep the locks of each machine apart. So a file's
# name has the machine's boot id, and only files of the same machine are checked.

_log = structlog.get_logger(__name__)


class ProcessFiles:
    """A `Presence` by an empty, locked file of `process` in `folder`, where other processes have theirs. The
    folder is made for this user only; while it belongs to another user or can't be written, no process is
    detected."""

    def __init__(self, folder: Path, process: str) -> None:
        self._folder = folder
        self._here = f"@{_machine()}"
        self._file = folder / (process + self._here)
        self._held: int | None = None
        self._warned = False

    async def appear(self) -> None:
        await asyncio.to_thread(self._appear)

    async def departed(self) -> set[str]:
        return await asyncio.to_thread(self._departed)

    async def remove(self, process: str) -> None:
        with suppress(OSError):
            (self._folder / (process + self._here)).unlink()

    async def leave(self) -> None:
        if self._held is not None:
            with suppress(OSError):
                self._file.unlink()
                self._folder.rmdir()  # unless others are there
            os.close(self._held)
            self._held = None

    def _appear(self) -> None:
        try:
            make_own_folder(self._folder)
            self._held = _locked(self._file)
        except OSError as error:
            if not self._warned:
                _log.warning("presence.failed", folder=str(self._folder), reason=error.strerror)
            self._warned = True

    def _departed(self) -> set[str]:
        if self._held is None:
            self._appear()
        try:
            names = [] if self._held is None else os.listdir(self._folder)
        except OSError:
            return set()
        here = {name for name in names if name.endswith(self._here) and name != self._file.name}
        return {name.removesuffix(self._here) for name in here if self._is_unlocked(name)}

    def _is_unlocked(self, name: str) -> bool:
        try:
            file = os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(file)
        return True


def make_own_folder(folder: Path) -> None:
    """Make the folder if it is missing. Raises OSError, also if it belongs to another user, is accessible to
    others, or is a link, which others can make in a folder that everybody may write."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "it is not a folder of this user alone")


def _locked(file: Path) -> int:
    """Make and lock a file. Returns its descriptor. The file gets its name when it is locked, so that nobody
    finds it unlocked. Raises OSError."""
    unnamed = file.with_name(f"{file.name}.new")
    descriptor = os.open(unnamed, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(file)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@cache
def _machine() -> str:
    """Return the machine's boot id, the same in all its containers; the machine's name if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


T = TypeVar("T")


class Presence(Protocol):
    """Shows that this process is alive, and detects others that have stopped. Its methods do not raise: what
    they can't detect is decided by leases."""

    async def appear(self) -> None:
        """Show the other processes that this one is alive, until `leave` or until it stops."""
        ...

    async def departed(self) -> set[str]:
        """The names of processes that were seen alive and have stopped, until `remove`."""
        ...

    async def remove(self, process: str) -> None:
        """Remove a process whose runs are all settled."""
        ...

    async def leave(self) -> None:
        """Stop showing that this process is alive."""
        ...


class SingleProcess:
    """A `Presence` for a store that only one process can use."""

    async def appear(self) -> None:
        return None

    async def departed(self) -> set[str]:
        return set()

    async def remove(self, process: str) -> None:
        return None

    async def leave(self) -> None:
        return None


class CombinedPresence:
    """A `Presence` made of several; each of them can detect a stopped process."""

    def __init__(self, parts: Sequence[Presence]) -> None:
        self._parts = parts

    async def appear(self) -> None:
        await _all(part.appear() for part in self._parts)

    async def departed(self) -> set[str]:
        return set().union(*await _all(part.departed() for part in self._parts))

    async def remove(self, process: str) -> None:
        await _all(part.remove(process) for part in self._parts)

    async def leave(self) -> None:
        await _all(part.leave() for part in self._parts)


def file_presence(folder: Path, process: str) -> Presence:
    """Return a `Presence` by locked files, on systems that have them."""
    if sys.platform == "win32":
        return SingleProcess()
    return ProcessFiles(folder, process)


def shared_folder(name: str) -> Path:
    """Return a folder that is the same for all processes of this user on this machine, whatever their
    environment."""
    user = 0 if sys.platform == "win32" else os.getuid()
    return Path(tempfile.gettempdir()) / f"openresponses-bridge-{user}-{name}"


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    return await asyncio.gather(*calls)
