"""Snapshots: files under `snapshots/` with what was sent, for people to read.

A test names its file itself, relative to the folder that mirrors its own: `@snapshots("streams/{name}.sse",
…)` in `tests/bridge/emitter/` writes `snapshots/bridge/emitter/streams/….sse`. The names are known without
running the test, so `tests/test_snapshots.py` finds a file that no test names, however the tests were
selected and distributed.
"""

import json
from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import pytest
from syrupy.data import SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from openresponses_bridge.protocol.codec import encode
from tests.support.shared import REPOSITORY

SNAPSHOTS = REPOSITORY / "snapshots"
_TESTS = REPOSITORY / "tests"
_MARK = "snapshot_files"

Test = TypeVar("Test", bound=Callable[..., Any])


class SnapshotFiles(SingleFileSnapshotExtension):
    """One file per test: bytes and text as they are, any other value as indented JSON with its fields in
    their order."""

    _write_mode = WriteMode.TEXT
    file_extension = ""

    @classmethod
    def get_location(cls, *, test_location: PyTestLocation, index: Any) -> str:
        assert not index, "a test has one snapshot"
        return str(_file_of(test_location))

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        return str(_folder_of(Path(test_location.filepath)))

    def discover_snapshots(self, **_site: Any) -> SnapshotCollections:
        """Return no snapshots: syrupy reports unused files only if no test is deselected, and some always
        are."""
        return SnapshotCollections()

    @classmethod
    def matches_test_location(cls, *, test_location: PyTestLocation, snapshot_location: str) -> bool:
        return Path(snapshot_location) == _file_of(test_location)

    def serialize(self, data: Any, **_filters: Any) -> str:
        if isinstance(data, str):
            return data
        return data.decode() if isinstance(data, bytes) else pretty(data)


def pretty(value: Any) -> str:
    """A value as indented JSON, with its fields in the order in which they are sent."""
    return json.dumps(json.loads(encode(value)), indent=2, ensure_ascii=False) + "\n"


def snapshots(pattern: str, **values: Iterable[str]) -> Callable[[Test], Test]:
    """Run a test once for each combination of `values`, each with the file that `pattern` names for it. The
    test asks for `snapshot` and for the values by their names."""
    lists = {name: list(each) for name, each in values.items()}
    cases = {pattern.format(**dict(zip(lists, case, strict=True))): case for case in product(*lists.values())}

    def mark(test: Test) -> Test:
        setattr(test, _MARK, frozenset(cases))
        if not lists:
            lists["snapshot_file"] = []
        rows = [pytest.param(*(case or (file,)), id=file) for file, case in cases.items()]
        marked: Test = pytest.mark.parametrize(tuple(lists), rows)(test)
        return marked

    return mark


def named_files() -> set[Path]:
    """The snapshot files that the tests name."""
    named = set()
    for path in sorted(_TESTS.rglob("test_snapshots*.py")):
        module = import_module(".".join(path.relative_to(REPOSITORY).with_suffix("").parts))
        for each in vars(module).values():
            named |= {_folder_of(path) / file for file in getattr(each, _MARK, ())}
    return named


def _folder_of(test: Path) -> Path:
    return SNAPSHOTS / test.resolve().relative_to(_TESTS).parent


def _file_of(location: PyTestLocation) -> Path:
    name = str(location.nodename)
    return _folder_of(Path(location.filepath)) / name[name.index("[") + 1 : -1]
