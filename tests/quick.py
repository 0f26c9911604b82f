"""Chooses the tests that `make quick` gives pytest: those of what differs from `main`, within about a minute.

It reports on stderr which tests it chose and why, which it left out because they take too long, and which
changed files no test covers. As a plugin of pytest, it records how long each file of tests took; the next
choice uses these times.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import PurePosixPath as Path
from typing import Any, Final, NamedTuple

from tests.support.shared import REPOSITORY

ALWAYS: Final = ("tests/bridge/dialects/test_outcomes.py", "tests/server/test_snapshots_names.py")
"""Tests that find a change which is missing elsewhere: a field without an outcome, a flag without its
name."""
LIBRARY: Final = ("tests/agent", "tests/bridge", "tests/conformance")
SECONDS: Final = 40.0
"""The seconds that a run may take on each core, according to the recorded times of earlier runs."""
_UNKNOWN: Final = 2.0  # the assumed seconds of a file that has not run yet
_TIMES: Final = REPOSITORY / ".venv" / ".quick.json"
MIRRORED: Final = {
    "bridge/openresponses_agent": "tests/agent",
    "bridge/openresponses_bridge": "tests/bridge",
    "server/openresponses_cli": "tests/cli",
    "server/openresponses_server": "tests/server",
}
_DOCUMENTS: Final = ("tests/test_docs.py", "tests/test_docs_blocks.py", "tests/test_docs_laws.py")
_SERVER: Final = "server/openresponses_server"
# a file whose tests are not only in the folder that mirrors its own → those tests
_ELSEWHERE: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        f"{_SERVER}/upstreams/profiles/*.toml",
        ("tests/server/upstreams/test_profiles.py", "tests/test_docs.py"),
    ),
    (f"{_SERVER}/surfaces/*.py", ("tests/server/api",)),
    ("server/openresponses_cli/commands/*.py", ("tests/cli/test_snapshots_cli.py", "tests/test_manual.py")),
    ("server/man/*", ("tests/test_manual.py",)),
    ("docs/drawn_manual.py", ("tests/test_manual.py",)),
    (f"{_SERVER}/commands/*", ("tests/cli/test_pytest_plugin.py",)),
    (f"{_SERVER}/settings/*.py", ("tests/test_docs.py",)),
    (f"{_SERVER}/vscode/extension/*", ("tests/server/vscode",)),
    ("bridge/openresponses_bridge/protocol/*.py", ("tests/test_docs.py",)),
    ("bridge/openresponses_bridge/conformance/rules_*.py", ("tests/test_docs.py",)),
    ("docs/examples/*", ("tests/test_examples.py",)),
    ("docs/drawn_*.py", ("tests/test_docs.py", "tests/test_plots.py")),
    ("docs/generate.py", ("tests/test_docs.py",)),
    ("docs/*.json", ("tests/test_docs.py",)),
    ("docs/*.svg", ("tests/test_docs.py",)),
    ("*.md", _DOCUMENTS),
    ("*pyproject.toml", ("tests/test_house.py", "tests/bridge/test_imports.py")),
    ("*MANIFEST.in", ("tests/packaging/test_release.py",)),
    ("Makefile", ("tests/test_house.py",)),
    ("tests/quick.py", ("tests/test_quick.py",)),
    (".ci/*", ("tests/test_audit.py",)),
)
_BY_OTHER_TARGETS: Final = (
    ("docs/deploy/*", "make deploy"),
    ("docs/site/*", "make docs-test"),
    ("tests/clients/*", "make clients"),
    ("tests/engines/*", "make engines"),
    ("constraints.txt", "make packages"),
    ("setup.py", "make packages"),
)


class Choice(NamedTuple):
    """The files of tests for one run: `why` has the reason for each, `left_out` has those that would take too
    long, `uncovered` maps each changed file without a test to the target that has one, or to ""."""

    why: dict[str, str]
    left_out: list[str]
    uncovered: dict[str, str]


def changed_files() -> list[str]:
    """The files that are committed here and not on `main`, the uncommitted changes, and the new files."""
    base = _git("merge-base", "HEAD", "main") or ["HEAD"]
    return [*_git("diff", "--name-only", base[0]), *_git("ls-files", "--others", "--exclude-standard")]


def tests_of(changed: str) -> list[str]:
    """The tests of a changed file: files named after it come first, then folders. Empty if no test reads the
    file."""
    path = Path(changed)
    elsewhere = [test for pattern, tests in _ELSEWHERE if fnmatch(changed, pattern) for test in tests]
    if path.is_relative_to("tests/support") or path.name == "conftest.py":
        return [*elsewhere, *LIBRARY]
    if path.is_relative_to("tests"):
        own = path.name.startswith("test_") and path.suffix == ".py" and (REPOSITORY / path).exists()
        return [*elsewhere, changed] if own else elsewhere or nearest(path.parent)
    if path.is_relative_to("snapshots"):
        return [*elsewhere, *_snapshots_of(path)]
    for package, tests in MIRRORED.items():
        if path.is_relative_to(package):
            place = tests / path.parent.relative_to(package)
            named = _named(place, path.stem.lstrip("_"))
            return (
                [*named, *elsewhere]
                if named or (elsewhere and path.suffix != ".py")
                else [*elsewhere, *nearest(place)]
            )
    return [*elsewhere, *_readers_of(path)] if path.suffix == ".md" else elsewhere


def choose(changed: Iterable[str], times: Mapping[str, float], seconds: float) -> Choice:
    """Choose the tests of these files that fit into so many seconds of work: those that always run, then
    those named after a file, then those of folders, the quickest first. If no files have changed, take a
    sample of the library's tests."""
    why: dict[str, str] = dict.fromkeys(ALWAYS, "always")
    named: dict[str, str] = {}
    folders: dict[str, str] = {}
    uncovered: dict[str, str] = {}
    for each in changed:
        tests = tests_of(each)
        other = next((target for pattern, target in _BY_OTHER_TARGETS if fnmatch(each, pattern)), "")
        if other or not tests:
            uncovered[each] = other
        for test in tests:
            (named if test.endswith(".py") else folders).setdefault(test, each)
    if not folders and not named:
        folders = dict.fromkeys(LIBRARY, "nothing else")
    inside = {test: folders[folder] for folder in folders for test in _files_in(folder)}
    left = seconds - sum(times.get(test, _UNKNOWN) for test in why)
    left_out = []
    for group in (named, inside):
        for test in sorted(group.keys() - why.keys(), key=lambda each: (times.get(each, _UNKNOWN), each)):
            duration = times.get(test, _UNKNOWN)
            if duration <= left:
                left -= duration
                why[test] = group[test]
            elif test not in left_out:
                left_out.append(test)
    return Choice(why, left_out, uncovered)


