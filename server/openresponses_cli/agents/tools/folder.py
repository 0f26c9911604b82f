"""A folder that paths given by a model can't leave.

The folder stays open, and each component of a path is opened relative to the file descriptor of the one
before, without following links. So there is no time between check and use in which a path could be changed.
Paths with `..` and absolute paths outside the folder are refused as text, links wherever they are in a path.
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

from openresponses_agent.tools.errors import ToolInvocationError

MOST_BYTES: Final = 2_000_000  # of a file that is read or written
_LONGEST_PATH: Final = 1_000
_DEEPEST: Final = 64
_MOST_ENTRIES: Final = 100_000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe must not block
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# of version control: its configuration names programs, which the next `git status` runs without asking
_VCS_FOLDERS: Final = frozenset({".git", ".hg", ".svn", ".jj", ".sl", ".bzr"})
# the file by which git recognises a repository in a folder of any name; its `config` names programs too
_HEAD: Final = "HEAD"
_HEAD_SAYS: Final = re.compile(rb"ref:|[0-9a-fA-F]{40}")
_MESSAGES: Final = {
    errno.ENOENT: "does not exist",
    errno.EEXIST: "already exists",
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
    """A path that can't be used. The message is for the model and quotes the path unchanged."""


class Folder:
    """An open folder. `shown_as` is the absolute path that models see, by default the real one.

    Paths are relative, or absolute below `shown_as`. All methods block and may be called from several
    threads. Raises OSError if the folder can't be opened.
    """

    def __init__(self, path: str | os.PathLike[str], shown_as: str | None = None) -> None:
        self.path = os.path.realpath(path)
        self.shown_as = (shown_as or self.path).rstrip("/")
        self._root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        status = os.fstat(self._root)
        self.identity = (status.st_dev, status.st_ino)
        self._write_lock = threading.Lock()
        self._hidden: set[tuple[int, int]] = set()

    def close(self) -> None:
        """Close the folder's descriptor; nothing can be opened in it any more."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def hide(self, descriptor: int) -> None:
        """Never show, read or write the file that is open here, whatever its name."""
        status = os.fstat(descriptor)
        self._hidden.add((status.st_dev, status.st_ino))

    def steps(self, path: str) -> list[str]:
        """Return the components of the path relative to the folder; none for the folder itself."""
        inside = path
        if path.startswith("/"):
            if path.rstrip("/") != self.shown_as and not path.startswith(f"{self.shown_as}/"):
                raise FolderError(f"{_quoted(path)} is outside of the folder {self.shown_as}")
            inside = path[len(self.shown_as) :]
        steps = [step for step in inside.split("/") if step not in ("", ".")]
        if ".." in steps:
            raise FolderError(f"{_quoted(path)} has `..` in it: paths start at the folder and go down")
        if "\0" in path or len(path) > _LONGEST_PATH or len(steps) > _DEEPEST:
            raise FolderError(f"{_quoted(path)} is not a path that can be used")
        return steps

    def read(self, path: str, most: int = MOST_BYTES) -> bytes:
        """Return a regular file's content."""
        with self._parent(path) as (parent, name), _translated_errors(path):
            return self._read(parent, name, path, most)[0]

    def create(self, path: str, data: bytes) -> None:
        """Create a file and the folders above it."""
        with self._write_lock, self._parent(path, make=True) as (parent, name), _translated_errors(path):
            _check(path, name, data)
            descriptor = os.open(name, _NEW, 0o666, dir_fd=parent)
            try:
                _write(descriptor, data)
            except OSError:
                with suppress(OSError):
                    os.unlink(name, dir_fd=parent)
                raise

    def change(self, path: str, change: Callable[[bytes | None], bytes]) -> None:
        """Replace a file's content atomically by what `change` returns for it (called with None if there is
        no such file), with the same permissions. Changes are serialised, so that none is lost."""
        with self._write_lock, self._parent(path, make=True) as (parent, name), _translated_errors(path):
            try:
                data, mode = self._read(parent, name, path, MOST_BYTES)
                content = change(data)
            except FileNotFoundError:
                content, mode = change(None), None
            _check(path, name, content)
            _replace(parent, name, content, mode)

    def remove(self, path: str) -> None:
        """Remove a file, or a link itself."""
        with self._write_lock, self._parent(path, writes=True) as (parent, name), _translated_errors(path):
            if self._is_hidden(os.stat(name, dir_fd=parent, follow_symlinks=False)):
                raise FolderError(f"{_quoted(path)} is not accessible")
            os.unlink(name, dir_fd=parent)

    def entries(self, path: str) -> list[tuple[str, str]]:
        """Return (name, kind) of the entries of a folder, sorted by name, at most 100,000. The kind is file,
        folder, link or other."""
        steps = self.steps(path)
        with (
            self._open_folder(steps, path) as descriptor,
            _translated_errors(path),
            os.scandir(descriptor) as listing,
        ):
            shown = (each for each in islice(listing, _MOST_ENTRIES) if not self._is_hidden_entry(each))
            return sorted((each.name, _kind(each)) for each in shown)

    def files(
        self,
        path: str,
        *,
        skipped: frozenset[str],
        most: int,
        go_on: Callable[[], object] = lambda: None,
    ) -> Iterator[str]:
        """Yield the paths, relative to this object's folder and in order, of the regular files below `path`,
        without folders whose names are `skipped`. At most `most` files of at most `most` folders. `go_on` is
        called before each folder and ends the walk by raising."""
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
                continue  # it was removed meanwhile, or is not readable
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
    def _open_folder(
        self, steps: list[str], path: str, *, make: bool = False, writes: bool = False
    ) -> Iterator[int]:
        """The descriptor of a folder, opened component by component."""
        descriptor = os.dup(self._root)
        try:
            if writes:
                _check_no_repository(descriptor, path)
            for step in steps:
                with _translated_errors(path):
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
        """The descriptor of a path's parent folder, and the last component."""
        steps = self.steps(path)
        if not steps:
            raise FolderError(f"{_quoted(path)} is a folder")
        writes = make or writes
        if writes and not _VCS_FOLDERS.isdisjoint(step.casefold() for step in steps):
            raise FolderError(f"{_quoted(path)} belongs to version control and can't be written")
        with self._open_folder(steps[:-1], path, make=make, writes=writes) as parent:
            yield parent, steps[-1]

    def _read(self, parent: int, name: str, path: str, most: int) -> tuple[bytes, int]:
        """Return a file's content and permissions. Its type is checked on the open descriptor."""
        descriptor = os.open(name, _READ, dir_fd=parent)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise FolderError(f"{_quoted(path)} is a folder")
            if not stat.S_ISREG(status.st_mode):
                raise FolderError(f"{_quoted(path)} is not a regular file")
            if self._is_hidden(status):
                raise FolderError(f"{_quoted(path)} is not accessible")
            if status.st_nlink > 1:
                raise FolderError(
                    f"{_quoted(path)} has a second hard link, which may be outside of the folder"
                )
            data = file.read(most + 1)
        if len(data) > most:
            raise FolderError(f"{_quoted(path)} is larger than {most} bytes")
        return data, stat.S_IMODE(status.st_mode)

    def _is_hidden(self, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) in self._hidden

    def _is_hidden_entry(self, entry: os.DirEntry[str]) -> bool:
        if all(entry.inode() != number for _, number in self._hidden):
            return False
        return self._is_hidden(entry.stat(follow_symlinks=False))


