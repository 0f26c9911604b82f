"""Event logs in files of this machine, one per run: every process of the machine reads what one appends, at
once, and also after that one was killed.

A file is appended to by a plain call, so that the kernel has the frames when it returns; a power cut may lose
them, or with `fsync` only those of the last seconds. A process that acquires a log appends a mark. The former
writer's next record is then at another position than the one it was written for, which the writer and readers
notice. A process that waits for a log registers with its writer, which sends a message whenever it has
appended: nobody polls.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from openresponses_server.settings.data_folder import make_private
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.logs.base import (
    CHUNK_BYTES,
    LIFETIME,
    LINGER,
    MARKED,
    Appender,
    Failed,
    LogError,
    LogGap,
    LogGone,
)
from openresponses_server.store.logs.file_records import HEAD_BYTES, Kind, Record, RecordReader, head_of
from openresponses_server.store.logs.file_sync import DiskSync
from openresponses_server.store.pipes import Pipes
from openresponses_server.store.presence import make_own_folder

_MAX_LOG_BYTES: Final = 32 * 1024 * 1024
_MAX_BYTES: Final = 256 * 1024 * 1024
_STEP: Final = 64 * 1024  # bytes of a log between two checks of the limits
_VERSION: Final = "1"
_ACQUIRING: Final = frozenset({Kind.ACQUIRED, Kind.CLOSED, Kind.DISCARDED})
_EVENTS: Final = "events"  # the logs' folder, within the one that processes share
_EARLIER: Final = ".1"  # ends the name of the previous file
_DRAFT: Final = ".new"
_SWEPT_EVERY: Final = 60.0  # seconds between two searches for what others have left
_LEFT_FOR: Final = 60.0  # seconds without an append after which a closed log counts as left
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_FLAGS: Final = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_APPENDING: Final = os.O_RDWR | os.O_APPEND | _FLAGS
_CHANGED: Final = "changed"
_WATCH: Final = "watch"
_UNWATCH: Final = "unwatch"
_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = re.compile(
    r"nfs4?|cifs|smb\w*|9p|afs|ceph|lustre|beegfs|gpfs|ocfs2|gfs2?|glusterfs|fuse\.(sshfs|glusterfs|ceph.*|s3fs|rclone)"
)

P = ParamSpec("P")
T = TypeVar("T")


def file_name(run_id: str) -> str:
    """Return the name of a run's file: its id, if that can be a file name, else a hash of it."""
    return run_id if _NAME.fullmatch(run_id) else sha256(run_id.encode()).hexdigest()


class _Written:
    """A log that this process appends to."""

    __slots__ = (
        "acquired",
        "at",
        "before",
        "counted",
        "distrusted",
        "earlier",
        "file",
        "followed",
        "generation",
        "last",
        "limit",
        "on_disk",
        "run_id",
        "watchers",
    )

    def __init__(
        self, run_id: str, file: int, at: int, generation: int = 0, *, acquired: bool = False
    ) -> None:
        self.run_id = run_id
        self.file = file
        """The file's descriptor; -1 when nothing more is appended here."""
        self.at = at
        """The position of the next record, if nobody else appends."""
        self.last = -1
        self.generation = generation
        self.limit = _STEP
        """The position from which on the limits are checked."""
        self.counted = at
        """The bytes of the file that the sum of all logs includes, without `earlier`."""
        self.earlier = 0
        """The bytes of the previous file, which is deleted first."""
        self.before = -1
        """The descriptor of the previous file, if that still has to be written to the disk; else -1."""
        self.on_disk = -1
        """The position up to which the file is on the disk, as far as is known."""
        self.distrusted = False
        """True if the disk has refused the log: what comes next is stored instead."""
        self.acquired = acquired
        """True if another process opened the log, whose messages its readers wait for."""
        self.followed = acquired
        """True if somebody may read along."""
        self.watchers: set[str] = set()
        """The other processes in which somebody reads along."""

    def release(self) -> None:
        """Append nothing more."""
        self.release_before()
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def release_before(self) -> None:
        """Close the previous file, which is on the disk or deleted."""
        if self.before >= 0:
            os.close(self.before)
            self.before = -1


