"""The names that the agent's packages had in the library, which other people's programs import."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.support.shared import REPOSITORY

OLD = {
    "openresponses_bridge.loop": "openresponses_agent.loop",
    "openresponses_bridge.prompt": "openresponses_agent.prompt",
    "openresponses_bridge.prompt.raw": "openresponses_agent.prompt.raw",
    "openresponses_bridge.tools": "openresponses_agent.tools",
    "openresponses_bridge.tools.loop": "openresponses_agent.loop",
}


@pytest.mark.parametrize("old", OLD)
def test_it_has_all_that_the_package_exports(old: str) -> None:
    here, home = import_module(old), import_module(OLD[old])
    names = getattr(home, "__all__", None) or [
        name for name, value in vars(home).items() if getattr(value, "__module__", "") == home.__name__
    ]
    assert len(names) > 5
    public = [name for name in names if not name.startswith("_")]
    assert [name for name in public if getattr(here, name) is not getattr(home, name)] == []


@pytest.mark.parametrize("old", OLD)
def test_type_checkers_read_the_same(old: str) -> None:
    file = Path(str(import_module(old).__file__))
    (line,) = file.with_suffix(".pyi").read_text().splitlines()
    assert line in file.read_text().splitlines()
    assert line.startswith(f"from {OLD[old]} import *")


def test_nothing_of_ours_imports_an_old_name() -> None:
    files = [path for root in ("bridge", "server", "docs") for path in (REPOSITORY / root).rglob("*.py")]
    assert len(files) > 500
    imports = [
        str(path) for path in files for old in OLD if f"from {old} import" in path.read_text(encoding="utf-8")
    ]
    assert imports == []
