"""Which tests run a place in the code, in any of their processes, and how each test ended.

`python -m tests.mutations` copies this file to where the processes of tests import it from, and gives it to
pytest as a plugin.
"""

import os
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(os.environ.get("REACHED", "."))
_noted: set[tuple[int, str]] = set()


def note(place: int) -> None:
    """The test that runs now, or that started this process, has reached this place: a line in the file of
    its number."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if (place, test) not in _noted:
        _noted.add((place, test))
        with (_FOLDER / str(place)).open("a", encoding="utf-8") as file:
            file.write(test + "\n")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Of what was collected, run the tests that the file `wanted` names, all without one."""
    if (wanted := _FOLDER / "wanted").exists():
        names = set(wanted.read_text("utf-8").splitlines())
        config.hook.pytest_deselected(items=[each for each in items if each.nodeid not in names])
        items[:] = [each for each in items if each.nodeid in names]


def pytest_runtest_logreport(report: Any) -> None:
    """A line in the file `ended`: how a test or what it sets up ended, its seconds, its name."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with (_FOLDER / "ended").open("a", encoding="utf-8") as file:
            file.write(f"{report.outcome}\t{report.duration}\t{report.nodeid}\n")
