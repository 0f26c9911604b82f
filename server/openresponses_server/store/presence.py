"""Which of the processes that share a store have stopped, known by what ends with a process and not by a
lease that runs out."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")


class Presence(Protocol):
    """One per process. It never raises: what can't be known is left to the leases."""

    async def appear(self) -> None:
        """Be seen by the others until `leave`, or until this process stops."""
        ...

    async def departed(self) -> set[str]:
        """The names of processes that were there and have stopped; each until it is forgotten."""
        ...

    async def forget(self, process: str) -> None:
        """Nothing of this process is left to settle."""
        ...

    async def leave(self) -> None:
        """Be seen no longer."""
        ...


class Alone:
    """For a store that no other process can use."""

    async def appear(self) -> None:
        return None

    async def departed(self) -> set[str]:
        return set()

    async def forget(self, process: str) -> None:
        return None

    async def leave(self) -> None:
        return None


class SeveralWays:
    """Seen in each of these ways; one suffices to know that a process has stopped."""

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
    from openresponses_server.store.process_files import ProcessFiles

    return ProcessFiles(folder, process)


def shared_folder(name: str) -> Path:
    """Where all processes of this user on this machine find it, whatever their surroundings."""
    user = 0 if sys.platform == "win32" else os.getuid()
    return Path(tempfile.gettempdir()) / f"openresponses-bridge-{user}-{name}"


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    return await asyncio.gather(*calls)
