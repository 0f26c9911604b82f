"""A folder that paths can't leave: not by `..`, links or absolute paths, nor between a check and its use."""

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from openresponses_cli.agents.tools.folder import MOST_BYTES, Folder, FolderError

WAYS: dict[str, Callable[[Folder, str], Any]] = {
    "read": lambda folder, path: folder.read(path),
    "create": lambda folder, path: folder.create(path, b"x"),
    "change": lambda folder, path: folder.change(path, lambda data: b"x"),
    "remove": lambda folder, path: folder.remove(path),
    "entries": lambda folder, path: folder.entries(path),
    "files": lambda folder, path: list(folder.files(path, skipped=frozenset(), most=10)),
}
OUT = [
    "../secret.txt",
    "a/../../secret.txt",
    "..",
    "/etc/passwd",
    "/project/../secret.txt",
    "/projects/a",
    "/",
    "~/../../secret.txt",
    "a/./../../outside",
    "a\0b",
    "a/" * 65,
    "x" * 300,
    "x/" * 400 + "y" * 300,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", OUT, ids=range(len(OUT)))
def test_paths_that_lead_out_are_refused(folder: Folder, inside: Path, way: str, path: str) -> None:
    (inside / "a").mkdir()
    with pytest.raises(FolderError):
        WAYS[way](folder, path)
    beside = {each.name for each in inside.parent.rglob("*") if inside not in each.parents}
    assert beside == {"work", "outside", "secret.txt"}
    assert (inside.parent / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize("way", ["read", "create", "change", "entries", "files"])
@pytest.mark.parametrize("path", ["link", "link/secret.txt", "file", "a/up/secret.txt", "loop/x", "loop"])
def test_links_are_not_followed_wherever_they_stand(
    folder: Folder, inside: Path, way: str, path: str
) -> None:
    (inside / "a").mkdir()
    (inside / "link").symlink_to("../outside")
    (inside / "file").symlink_to(inside.parent / "secret.txt")
    (inside / "a" / "up").symlink_to("../..")
    (inside / "loop").symlink_to("loop")
    with pytest.raises(FolderError) as caught:
        WAYS[way](folder, path)
    assert str(inside) not in caught.value.message
    assert (inside.parent / "secret.txt").read_text() == "secret"
    assert (inside.parent / "outside" / "secret.txt").read_text() == "secret"


def test_a_link_that_is_removed_is_removed_itself(folder: Folder, inside: Path) -> None:
    (inside / "file").symlink_to("../secret.txt")
    folder.remove("file")
    assert (inside.parent / "secret.txt").exists()
    assert not os.path.lexists(inside / "file")


def test_a_link_put_in_between_is_not_followed(folder: Folder, inside: Path) -> None:
    """A folder becomes a link and goes, as fast as can be, while files in it are read and written."""
    (inside / "old").mkdir()
    stop = threading.Event()

    def swap() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with suppress(OSError):
                os.rename(inside / "a", inside / "old" / str(number))
            with suppress(OSError):
                os.symlink("../outside", inside / "a")
            with suppress(OSError):
                os.unlink(inside / "a")

    swapping = threading.Thread(target=swap)
    swapping.start()
    done = refused = 0
    try:
        while not (done >= 20 and refused >= 20):
            try:
                folder.change("a/secret.txt", lambda data: b"written")
                done += 1
                assert folder.read("a/secret.txt") == b"written"
            except FolderError:
                refused += 1
    finally:
        stop.set()
        swapping.join()
    assert (inside.parent / "outside" / "secret.txt").read_text() == "secret"
    assert sorted(os.listdir(inside.parent / "outside")) == ["secret.txt"]


def test_a_folder_moved_away_stays_the_same_one(folder: Folder, inside: Path) -> None:
    os.rename(inside, inside.parent / "elsewhere")
    inside.symlink_to("outside")
    folder.create("a.txt", b"x")
    assert (inside.parent / "elsewhere" / "a.txt").exists()


def test_absolute_paths_below_the_name_that_models_know(folder: Folder, inside: Path) -> None:
    folder.create("/project/src/a.txt", b"x")
    assert (inside / "src" / "a.txt").read_bytes() == folder.read("src//./a.txt") == b"x"
    assert folder.entries("/project/") == folder.entries("") == [("src", "folder")]
    with Folder_of(inside) as real:
        assert real.read(f"{inside}/src/a.txt") == b"x"


class Folder_of:  # noqa: N801
    def __init__(self, path: Path) -> None:
        self._folder = Folder(path)

    def __enter__(self) -> Folder:
        return self._folder

    def __exit__(self, *_: object) -> None:
        self._folder.close()
        self._folder.close()


def test_a_file_is_created_once_and_changed_whole(folder: Folder, inside: Path) -> None:
    folder.create("a/b/c.txt", b"one")
    with pytest.raises(FolderError, match=r"'a/b/c\.txt' already exists"):
        folder.create("a/b/c.txt", b"two")
    os.chmod(inside / "a/b/c.txt", 0o640)
    folder.change("a/b/c.txt", lambda data: (data or b"") + b" two")
    assert folder.read("a/b/c.txt") == b"one two"
    assert (inside / "a/b/c.txt").stat().st_mode & 0o777 == 0o640
    assert os.listdir(inside / "a/b") == ["c.txt"]


def test_a_file_with_another_name_is_neither_read_nor_changed(folder: Folder, inside: Path) -> None:
    """The other one may be outside of the folder: what is here would be read there, or lose it."""
    os.link(inside.parent / "secret.txt", inside / "hard.txt")
    for way in ("read", "change"):
        with pytest.raises(FolderError, match="second hard link"):
            WAYS[way](folder, "hard.txt")
    assert list(folder.files("", skipped=frozenset(), most=10)) == ["hard.txt"]
    folder.remove("hard.txt")
    assert (inside.parent / "secret.txt").read_text() == "secret"


def test_what_the_name_led_to_is_looked_at_when_it_is_open(
    folder: Folder, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before, when it may have been another file."""
    (inside / "a").write_text("mine")
    plain = os.open

    def swapped(path: str, flags: int, *more: Any, **others: Any) -> int:
        if path == "a":
            os.unlink(inside / "a")
            os.link(inside.parent / "secret.txt", inside / "a")
        return plain(path, flags, *more, **others)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(FolderError, match="second hard link"):
        folder.read("a")


def test_a_hidden_file_is_not_there_for_anybody(folder: Folder, inside: Path) -> None:
    (inside / "run.jsonl").write_text("{}")
    (inside / "other").write_text("{}")
    with (inside / "run.jsonl").open() as file:
        folder.hide(file.fileno())
    for way in ("read", "change", "remove"):
        with pytest.raises(FolderError, match="not accessible"):
            WAYS[way](folder, "run.jsonl")
    with pytest.raises(FolderError, match="already exists"):
        folder.create("run.jsonl", b"")
    assert folder.entries("") == [("other", "file")]
    assert list(folder.files("", skipped=frozenset(), most=10)) == ["other"]
    (inside / "run.jsonl").rename(inside / "renamed")
    with pytest.raises(FolderError, match="not accessible"):
        folder.read("renamed")
    assert (inside / "renamed").read_text() == "{}"


def test_what_is_not_a_regular_file_is_not_opened(folder: Folder, inside: Path) -> None:
    os.mkfifo(inside / "pipe")
    (inside / "a").mkdir()
    for path in ("pipe", "a", ""):
        with pytest.raises(FolderError):
            folder.read(path)
        with pytest.raises(FolderError):
            folder.change(path, lambda data: b"")
    with pytest.raises(FolderError, match="does not exist"):
        folder.remove("b")
    with pytest.raises(FolderError, match=r"is a folder|not accessible"):
        folder.remove("a")
    with pytest.raises(FolderError, match="leads through something"):
        folder.read("pipe/x")
    assert folder.entries("") == [("a", "folder"), ("pipe", "other")]


def test_sizes_are_limited(folder: Folder, inside: Path) -> None:
    (inside / "large").write_bytes(b"x" * (MOST_BYTES + 1))
    with pytest.raises(FolderError, match="larger"):
        folder.read("large")
    with pytest.raises(FolderError, match="larger"):
        folder.create("b", b"x" * (MOST_BYTES + 1))
    with pytest.raises(FolderError, match="larger"):
        folder.change("c", lambda data: b"x" * (MOST_BYTES + 1))
    assert os.listdir(inside) == ["large"]


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".GIT/config", "sub/.git/config", ".git", ".hg/hgrc", "a/.jj/repo/x"]
)
def test_what_git_runs_is_not_written(folder: Folder, inside: Path, path: str) -> None:
    for way in ("create", "change", "remove"):
        with pytest.raises(FolderError, match="belongs to version control"):
            WAYS[way](folder, path)
    assert os.listdir(inside) == []


BARE = {
    "HEAD": b"ref: refs/heads/main\n",
    "config": b"[core]\n\tbare = false\n\tworktree = /\n\tfsmonitor = touch ran; false\n",
    "objects/x": b"",
    "refs/x": b"",
}


@pytest.mark.parametrize("names", list(permutations(BARE)), ids="-".join)
@pytest.mark.parametrize("head", ["HEAD", "head"])
def test_no_folder_becomes_a_repository_of_git(
    folder: Folder, inside: Path, names: Sequence[str], head: str
) -> None:
    """A folder with these is one, whatever it is called: `git status` there runs what its config names."""
    for name in names:
        for way in (folder.create, lambda path, data: folder.change(path, lambda _: data)):
            with suppress(FolderError):
                way(f"docs/{head if name == 'HEAD' else name}", BARE[name])
    assert not (inside / "docs" / head).exists()
    git = ["git", "-C", str(inside / "docs"), "rev-parse", "--git-dir"]
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(inside)}
    assert subprocess.run(git, capture_output=True, check=False, env=alone).returncode == 128


def test_a_bare_repository_that_is_there_is_not_written(folder: Folder, inside: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(inside / "a" / "repo.git")], check=True)
    before = (inside / "a/repo.git/config").read_bytes()
    for path in ("config", "hooks/post-checkout", "HEAD", "objects/info/alternates"):
        for way in ("create", "change", "remove"):
            with pytest.raises(FolderError, match="HEAD"):
                WAYS[way](folder, f"a/repo.git/{path}")
    assert (inside / "a/repo.git/config").read_bytes() == before
    folder.create("a/b", b"")


def test_a_file_may_be_called_head(folder: Folder) -> None:
    folder.create("head", b"of a page")
    folder.change("head", lambda data: b"of another")


def test_changes_at_once_lose_nothing(folder: Folder) -> None:
    folder.create("n", b"")

    def add() -> None:
        for _ in range(20):
            folder.change("n", lambda data: (data or b"") + b"x")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert folder.read("n") == b"x" * 80


def test_a_full_disk_leaves_the_file_as_it_was(
    folder: Folder, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.create("a", b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for way in (lambda: folder.change("a", lambda data: b"new"), lambda: folder.create("b", b"new")):
        with pytest.raises(FolderError, match="the disk is full"):
            way()
    assert {each.name: each.read_bytes() for each in inside.iterdir()} == {"a": b"old"}


def test_files_below_a_folder(folder: Folder, inside: Path) -> None:
    for path in ("b/x", "a/y", "a/skip/z", "w"):
        folder.create(path, b"")
    (inside / "a" / "link").symlink_to("../..")
    assert list(folder.files("", skipped=frozenset({"skip"}), most=10)) == ["w", "a/y", "b/x"]
    assert list(folder.files("a", skipped=frozenset(), most=10)) == ["a/y", "a/skip/z"]
    assert len(list(folder.files("", skipped=frozenset(), most=2))) == 2
    assert len(os.listdir("/proc/self/fd")) < 200


def test_no_descriptor_is_left_open(folder: Folder, inside: Path) -> None:
    (inside / "link").symlink_to("..")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("link/x", "a/b", "x", "../a"):
        for way in ("read", "entries", "remove"):
            with pytest.raises(FolderError):
                WAYS[way](folder, path)
    folder.create("a/b/c", b"")
    folder.change("a/b/c", lambda data: b"1")
    list(folder.files("", skipped=frozenset(), most=10))
    assert len(os.listdir("/proc/self/fd")) == before
