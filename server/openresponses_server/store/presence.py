"""Detects which processes of a store have stopped, by something that ends with a process rather than by a
lease that expires."""

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

if sys.platform != "win32":  # where `by_files` finds nobody else
    import fcntl

# Processes of one machine, each with a file that it keeps locked: the kernel lets go of a lock when its
# process ends, in whatever way, and not before. So an unlocked file proves a death, also across containers
# that share the folder. A network's file system may keep locks on each machine by itself: the name of a file
# says on which machine, and since which start of it, its process runs.

_log = structlog.get_logger(__name__)


class ProcessFiles:
    """The file of `process` in `folder`, beside those of the others, in which there is nothing. The folder is
    made for this user alone; while it is another user's, or can't be written, nothing is known."""

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

    async def forget(self, process: str) -> None:
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
            self._check_folder()
            self._held = _locked(self._file)
        except OSError as error:
            if not self._warned:
                _log.warning("presence.failed", folder=str(self._folder), reason=error.strerror)
            self._warned = True

    def _check_folder(self) -> None:
        """Make it if need be. In a folder that all may write somebody else may have made it, or put a link in
        its place: raises PermissionError."""
        with suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        found = self._folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise PermissionError(errno.EPERM, "it is not a folder of this user alone")

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


def _locked(file: Path) -> int:
    """Make the file; its descriptor. It gets its name when it is locked, so that nobody finds it unlocked.
    Raises OSError."""
    unnamed = file.with_name(f"{file.name}.new")
    held = os.open(unnamed, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(file)
    except OSError:
        os.close(held)
        raise
    return held


@cache
def _machine() -> str:
    """This machine since its last start, the same in all its containers; elsewhere than on Linux its name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


T = TypeVar("T")


class Presence(Protocol):
    """One per process. It never raises: leases decide whatever it can't know."""

    async def appear(self) -> None:
        """Be seen by the others until `leave`, or until this process stops."""
        ...

    async def departed(self) -> set[str]:
        """The names of processes that have stopped since they were seen, until they are forgotten."""
        ...

    async def forget(self, process: str) -> None:
        """Forget a process whose runs are all settled."""
        ...

    async def leave(self) -> None:
        """Stop being seen."""
        ...


class Alone:
    """The presence for a store that no other process can use."""

    async def appear(self) -> None:
        return None

    async def departed(self) -> set[str]:
        return set()

    async def forget(self, process: str) -> None:
        return None

    async def leave(self) -> None:
        return None


class SeveralWays:
    """Combines these ways; one of them suffices to detect a stopped process."""

    def __init__(self, ways: Sequence[Presence]) -> None:
        self._ways = ways

    async def appear(self) -> None:
        await _all(way.appear() for way in self._ways)

    async def departed(self) -> set[str]:
        return set().union(*await _all(way.departed() for way in self._ways))

    async def forget(self, process: str) -> None:
        await _all(way.forget(process) for way in self._ways)

    async def leave(self) -> None:
        await _all(way.leave() for way in self._ways)


def by_files(folder: Path, process: str) -> Presence:
    """By files that are locked, where there is such a thing."""
    if sys.platform == "win32":
        return Alone()
    return ProcessFiles(folder, process)


def shared_folder(name: str) -> Path:
    """Where all processes of this user on this machine find it, whatever their surroundings."""
    user = 0 if sys.platform == "win32" else os.getuid()
    return Path(tempfile.gettempdir()) / f"openresponses-bridge-{user}-{name}"


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    return await asyncio.gather(*calls)