def report(choice: Choice) -> str:
    """The choice as text for a person."""
    reasons: dict[str, list[str]] = {}
    for test, changed in choice.why.items():
        reasons.setdefault(changed, []).append(test.removeprefix("tests/"))
    lines = [
        f"{changed}: {', '.join(tests[:4])}{_more(len(tests) - 4)}" for changed, tests in reasons.items()
    ]
    if choice.left_out:
        lines.append(
            f"left out, since all would take too long: {', '.join(choice.left_out[:4])}"
            f"{_more(len(choice.left_out) - 4)}; `make test` runs them"
        )
    for changed, target in choice.uncovered.items():
        lines.append(f"NOT COVERED here: {changed}" + (f" (`{target}` tests it)" if target else ""))
    return "\n".join(lines)


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _named(place: Path, stem: str) -> list[str]:
    if stem == "init__":
        return []
    return sorted(str(place / each.name) for each in (REPOSITORY / place).glob(f"test_*{stem}*.py"))


def nearest(place: Path) -> list[str]:
    """The folder of this path, or the test files named after it; if neither exists, the nearest folder above
    that does. Empty if that is the folder of a whole layer, such as `tests/server`."""
    while not (REPOSITORY / place).is_dir():
        if named := _named(place.parent, place.name):
            return named
        place = place.parent
    return [] if str(place) in ("tests/cli", "tests/server", "tests", ".") else [str(place)]


def _snapshots_of(path: Path) -> list[str]:
    """The tests that write snapshots in the nearest folder around this file's."""
    place = Path("tests") / path.parent.relative_to("snapshots")
    while place.name:
        if files := sorted((REPOSITORY / place).glob("test_snapshots*.py")):
            return [str(place / each.name) for each in files]
        place = place.parent
    return []


def _readers_of(page: Path) -> list[str]:
    """The tests that name a page, by its path or by its name."""
    names = (f'"{page}"', f"'{page}'", f'"{page.name}"')
    tests = (path for path in (REPOSITORY / "tests").rglob("test_*.py") if "clients" not in path.parts)
    readers = [path for path in tests if any(name in path.read_text("utf-8") for name in names)]
    return sorted(str(path.relative_to(REPOSITORY)) for path in readers)


def _files_in(folder: str) -> list[str]:
    files = (REPOSITORY / folder).rglob("test_*.py")
    return sorted(str(path.relative_to(REPOSITORY)) for path in files)


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def known_times() -> dict[str, float]:
    """The seconds that each file of tests took when it last ran."""
    try:
        return {str(name): float(duration) for name, duration in json.loads(_TIMES.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


# The plugin: `-p tests.quick`.

_took: Counter[str] = Counter()


def pytest_runtest_logreport(report: Any) -> None:
    """Add the time of a test, or of its setup."""
    _took[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish() -> None:
    """Save the times."""
    times = known_times() | {name: round(duration, 2) for name, duration in _took.items()}
    _TIMES.write_text(json.dumps(dict(sorted(times.items())), indent=0))


if __name__ == "__main__":
    changes = [] if "all" in sys.argv[1:] else changed_files()
    chosen = choose(changes, known_times(), SECONDS * (os.cpu_count() or 1))
    print(report(chosen), file=sys.stderr)
    print(*chosen.why)
