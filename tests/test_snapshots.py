"""`snapshots/` holds the files that the tests name and no others."""

import pytest

from tests.support.snapshots import SNAPSHOTS, named_files

GUIDE = SNAPSHOTS / "README.md"


def test_every_snapshot_belongs_to_a_test(request: pytest.FixtureRequest) -> None:
    on_disk = {path for path in SNAPSHOTS.rglob("*") if path.is_file()} - {GUIDE}
    unused = on_disk - named_files()
    if request.config.option.update_snapshots:
        for path in unused:
            path.unlink()
        return
    names = sorted(str(path.relative_to(SNAPSHOTS)) for path in unused)
    assert not names, f"no test names these; `make snapshots` deletes them: {names}"
