"""`snapshots/` holds the files that the tests name and no others, and its guide leads to them."""

import re

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


def test_every_named_snapshot_is_there(request: pytest.FixtureRequest) -> None:
    """Also where the test that names it is skipped."""
    if request.config.option.update_snapshots:
        return  # they may be written after this test
    assert not sorted(str(path.relative_to(SNAPSHOTS)) for path in named_files() if not path.is_file())


def test_the_guide_leads_to_files() -> None:
    links = re.findall(r"\]\(([^)]+)\)", GUIDE.read_text("utf-8"))
    assert len(links) > 10
    assert not [link for link in links if not (SNAPSHOTS / link).is_file()]
