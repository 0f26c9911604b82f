"""One folder, which paths that a model names can't leave.

The folder is held open, and each step of a path is opened from the one before it, by its file descriptor and
never through a link. So there is nothing between a check and its use that somebody could change: `..` and
absolute paths are refused as text, and a link is an error wherever it stands in the path.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import PurePosixPath
from typing import Final

from openresponses_bridge.tools.errors import ToolInvocationError

MOST_BYTES: Final = 2_000_000  # of a file that is read or written
_LONGEST_PATH: Final = 1_000
_DEEPEST: Final = 64
_MOST_ENTRIES: Final = 100_000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not hold the open up
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# a version control's own: what it says is run by the next `git status`, outside of any question asked here
_KEPT: Final = frozenset({".git", ".hg", ".svn", ".jj", ".sl", ".bzr"})
# what git knows a folder by as a repository, whatever the folder is called; its `config` names programs then
_HEAD: Final = "HEAD"
_HEAD_SAYS: Final = re.compile(rb"ref:|[0-9a-fA-F]{40}")
_WORDS: Final = {
    errno.ENOENT: "does not exist",
    errno.EEXIST: "exists already",
    errno.ELOOP: "is a link, or leads through one, and links are not followed",
    errno.ENOTDIR: "leads through something that is not a folder, or through a link",
    errno.EISDIR: "is a folder",
    errno.ENAMETOOLONG: "has a name that is too long",
    errno.EACCES: "is not accessible",
    errno.EPERM: "is not accessible",
    errno.ENOSPC: "can't be written: the disk is full",
    errno.EDQUOT: "can't be written: the quota is used up",
    errno.EROFS: "can't be written: the disk is read-only",
    errno.ENOTEMPTY: "is a folder that is not empty",
}


class FolderError(ToolInvocationError):
    """A path that can't be used, in words for the model; they name the path as it was given."""