class _Followed:
    """A log that readers of this process wait for."""

    __slots__ = ("changed", "readers", "writer")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.readers = 0
        self.writer: str | None = None
        """The other process that writes the log, which sends this one a message when it has appended."""

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class FileLog:
    """Logs in `folder`, of which `process` writes its own.

    A log keeps at least its last half of `max_log_bytes`. When all logs of a process have more than
    `max_bytes`, the closed ones are deleted first, then the older halves of the others, the largest first. A
    closed log is deleted after `linger` seconds, or by any other process if this one stops before. With
    `fsync`, logs are written to the disk every that many seconds.
    """

    at_hand = True
    shared = True

    def __init__(
        self,
        folder: Path,
        process: str | None = None,
        *,
        fsync: float | None = None,
        linger: float = LINGER,
        max_log_bytes: int = _MAX_LOG_BYTES,
        max_bytes: int = _MAX_BYTES,
        lifetime: float = LIFETIME,
        marked: float = MARKED,
    ) -> None:
        self.pipes = Pipes(folder, process or secrets.token_hex(8))
        self.pipes.handlers[_CHANGED] = self._hear
        self.pipes.handlers[_WATCH] = self._add_watcher
        self.pipes.handlers[_UNWATCH] = self._remove_watcher
        self.folder = folder
        self._events = folder / _EVENTS
        self._linger = linger
        self._marked = marked
        self._lifetime = lifetime
        self._max_log_bytes = max_log_bytes
        self._max_bytes = max_bytes
        self._written: dict[str, _Written] = {}
        probe = f"{self.pipes.process}.probe"
        self._disk_sync = None if fsync is None else DiskSync(fsync, self._events, probe, self._written)
        self._followed: dict[str, _Followed] = {}
        self._left: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        """Closed and discarded logs: their bytes, and the timer that deletes them."""
        self._bytes = 0
        self._changed: dict[str, _Written] = {}  # since the loop's last turn
        self._sweeping: asyncio.TimerHandle | None = None
        self._ready = False
        self._is_usable = False
        """True if the folder is this user's, or was made."""

    async def check(self) -> None:
        self._make_folders()
        if self._disk_sync is not None:
            try:
                await self._disk_sync.check()
            except OSError as error:
                raise self._not_on_disk(error) from error

    def listen(self) -> None:
        """Receive messages from other processes. Raises LogError."""
        if self._ready:
            return
        self._make_folders()
        try:
            self.pipes.open()
        except OSError as error:
            raise self._unusable(error) from error
        self._ready = True
        self._sweeping = asyncio.get_running_loop().call_later(_SWEPT_EVERY, self._sweep_soon)
        if self._disk_sync is not None:
            self._disk_sync.begin()

    async def open(self, run_id: str) -> None:
        self.listen()
        name = file_name(run_id)
        self._evict(name)
        if name in self._written:
            self._release(self._written[name])
        try:
            file = self._begin(run_id, self._path(name))
        except FileNotFoundError:  # the folder was deleted
            self._make_folders()
            file = self._tried(self._begin, run_id, self._path(name))
        except OSError as error:
            raise self._unusable(error) from error
        log = self._written[name] = _Written(run_id, file, os.lseek(file, 0, os.SEEK_CUR))
        log.followed = name in self._followed
        log.distrusted = self._disk_sync is not None and self._disk_sync.error is not None
        self._bytes += log.at

    async def append(self, run_id: str, frames: Frames) -> None:
        log = self._written.get(file_name(run_id))
        if log is None:
            raise LogGone(run_id)
        self._add(log, frames)

    def appender(self, run_id: str) -> Appender:
        return partial(self._add, self._written.get(file_name(run_id)) or _Written(run_id, -1, 0))

    def _add(self, log: _Written, frames: Frames, _failed: Failed | None = None) -> None:
        if log.distrusted:
            self._refuse(log)
        data, file = frames.data, log.file
        head = head_of(Kind.FRAMES, log.at, frames.first, frames.last, data)
        try:
            written = os.write(file, head + data)
            position = os.lseek(file, 0, os.SEEK_CUR)
        except OSError as error:
            raise self._not_appended(log, error) from error
        log.at += written
        if position != log.at:  # another process has appended too
            if _is_acquired(log, position, written):
                raise self._not_appended(log, None)
            return self._add(log, frames)
        if written < HEAD_BYTES + len(data):
            raise self._not_appended(log, _full())
        log.last = frames.last
        if log.followed:
            self._notify(log)
        if log.at > log.limit:
            self._look_at_bounds(log)

    async def read(self, run_id: str, after: int = -1, *, wait: bool = True) -> AsyncIterator[Frames]:
        name = file_name(run_id)
        if wait:
            self.listen()
        with (
            _Cursor(run_id, self._path(name), after) as cursor,
            self._following(name, cursor, wait=wait) as followed,
        ):
            while True:
                changed = followed.changed
                frames = cursor.next_frames()
                if frames is not None:
                    yield frames
                    if len(frames.data) >= CHUNK_BYTES:  # it is behind: others have their turn
                        await asyncio.sleep(0)
                elif cursor.ended or not wait:
                    return
                else:
                    await changed.wait()

    async def acquire(self, run_id: str) -> None:
        self.listen()
        name = file_name(run_id)
        if name in self._written:
            self._release(self._written[name])
        log = self._tried(self._acquire, run_id, self._path(name))
        if log is not None:
            self._evict(name)
            self._written[name] = log
            self._bytes += log.at
            self._notify(log)

    def leave(self, run_id: str) -> None:
        log = self._written.get(file_name(run_id))
        if log is not None:
            self._release(log)

    async def close(self, run_id: str) -> None:
        log = self._written.get(file_name(run_id))
        if log is None or log.file < 0:
            return
        ours = self._mark(log, Kind.CLOSED)
        size = log.at + log.earlier
        self._release(log)
        self._notify(log)
        if ours is None:  # the disk is full
            self._delete(file_name(run_id))
        elif ours:
            self._delete_later(file_name(run_id), size, self._linger)

    async def discard(self, run_id: str) -> None:
        self.listen()
        name = file_name(run_id)
        log = self._written.get(name)
        if log is not None:
            self._release(log)
        self._evict(name)
        self._tried(self._bury, self._path(name))
        self._delete_later(name, 0, self._marked)
        self._wake(name)
        self.pipes.send_all(_CHANGED, name)

    async def shutdown(self) -> None:
        if self._disk_sync is not None:
            self._disk_sync.end()
        for log in list(self._written.values()):
            self._release(log)
        for name in list(self._left):
            self._evict(name)
            self._delete(name)
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._ready:
            self._ready = False
            self._notify_all()
            self.pipes.close()
        if self._is_usable:
            for folder in (self._events, self.folder):
                with suppress(OSError):  # unless others are there
                    folder.rmdir()

    # files

    def _path(self, name: str) -> Path:
        return self._events / name

    def _make_folders(self) -> None:
        try:
            make_private(self.folder.parent)
            for folder in (self.folder, self._events):
                make_own_folder(folder)
            if not self._ready and (kind := network_file_system(self._events)) is not None:
                raise OSError(errno.ENOTSUP, f"it is on a network file system ({kind})")
            if not os.access(self._events, os.W_OK | os.X_OK):
                is_fixed = os.statvfs(self._events).f_flag & os.ST_RDONLY
                raise OSError(reason := errno.EROFS if is_fixed else errno.EACCES, os.strerror(reason))
            self._is_usable = True
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> LogError:
        return LogError("The event log can't be written.", f"{self.folder}: {error.strerror or error}")

    def _not_on_disk(self, error: OSError) -> LogError:
        return LogError(
            "The event log can't be written to the disk.", f"{self.folder}: {error.strerror or error}"
        )

    def _refuse(self, log: _Written) -> None:
        """Raise LogError, so that these frames are stored, with those before that may be missing on the disk.
        This happens once, and again as long as the disk does not work."""
        assert self._disk_sync is not None
        error = self._disk_sync.error
        log.distrusted = error is not None
        raise self._not_on_disk(error or OSError(errno.EIO, "some of it may be missing on the disk"))

    def _tried(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        try:
            return call(*args, **named)
        except OSError as error:
            raise self._unusable(error) from error

    def _begin(self, run_id: str, path: Path) -> int:
        """Make a file with its first record, instead of an older one. Returns its descriptor."""
        while True:
            try:
                file = os.open(path, _APPENDING | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except FileExistsError:
                _end_for_good(run_id, path)
                self._wake(path.name)
                self.pipes.send_all(_CHANGED, path.name)
        try:
            self._write_first(file, 0, -1)
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        return file

    def _write_first(self, file: int, generation: int, last: int) -> None:
        what = f"{_VERSION} {generation} {self.pipes.process}".encode()
        _write_whole(file, head_of(Kind.OPENED, 0, last, last, what) + what)

    def _acquire(self, run_id: str, path: Path) -> _Written | None:
        """Take over the log: what its writer still appends does not count. Returns None if there is no
        log."""
        while True:
            try:
                file = os.open(path, _APPENDING)
            except FileNotFoundError:
                return None
            try:
                opened = _opening_in(file)
                if opened is None:
                    os.close(file)
                    return None
                log = _Written(run_id, file, 0, opened.generation, acquired=True)
                while not _mark_end(file, Kind.ACQUIRED, opened.last):
                    """Its writer appends at the same time."""
                if os.path.samestat(os.fstat(file), os.stat(path)):  # else it has just moved on
                    log.at = log.counted = os.lseek(file, 0, os.SEEK_CUR)
                    return log
            except OSError:
                os.close(file)
                raise
            os.close(file)

    def _mark(self, log: _Written, kind: Kind) -> bool | None:
        """Append a mark. Returns whether it is at its intended position; None if it can't be written."""
        while True:
            try:
                _write_whole(log.file, head_of(kind, log.at, log.last, log.last, b""))
                position = os.lseek(log.file, 0, os.SEEK_CUR)
                log.at += HEAD_BYTES
                if position == log.at:
                    return True
                if _is_acquired(log, position, HEAD_BYTES):
                    return False
            except OSError:
                return None

    def _bury(self, path: Path) -> None:
        """Leave nothing of a log but the mark that it was discarded."""
        _remove_foreign(path)
        file = os.open(path, _APPENDING | os.O_CREAT, 0o600)
        try:
            os.ftruncate(file, 0)
            path.with_name(f"{path.name}{_EARLIER}").unlink(missing_ok=True)
            while not _mark_end(file, Kind.DISCARDED, -1):
                """Its writer appends at the same time."""
        finally:
            os.close(file)

    def _delete(self, name: str) -> None:
        path = self._path(name)
        for each in (path, path.with_name(f"{name}{_EARLIER}")):
            with suppress(OSError):
                each.unlink()

    def _delete_later(self, name: str, size: int, seconds: float) -> None:
        self._bytes += size
        timer = asyncio.get_running_loop().call_later(seconds, self._delete_left, name)
        self._left[name] = size, timer
        if self._bytes > self._max_bytes:
            self._make_room()

    def _delete_left(self, name: str) -> None:
        self._evict(name)
        self._delete(name)

    def _evict(self, name: str) -> None:
        size, timer = self._left.pop(name, (0, None))
        self._bytes -= size
        if timer is not None:
            timer.cancel()

    def _release(self, log: _Written) -> None:
        """Stop appending to the log in this process."""
        log.release()
        name = file_name(log.run_id)
        if self._written.get(name) is log:
            del self._written[name]
            self._bytes -= log.counted + log.earlier

    def _not_appended(self, log: _Written, error: OSError | None) -> Exception:
        """Return the error for a record that was not appended: LogGone if this process no longer has the
        log."""
        if error is not None and log.file >= 0:
            return self._unusable(error)
        self._release(log)
        return LogGone(log.run_id)

    # limits

    def _look_at_bounds(self, log: _Written) -> None:
        self._bytes += log.at - log.counted
        log.counted = log.at
        log.limit = log.at + _STEP
        if log.at > self._max_log_bytes // 2:
            self._move(log)
        if self._bytes > self._max_bytes:
            self._make_room()

    def _move(self, log: _Written) -> None:
        """Continue in a new file; the file before the present one is deleted. Raises LogGone."""
        path = self._path(file_name(log.run_id))
        draft, earlier = (path.with_name(f"{path.name}{end}") for end in (_DRAFT, _EARLIER))
        try:
            draft.unlink(missing_ok=True)
            file = os.open(draft, _APPENDING | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            return  # later
        try:
            self._write_first(file, log.generation + 1, log.last)
        except OSError:
            os.close(file)
            draft.unlink(missing_ok=True)
            return
        try:
            moved = self._mark(log, Kind.MOVED)
            if moved:
                earlier.unlink(missing_ok=True)
                os.link(path, earlier)
                draft.rename(path)
                moved = os.fstat(log.file).st_size == log.at  # else it was acquired meanwhile
        except OSError:
            moved = False
        if not moved:
            os.close(file)
            draft.unlink(missing_ok=True)
            raise self._not_appended(log, None)
        log.release_before()
        if self._disk_sync is None:
            os.close(log.file)
        else:
            log.before = log.file
        self._bytes -= log.earlier
        log.file, log.earlier, log.generation, log.on_disk = file, log.at, log.generation + 1, -1
        log.at = log.counted = os.lseek(file, 0, os.SEEK_CUR)
        self._bytes += log.at
        log.limit = log.at + _STEP
        if log.followed:
            self._notify(log)

    def _make_room(self) -> None:
        """Delete closed logs, then the older halves of the others, the largest first, until there is some
        room. Then, if that is not enough, move the largest logs to new files, so that their halves can be
        deleted next."""
        target = self._max_bytes * 7 // 8
        for name in list(self._left):
            if self._bytes <= target:
                return
            if self._left[name][0]:
                self._delete_left(name)
        for log in sorted(self._written.values(), key=lambda each: -each.earlier):
            if self._bytes <= target:
                return
            self._bytes -= log.earlier
            log.earlier = 0
            log.release_before()
            path = self._path(file_name(log.run_id))
            path.with_name(f"{path.name}{_EARLIER}").unlink(missing_ok=True)
        for log in sorted(self._written.values(), key=lambda each: -each.at)[: 1 + len(self._written) // 4]:
            if log.file >= 0 and not log.acquired:
                with suppress(LogGone):  # its writer notices
                    self._move(log)

    def _sweep_soon(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(_SWEPT_EVERY, self._sweep_soon)
        loop.run_in_executor(None, self._sweep, time.time())

    def _sweep(self, now: float) -> None:
        """Delete what other processes have left: closed logs, and logs that were not appended to for longer
        than any run lasts."""
        with suppress(OSError), os.scandir(self._events) as entries:
            for each in entries:
                with suppress(OSError):
                    age = now - each.stat(follow_symlinks=False).st_mtime
                    marked = age > self._marked and _last_mark(self._path(each.name)) == Kind.DISCARDED
                    closed = age > _LEFT_FOR and _last_mark(self._path(each.name)) == Kind.CLOSED
                    draft = age > _LEFT_FOR and each.name.endswith(_DRAFT)
                    if closed or marked or draft or age > self._lifetime:
                        self._delete(each.name)

    # readers

    @contextmanager
    def _following(self, name: str, cursor: _Cursor, *, wait: bool) -> Iterator[_Followed]:
        """Notify a reader of this process of changes while the context lasts."""
        if not wait:
            yield _Followed()
            return
        followed = self._followed.get(name)
        if followed is None:
            followed = self._followed[name] = _Followed()
        followed.readers += 1
        if (log := self._written.get(name)) is not None:
            log.followed = True
        elif followed.writer != cursor.writer:
            followed.writer = cursor.writer
            self.pipes.send(cursor.writer, _WATCH, name, self.pipes.process)
        try:
            yield followed
        finally:
            followed.readers -= 1
            if not followed.readers:
                self._followed.pop(name, None)
                if followed.writer is not None:
                    self.pipes.send(followed.writer, _UNWATCH, name, self.pipes.process)

    def _notify(self, log: _Written) -> None:
        """Notify all readers, once for everything that is appended in this iteration of the event loop."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._notify_all)
        self._changed[file_name(log.run_id)] = log

    def _notify_all(self) -> None:
        changed, self._changed = self._changed, {}
        for name, log in changed.items():
            self._wake(name)
            if log.acquired:  # its readers wait for messages of the former writer
                self.pipes.send_all(_CHANGED, name)
            for process in list(log.watchers):
                if not self.pipes.send(process, _CHANGED, name):
                    log.watchers.discard(process)

    def _wake(self, name: str) -> None:
        if (followed := self._followed.get(name)) is not None:
            followed.wake()

    def _hear(self, words: list[str]) -> None:
        self._wake(*words)

    def _add_watcher(self, words: list[str]) -> None:
        name, process = words
        if (log := self._written.get(name)) is not None:
            log.followed = True
            log.watchers.add(process)
        self.pipes.send(process, _CHANGED, name)  # it may have read before this

    def _remove_watcher(self, words: list[str]) -> None:
        name, process = words
        if (log := self._written.get(name)) is not None:
            log.watchers.discard(process)


class _Cursor:
    """A reader's position in the files of a log. Raises LogGone and LogGap."""

    def __init__(self, run_id: str, path: Path, after: int) -> None:
        self._run_id = run_id
        self._path = path
        self._after = after
        self._file = -1
        self._held: Record | None = None
        self.ended = False
        """True if the log is closed and was read to its end."""

    def __enter__(self) -> _Cursor:
        try:
            self._go_to(None)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def next_frames(self) -> Frames | None:
        """Return the next frames, several together for a reader that is behind; None if there are none
        now."""
        ready: list[Frames] = []
        size = 0
        while size < CHUNK_BYTES and not self.ended:
            record = self._held or self._records.read()
            self._held = None
            if record is None:
                if not ready:
                    self._check_there()
                    if self._is_left and self._is_next_there():
                        self._go_to(self._generation + 1)
                        continue
                break
            if record.kind == Kind.FRAMES:
                rest = Frames(record.first, record.last, record.data).after(self._after)
                if rest is None:
                    continue
                if rest.first == self._after + 1:
                    self._after = rest.last
                    ready.append(rest)
                    size += len(rest.data)
                    continue
            if ready:  # first those that are complete
                self._held = record
                break
            self._pass(record)
        return joined(ready)

    def _pass(self, record: Record) -> None:
        """Handle a record that ends or interrupts the frames. Raises LogGone and LogGap."""
        if record.kind == Kind.FRAMES:
            raise LogGap(self._run_id, self._after + 1, record.first)
        if record.kind == Kind.DISCARDED:
            raise LogGone(self._run_id)
        if record.kind == Kind.CLOSED:
            self.ended = True
        elif record.kind == Kind.MOVED:
            self._is_left = True

    def _check_there(self) -> None:
        """Raise LogGone unless the file still exists: on a full disk it may have been deleted before it was
        marked as ended."""
        status = os.fstat(self._file)
        if not status.st_nlink or status.st_size < self._records.at:
            raise LogGone(self._run_id)

    def _is_next_there(self) -> bool:
        """Return whether there is a newer file. There is none while the writer is about to begin it, or if
        the writer was killed before that: whoever settles the run appends to this file then."""
        try:
            file = os.open(self._path, os.O_RDONLY | _FLAGS)
        except OSError:
            return True
        try:
            newest = _opening_in(file)
        finally:
            os.close(file)
        return newest is None or newest.generation != self._generation

    def _go_to(self, generation: int | None) -> None:
        """Begin to read the file of `generation`, or if that is None the one with the next frames."""
        for _ in range(3):  # files may move meanwhile
            opened = self._opened(self._path)
            if opened.generation == generation or (generation is None and opened.last <= self._after):
                break
            oldest = opened
            with suppress(LogGone):
                earlier = self._opened(self._path.with_name(f"{self._path.name}{_EARLIER}"))
                if earlier.generation == generation or (generation is None and earlier.last <= self._after):
                    break
                oldest = earlier
        else:
            raise LogGap(self._run_id, self._after + 1, oldest.last + 1)
        self._records.seek(self._after)

    def _opened(self, path: Path) -> _Opening:
        """Open this file and read its first record."""
        self.__exit__()
        try:
            self._file = os.open(path, os.O_RDONLY | _FLAGS)
        except OSError as error:
            raise LogGone(self._run_id) from error
        opened = _opening_in(self._file)
        if opened is None:
            raise LogGone(self._run_id)
        self._records = RecordReader(self._file)
        self._generation = opened.generation
        self._is_left = False
        self.writer = opened.process
        return opened


class _Opening:
    """The first record of a file: the file's generation, the process that writes it, and the number of the
    last event before it."""

    def __init__(self, generation: int, process: str, last: int) -> None:
        self.generation = generation
        self.process = process
        self.last = last


def _first_in(file: int) -> Record | None:
    """Return the first record of a file; None if it is not a regular file of this user."""
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return None
    return RecordReader(file).read()


def _opening_in(file: int) -> _Opening | None:
    """Return what the first record of a file says; None if the file is not of a log, or is of a discarded
    one."""
    record = _first_in(file)
    if record is None or record.kind != Kind.OPENED:
        return None
    version, _, rest = record.data.decode(errors="replace").partition(" ")
    generation, _, process = rest.partition(" ")
    if version != _VERSION or not generation.isdecimal() or not _NAME.fullmatch(process):
        return None
    return _Opening(int(generation), process, record.last)


def _remove_foreign(path: Path) -> None:
    """Delete whatever is at the path of a log and is not a log. Its content is not changed, since it may have
    another name elsewhere."""
    try:
        file = os.open(path, _APPENDING)
    except FileNotFoundError:
        return
    except OSError:  # a link, or another user's
        path.unlink(missing_ok=True)
        return
    try:
        if _first_in(file) is None:
            path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _end_for_good(run_id: str, path: Path) -> None:
    """End an older log of this name, and delete it. Raises LogGone if it was discarded."""
    _remove_foreign(path)
    try:
        file = os.open(path, _APPENDING)
    except FileNotFoundError:
        return
    try:
        record = RecordReader(file).read()
        if record is not None and record.kind == Kind.DISCARDED:
            raise LogGone(run_id)
        _mark_end(file, Kind.DISCARDED, -1)
    finally:
        os.close(file)
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}{_EARLIER}").unlink(missing_ok=True)


def _is_acquired(log: _Written, position: int, written: int) -> bool:
    """Return True if another process has taken over the log: the latest record, of `written` bytes, ends at
    `position` and not at `log.at`. If a former writer has only appended too late, its record does not count,
    and the log continues behind it."""
    records = RecordReader(log.file)
    records.at = log.at - written
    while (record := records.read()) is not None:
        if record.kind in _ACQUIRING:
            return True
    acquired = position < log.at  # it was discarded
    log.at = position
    return acquired


def _mark_end(file: int, kind: Kind, last: int) -> bool:
    """Append a mark to a file that another process may append to. Returns whether it counts."""
    at = os.fstat(file).st_size
    _write_whole(file, head_of(kind, at, last, last, b""))
    return os.lseek(file, 0, os.SEEK_CUR) == at + HEAD_BYTES


def _write_whole(file: int, data: bytes) -> None:
    if os.write(file, data) < len(data):
        raise _full()


def _full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _last_mark(path: Path) -> int | None:
    """Return the kind of the mark at the end of a file; None if there is none."""
    file = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        records = RecordReader(file)
        records.at = max(os.fstat(file).st_size - HEAD_BYTES, 0)
        record = records.read()
        return None if record is None or record.kind == Kind.FRAMES else record.kind
    finally:
        os.close(file)


def network_file_system(folder: Path) -> str | None:
    """Return the type of the network file system with this folder; None if there is none, or if the system
    does not say."""
    if sys.platform != "linux":
        return None
    device = folder.stat().st_dev
    device_number = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in _MOUNTS.read_text().splitlines():
            fields, _, rest = line.partition(" - ")
            kind = rest.partition(" ")[0]
            if fields.split(" ")[2] == device_number and _NETWORK.fullmatch(kind):
                return kind
    return None
