"""What `make quick` gives pytest, in one line: the tests of what differs from `main`, else the library's."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import PurePosixPath as Path

from tests.support.shared import REPOSITORY

LIBRARY = ("tests/bridge", "tests/conformance")
MIRRORED = {"bridge/openresponses_bridge": "tests/bridge", "server/openresponses_server": "tests/server"}
MANY = 40
"""With more files than that to test, the library is a better sample than all that their folders hold."""


def changed_files() -> list[str]:
    """What is committed here and not on `main`, what is not committed, and what is new."""
    base = _git("merge-base", "HEAD", "main") or ["HEAD"]
    return [*_git("diff", "--name-only", base[0]), *_git("ls-files", "--others", "--exclude-standard")]


def tests_of(changed: str) -> list[str]:
    """Where a changed file has its tests: files named after a module, else those of its folder; none when it
    has no place that mirrors it."""
    path = Path(changed)
    if path.suffix != ".py":
        return []
    if path.is_relative_to("tests/support") or path.name == "conftest.py":
        return [*LIBRARY]
    if path.is_relative_to("tests"):
        return [changed] if path.name.startswith("test_") and (REPOSITORY / path).exists() else []
    for package, tests in MIRRORED.items():
        if path.is_relative_to(package):
            place = tests / path.parent.relative_to(package)
            return _named(place, path.stem.lstrip("_")) or _nearest(place)
    return []


def selection(changed: Iterable[str]) -> list[str]:
    """The files and folders that pytest is given. What lies in a folder that is given is not given again."""
    found = {Path(test) for each in changed for test in tests_of(each)}
    outermost = sorted(str(each) for each in found if found.isdisjoint(each.parents))
    return outermost if 0 < len(outermost) <= MANY else [*LIBRARY]


def _named(place: Path, stem: str) -> list[str]:
    if stem == "init__":
        return []
    folder = REPOSITORY / place
    return sorted(str(place / each.name) for each in folder.glob(f"test_{stem}*.py"))


def _nearest(place: Path) -> list[str]:
    """The folder, or the one around it that is there; of the whole server, its own files are none."""
    while not (REPOSITORY / place).is_dir():
        place = place.parent
    return [] if str(place) == "tests/server" else [str(place)]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


if __name__ == "__main__":
    print(*(LIBRARY if "all" in sys.argv[1:] else selection(changed_files())))
