"""A folder with a secret beside it that nothing may reach."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from openresponses_cli.agents.tools.folder import Folder


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    return path


@pytest.fixture
def folder(inside: Path) -> Iterator[Folder]:
    opened = Folder(inside, shown_as="/project")
    yield opened
    opened.close()