def _replace(parent: int, name: str, data: bytes, mode: int | None) -> None:
    """Write a new file and rename it, so that no reader gets half of it and hard links keep the old
    content."""
    temporary = f".{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, _NEW, 0o666, dir_fd=parent)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode & 0o777)
        _write(descriptor, data)
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise


def _write(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _check(path: str, name: str, data: bytes) -> None:
    """Raises FolderError if a file of this name may not have this content."""
    if len(data) > MOST_BYTES:
        raise FolderError(f"{_quoted(path)} would be larger than {MOST_BYTES} bytes")
    if name.casefold() == _HEAD.casefold() and _HEAD_SAYS.match(data):
        raise FolderError(f"{_quoted(path)} would make its folder a git repository")


def _check_no_repository(descriptor: int, path: str) -> None:
    try:
        os.stat(_HEAD, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return
    raise FolderError(
        f"{_quoted(path)} is not written: its folder or one above it has a HEAD, like a git repository"
    )


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


@contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        raise FolderError(f"{_quoted(path)} {_MESSAGES.get(number or 0, 'can not be used')}") from error


def _quoted(path: str) -> str:
    shown = str(PurePosixPath(path)) if "\0" not in path else path
    return repr(shown if len(shown) <= 200 else f"{shown[:200]}…")
