"""Each of the 45 failures that other bridges had in the field is a test by its number."""

from __future__ import annotations

import re

from tests.support.shared import REPOSITORY

_NAMED = re.compile(r"def test_\w*case_(\d\d)_")


def test_every_field_case_is_a_named_test() -> None:
    found = {
        int(number)
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        for number in _NAMED.findall(path.read_text(encoding="utf-8"))
    }
    assert sorted(set(range(1, 46)) - found) == []
