"""Where traces are kept and which requests are traced. A trace is a file `FOLDER/OWNER/RESPONSE.jsonl`, which
only the user who runs this may read; files that are too old go, and the oldest of those who have most when
all together are too large.
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
from openresponses_server.observation.recordings.records import Asked
from openresponses_server.observation.recordings.writer import RecordingFile
from openresponses_server.observation.traces import Trace
from openresponses_server.settings import Tracing, seconds_of
from openresponses_server.settings.files import hashed, is_among

HEADER: Final = "openresponses-trace"
_YES: Final = frozenset({"1", "true", "on", "yes"})
_NO_OWNER: Final = "nobody"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_SWEPT_EVERY: Final = 60.0  # seconds between two looks at the folder, at least
_SHARE: Final = 0.02  # of the time that these looks may take
_LEFT: Final = 0.9  # of what there may be, after some had to go
_log = structlog.get_logger(__name__)


class _File(NamedTuple):
    written_at: float
    size: int
    path: str


class Traces:
    """The traces of this host by these settings; `secrets` are taken out of everything that a client is sent,
    beside its own. `now` gives Unix seconds."""

    def __init__(self, settings: Tracing, secrets: Iterable[str] = ()) -> None:
        assert settings.folder is not None
        self._folder = Path(settings.folder)
        self._settings = settings
        self._retention = seconds_of(settings.retention)
        self._secrets = list(secrets)
        self._used = 0
        self._sweep_now = asyncio.Event()

    def begin(self, asked: Asked, headers: Mapping[str, str], owner: str, key: str | None) -> Trace | None:
        """The trace of this request of the owner's, who shows `key`, without its body; None when it is not to
        be traced."""
        if not self._wanted(headers, key):
            return None
        secrets = [*self._secrets, key or "", *secrets_in(headers)]
        return Trace(asked, secrets, partial(self._made, owner), self._left)

    def _wanted(self, headers: Mapping[str, str], key: str | None) -> bool:
        given = self._settings
        if given.when == "asked" and headers.get(HEADER, "").strip().lower() not in _YES:
            return False
        return not given.keys or (key is not None and is_among(key, given.keys))

    def _made(self, owner: str, response_id: str) -> RecordingFile | None:
        if _ID.fullmatch(response_id) is None:
            return None
        if self._used > self._settings.total_bytes:
            self._sweep_now.set()
            _log.warning("trace.no_room", response_id=response_id)
            return None
        file = RecordingFile(self._path(owner, response_id), self._settings.bytes)
        file.create()
        return None if file.failure else file

    def _left(self, file: RecordingFile) -> None:
        self._used += file.grown()

    def _path(self, owner: str, response_id: str) -> Path:
        return self._folder / (hashed(owner)[7:39] if owner else _NO_OWNER) / f"{response_id}.jsonl"

    def find(self, owner: str, response_id: str) -> Path | None:
        """The file with the owner's trace of this response; None when there is none."""
        if _ID.fullmatch(response_id) is None:
            return None
        path = self._path(owner, response_id)
        try:
            return path if stat.S_ISREG(path.lstat().st_mode) else None
        except OSError:
            return None

    def forget(self, owner: str, response_id: str) -> None:
        """The response was deleted: so is its trace."""
        if _ID.fullmatch(response_id) is not None:
            with suppress(OSError):
                self._path(owner, response_id).unlink()

    async def keep(self) -> None:
        """Remove what is too old or too much, for ever."""
        while True:
            began = time.monotonic()
            await asyncio.to_thread(self.sweep)
            self._sweep_now.clear()
            pause = max(_SWEPT_EVERY, (time.monotonic() - began) / _SHARE)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._sweep_now.wait()

    def sweep(self, now: float | None = None) -> None:
        """Do it once; at this time (Unix seconds)."""
        now = time.time() if now is None else now
        oldest = 0.0 if self._retention is None else now - self._retention
        kept: defaultdict[str, list[_File]] = defaultdict(list)
        for owner, file in self._files():
            if file.written_at < oldest:
                _remove(file)
            else:
                kept[owner].append(file)
        used = sum(file.size for files in kept.values() for file in files)
        if used > self._settings.total_bytes:
            used -= _thin_out(kept, used - int(_LEFT * self._settings.total_bytes))
        self._used = used

    def _files(self) -> Iterator[tuple[str, _File]]:
        for folder in _entries(self._folder):
            if not folder.is_dir(follow_symlinks=False):
                continue
            for entry in _entries(folder.path):
                with suppress(OSError):
                    if entry.is_file(follow_symlinks=False) and entry.name.endswith(".jsonl"):
                        found = entry.stat(follow_symlinks=False)
                        yield folder.name, _File(found.st_mtime, found.st_size, entry.path)


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _thin_out(kept: dict[str, list[_File]], most: int) -> int:
    """Remove at least so many bytes, the oldest of whoever has most; how many it were."""
    owners = [(-sum(file.size for file in files), owner) for owner, files in kept.items()]
    heapq.heapify(owners)
    for files in kept.values():
        files.sort(reverse=True)
    removed = 0
    while removed < most and owners:
        size, owner = owners[0]
        file = kept[owner].pop()
        _remove(file)
        removed += file.size
        if kept[owner]:
            heapq.heapreplace(owners, (size + file.size, owner))
        else:
            heapq.heappop(owners)
    return removed


def _remove(file: _File) -> None:
    with suppress(OSError):
        os.unlink(file.path)