class Folder:
    """`path` is the folder; `shown_as` the absolute path by which models know it, its real one unless given.

    Paths are relative, or absolute below `shown_as`. Everything here waits for the disk; it may be used from
    several threads. Raises OSError when the folder can't be opened.
    """

    def __init__(self, path: str | os.PathLike[str], shown_as: str | None = None) -> None:
        self.path = os.path.realpath(path)
        self.shown_as = (shown_as or self.path).rstrip("/")
        self._root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        status = os.fstat(self._root)
        self.identity = (status.st_dev, status.st_ino)
        self._changing = threading.Lock()
        self._hidden: set[tuple[int, int]] = set()

    def close(self) -> None:
        """Nothing can be opened in it after this."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def hide(self, identity: tuple[int, int]) -> None:
        """The file of this device and this number is not shown, read or written, whatever it is called."""
        self._hidden.add(identity)

    def steps(self, path: str) -> list[str]:
        """The names from the folder to what the path leads to; none for the folder itself."""
        inside = path
        if path.startswith("/"):
            if path.rstrip("/") != self.shown_as and not path.startswith(f"{self.shown_as}/"):
                raise FolderError(f"{_named(path)} is outside of the folder {self.shown_as}")
            inside = path[len(self.shown_as) :]
        steps = [step for step in inside.split("/") if step not in ("", ".")]
        if ".." in steps:
            raise FolderError(f"{_named(path)} has `..` in it: paths start at the folder and go down")
        if "\0" in path or len(path) > _LONGEST_PATH or len(steps) > _DEEPEST:
            raise FolderError(f"{_named(path)} is not a path that can be used")
        return steps

    def read(self, path: str, most: int = MOST_BYTES) -> bytes:
        """A regular file's content."""
        with self._parent(path) as (parent, name), _explained(path):
            return self._read(parent, name, path, most)[0]

    def create(self, path: str, data: bytes) -> None:
        """A new file, with the folders that lead to it."""
        with self._changing, self._parent(path, make=True) as (parent, name), _explained(path):
            _check(path, name, data)
            descriptor = os.open(name, _NEW, 0o666, dir_fd=parent)
            try:
                _write(descriptor, data)
            except OSError:
                with suppress(OSError):
                    os.unlink(name, dir_fd=parent)
                raise

    def change(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        """Replace a file's content by what `change` makes of it (of None when there is not such a file),
        whole or not at all; its permissions stay. One change at a time, so that none is lost."""
        with self._changing, self._parent(path, make=True) as (parent, name), _explained(path):
            try:
                data, mode = self._read(parent, name, path, MOST_BYTES)
                made = change(data)
            except FileNotFoundError:
                made, mode = change(None), None
            _check(path, name, made)
            _replace(parent, name, made, mode)

    def remove(self, path: str) -> None:
        """A file; a link is removed itself."""
        with self._changing, self._parent(path, writes=True) as (parent, name), _explained(path):
            if self._hides(os.stat(name, dir_fd=parent, follow_symlinks=False)):
                raise FolderError(f"{_named(path)} is not accessible")
            os.unlink(name, dir_fd=parent)

    def entries(self, path: str) -> list[tuple[str, str]]:
        """(name, kind) of what is in a folder, by name, at most 100,000; the kind is file, folder, link or
        other."""
        steps = self.steps(path)
        with self._opened(steps, path) as descriptor, _explained(path), os.scandir(descriptor) as found:
            shown = (each for each in islice(found, _MOST_ENTRIES) if not self._hides_entry(each))
            return sorted((each.name, _kind(each)) for each in shown)

    def files(
        self,
        path: str,
        *,
        skipped: frozenset[str],
        most: int,
        go_on: Callable[[], object] = lambda: None,
    ) -> Iterator[str]:
        """Paths of the regular files below a folder, from the folder of this object, in order; folders with a
        skipped name are left out. At most so many, of at most so many folders. `go_on` is called before each
        folder is looked into, and ends the walk by what it raises."""
        rest, count, folders = [self.steps(path)], 0, 0
        while rest and folders <= most:
            go_on()
            folders += 1
            steps = rest.pop()
            try:
                inside = self.entries("/".join(steps))
            except FolderError:
                if not count and not rest and steps == self.steps(path):
                    raise
                continue  # went away meanwhile, or is not readable
            for name, kind in inside:
                if kind == "file" and count < most:
                    count += 1
                    yield "/".join([*steps, name])
            if len(steps) < _DEEPEST and count < most and len(rest) <= most:
                rest += [
                    [*steps, name]
                    for name, kind in reversed(inside)
                    if kind == "folder" and name not in skipped
                ]

    @contextmanager
    def _opened(
        self, steps: list[str], path: str, *, make: bool = False, writes: bool = False
    ) -> Iterator[int]:
        """A folder's descriptor, each step opened from the one before."""
        descriptor = os.dup(self._root)
        try:
            if writes:
                _check_no_repository(descriptor, path)
            for step in steps:
                with _explained(path):
                    if make:
                        with suppress(FileExistsError):
                            os.mkdir(step, dir_fd=descriptor)
                    inner = os.open(step, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
                if writes:
                    _check_no_repository(descriptor, path)
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _parent(self, path: str, *, make: bool = False, writes: bool = False) -> Iterator[tuple[int, str]]:
        """What a path's last step is opened from, and that step."""
        steps = self.steps(path)
        if not steps:
            raise FolderError(f"{_named(path)} is a folder")
        writes = make or writes
        if writes and not _KEPT.isdisjoint(step.casefold() for step in steps):
            raise FolderError(f"{_named(path)} is a version control's own and is not written")
        with self._opened(steps[:-1], path, make=make, writes=writes) as parent:
            yield parent, steps[-1]

    def _read(self, parent: int, name: str, path: str, most: int) -> tuple[bytes, int]:
        """Its content and permissions. What it is, is asked of the file that is open."""
        descriptor = os.open(name, _READ, dir_fd=parent)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise FolderError(f"{_named(path)} is a folder")
            if not stat.S_ISREG(status.st_mode):
                raise FolderError(f"{_named(path)} is not a regular file")
            if self._hides(status):
                raise FolderError(f"{_named(path)} is not accessible")
            if status.st_nlink > 1:
                raise FolderError(f"{_named(path)} has another name, which may be outside of the folder")
            data = file.read(most + 1)
        if len(data) > most:
            raise FolderError(f"{_named(path)} is larger than {most} bytes")
        return data, stat.S_IMODE(status.st_mode)

    def _hides(self, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) in self._hidden

    def _hides_entry(self, entry: os.DirEntry[str]) -> bool:
        if all(entry.inode() != number for _, number in self._hidden):
            return False
        return self._hides(entry.stat(follow_symlinks=False))


def _replace(parent: int, name: str, data: bytes, mode: int | None) -> None:
    """By a new file beside it, so that nobody reads half of it and other names of it stay as they are."""
    made = f".{secrets.token_hex(8)}.tmp"
    descriptor = os.open(made, _NEW, 0o666, dir_fd=parent)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode & 0o777)
        _write(descriptor, data)
        os.replace(made, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError:
        with suppress(OSError):
            os.unlink(made, dir_fd=parent)
        raise


def _write(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _check(path: str, name: str, data: bytes) -> None:
    """Whether a file with this name may have this content."""
    if len(data) > MOST_BYTES:
        raise FolderError(f"{_named(path)} would be larger than {MOST_BYTES} bytes")
    if name.casefold() == _HEAD.casefold() and _HEAD_SAYS.match(data):
        raise FolderError(f"{_named(path)} would make its folder a git repository")


def _check_no_repository(descriptor: int, path: str) -> None:
    try:
        os.stat(_HEAD, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return
    raise FolderError(
        f"{_named(path)} is not written: beside it or above it is a HEAD, as in a git repository"
    )


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        raise FolderError(f"{_named(path)} {_WORDS.get(number or 0, 'can not be used')}") from error


def _named(path: str) -> str:
    shown = str(PurePosixPath(path)) if "\0" not in path else path
    return repr(shown if len(shown) <= 200 else f"{shown[:200]}…")
