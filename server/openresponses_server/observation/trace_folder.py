"""The folder of traces, and which requests are traced. A trace is a file `FOLDER/OWNER/RESPONSE.jsonl`,
readable only by the server's user. Old files are removed; if the folder is still too large, the oldest files
of the owner with the most bytes are removed too.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from openresponses_server.observation.recordings.masking import secrets_in
from openresponses_server.observation.recordings.records import RecordedRequest
from openresponses_server.observation.recordings.writer import RecordingFile
from openresponses_server.observation.traces import Trace
from openresponses_server.settings import Tracing, seconds_of
from openresponses_server.settings.files import hashed, is_among

HEADER: Final = "openresponses-trace"
_YES: Final = frozenset({"1", "true", "on", "yes"})
_NO_OWNER: Final = "nobody"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_SWEPT_EVERY: Final = 60.0  # seconds between two sweeps, at least
_SHARE: Final = 0.02  # of the time that sweeps may take
_LEFT: Final = 0.9  # of the total limit: the size after a sweep that found it exceeded
_log = structlog.get_logger(__name__)


class _File(NamedTuple):
    written_at: float
    size: int
    path: str


class Traces:
    """The traces of this host. `secrets`, and the client's own, are masked in everything that a client is
    sent. `now` returns Unix seconds."""

    def __init__(self, settings: Tracing, secrets: Iterable[str] = ()) -> None:
        assert settings.folder is not None
        self._folder = Path(settings.folder)
        self._settings = settings
        self._retention = seconds_of(settings.retention)
        self._secrets = list(secrets)
        self._used = 0
        self._sweep_now = asyncio.Event()

    def begin(
        self, request: RecordedRequest, headers: Mapping[str, str], owner: str, key: str | None
    ) -> Trace | None:
        """Begin the trace of this owner's request, which was sent with `key` and has no body yet; None if it
        is not traced."""
        if not self._wanted(headers, key):
            return None
        secrets = [*self._secrets, key or "", *secrets_in(headers)]
        return Trace(request, secrets, partial(self._create, owner), self._add_size)

    def _wanted(self, headers: Mapping[str, str], key: str | None) -> bool:
        settings = self._settings
        if settings.when == "asked" and headers.get(HEADER, "").strip().lower() not in _YES:
            return False
        return not settings.keys or (key is not None and is_among(key, settings.keys))

    def _create(self, owner: str, response_id: str) -> RecordingFile | None:
        if _ID.fullmatch(response_id) is None:
            return None
        if self._used > self._settings.total_bytes:
            self._sweep_now.set()
            _log.warning("trace.no_room", response_id=response_id)
            return None
        file = RecordingFile(self._path(owner, response_id), self._settings.bytes)
        file.create()
        return None if file.failure else file

    def _add_size(self, file: RecordingFile) -> None:
        self._used += file.grown()

    def _path(self, owner: str, response_id: str) -> Path:
        return self._folder / (hashed(owner)[7:39] if owner else _NO_OWNER) / f"{response_id}.jsonl"

    def find(self, owner: str, response_id: str) -> Path | None:
        """Return the file with the owner's trace of this response; None if there is none."""
        if _ID.fullmatch(response_id) is None:
            return None
        path = self._path(owner, response_id)
        try:
            return path if stat.S_ISREG(path.lstat().st_mode) else None
        except OSError:
            return None

    def delete(self, owner: str, response_id: str) -> None:
        """Delete the trace of a response that was deleted."""
        if _ID.fullmatch(response_id) is not None:
            with suppress(OSError):
                self._path(owner, response_id).unlink()

    async def keep(self) -> None:
        """Sweep periodically, until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.to_thread(self.sweep)
            self._sweep_now.clear()
            pause = max(_SWEPT_EVERY, (time.monotonic() - began) / _SHARE)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._sweep_now.wait()

    def sweep(self, now: float | None = None) -> None:
        """Remove traces that are too old, and those that exceed the total limit. `now` is Unix seconds."""
        now = time.time() if now is None else now
        oldest = 0.0 if self._retention is None else now - self._retention
        by_owner: defaultdict[str, list[_File]] = defaultdict(list)
        for owner, file in self._files():
            if file.written_at < oldest:
                _remove(file)
            else:
                by_owner[owner].append(file)
        used = sum(file.size for files in by_owner.values() for file in files)
        if used > self._settings.total_bytes:
            used -= _thin_out(by_owner, used - int(_LEFT * self._settings.total_bytes))
        self._used = used

    def _files(self) -> Iterator[tuple[str, _File]]:
        for folder in _entries(self._folder):
            if not folder.is_dir(follow_symlinks=False):
                continue
            for entry in _entries(folder.path):
                with suppress(OSError):
                    if entry.is_file(follow_symlinks=False) and entry.name.endswith(".jsonl"):
                        info = entry.stat(follow_symlinks=False)
                        yield folder.name, _File(info.st_mtime, info.st_size, entry.path)


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _thin_out(by_owner: dict[str, list[_File]], most: int) -> int:
    """Remove at least this many bytes, always the oldest file of the owner with the most. Returns how many
    were removed."""
    owners = [(-sum(file.size for file in files), owner) for owner, files in by_owner.items()]
    heapq.heapify(owners)
    for files in by_owner.values():
        files.sort(reverse=True)
    removed = 0
    while removed < most and owners:
        size, owner = owners[0]
        file = by_owner[owner].pop()
        _remove(file)
        removed += file.size
        if by_owner[owner]:
            heapq.heapreplace(owners, (size + file.size, owner))
        else:
            heapq.heappop(owners)
    return removed


def _remove(file: _File) -> None:
    with suppress(OSError):
        os.unlink(file.path)
