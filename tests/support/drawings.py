"""The programs that draw the tables of the pages."""

import runpy
from typing import Any

import pytest

from tests.support.shared import REPOSITORY


def drawing(name: str) -> dict[str, Any]:
    """Return the names that a module in docs/ defines, with their values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY / "docs"))
        return runpy.run_path(str(REPOSITORY / "docs" / name))
