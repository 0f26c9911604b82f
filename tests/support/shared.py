"""Finds the folder of the recorded streams and the published schema, which is beside the project, never
inside it.

`OPENRESPONSES_SHARED` names it; by default, it is `shared` beside the repository. Without it, tests that need
it skip with a reason, so that a clone alone still runs everything else.
"""

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

REPOSITORY = Path(__file__).resolve().parents[2]


@cache
def shared_root() -> Path | None:
    """The shared folder, or None when this machine has none."""
    named = os.environ.get("OPENRESPONSES_SHARED")
    root = Path(named) if named else REPOSITORY.parent / "shared"
    return root if (root / "fixtures").is_dir() else None


def require_shared() -> Path:
    """The shared folder; skips the calling test (or its module, at import time) when there is none."""
    root = shared_root()
    if root is None:
        pytest.skip(_absent(), allow_module_level=True)
    return root


def shared_files(folder: str, *patterns: str) -> "list[ParameterSet]":
    """Parameters for `parametrize`: each file of `fixtures/<folder>` that matches one of the patterns.

    Each has its file name as its id. Without the shared folder, the list contains one skipped parameter, so
    that the test is collected and says why it did not run. A folder without such a file is an error.
    """
    root = shared_root()
    if root is None:
        return [pytest.param(None, id=f"no-shared-folder-{folder}", marks=pytest.mark.skip(reason=_absent()))]
    base = root / "fixtures" / folder
    paths = sorted({path for pattern in patterns or ("*",) for path in base.glob(pattern) if path.is_file()})
    if not paths:
        raise FileNotFoundError(f"no file under fixtures/{folder} matches {patterns}")
    return [pytest.param(path, id=path.name) for path in paths]


def _absent() -> str:
    named = os.environ.get("OPENRESPONSES_SHARED")
    where = f"OPENRESPONSES_SHARED={named}" if named else "a folder 'shared' beside the repository"
    return f"needs the shared fixtures: {where} is not there"
