"""Snapshots as readable files: `tests/a/test_b.py::test_c` is kept in `snapshots/a/test_b/test_c.json`."""

from pathlib import Path
from typing import Any

import msgspec
from syrupy.extensions.json import JSONSnapshotExtension
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from tests.support.shared import REPOSITORY

_TESTS = REPOSITORY / "tests"
_SNAPSHOTS = REPOSITORY / "snapshots"


def _mirrored(test_location: PyTestLocation) -> str:
    below_tests = Path(test_location.filepath).resolve().relative_to(_TESTS)
    return str(_SNAPSHOTS / below_tests.with_suffix(""))


class JsonSnapshots(JSONSnapshotExtension):
    """Structs, lists of them and plain data, as indented JSON with sorted keys."""

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        return _mirrored(test_location)

    def serialize(self, data: Any, **filters: Any) -> str | bytes:
        return super().serialize(msgspec.to_builtins(data), **filters)


class SseSnapshots(SingleFileSnapshotExtension):
    """A stream's bytes, kept as the text they are."""

    _write_mode = WriteMode.TEXT
    file_extension = "sse"

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        return _mirrored(test_location)

    def serialize(self, data: bytes, **_filters: Any) -> str:
        return data.decode()
