"""Each failure that other bridges had in the field is a test by its number."""

from __future__ import annotations

import re

from tests.support.shared import REPOSITORY

_NAMED = re.compile(r"def test_\w*case_(\d\d)_")
_ROW = re.compile(r"^\| (\d+) \|", re.MULTILINE)


def test_every_field_case_is_a_named_test() -> None:
    names = {
        int(number)
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        for number in _NAMED.findall(path.read_text(encoding="utf-8"))
    }
    listed = [int(number) for number in _ROW.findall((REPOSITORY / "docs/laws.md").read_text("utf-8"))]
    assert listed == list(range(1, len(listed) + 1))
    assert len(listed) >= 45
    assert sorted(set(listed) - names) == []
