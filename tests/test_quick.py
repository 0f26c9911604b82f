"""`make quick` tries the tests of what changed."""

import pytest

from tests import quick
from tests.support.shared import REPOSITORY


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("bridge/openresponses_bridge/sse.py", ["tests/bridge/test_sse.py"]),
        ("bridge/openresponses_bridge/emitter/__init__.py", ["tests/bridge/emitter"]),
        ("bridge/openresponses_bridge/state.py", ["tests/bridge"]),
        ("server/openresponses_server/tasks.py", ["tests/server/test_tasks.py"]),
        ("server/openresponses_server/limits/gone.py", ["tests/server/limits"]),
        ("tests/bridge/test_wire.py", ["tests/bridge/test_wire.py"]),
        ("tests/bridge/test_gone.py", []),
        ("tests/support/machines.py", [*quick.LIBRARY]),
        ("docs/server.md", []),
    ],
)
def test_what_changed_names_its_tests(changed: str, tests: list[str]) -> None:
    assert quick.tests_of(changed) == tests
    assert all((REPOSITORY / each).exists() for each in tests)


def test_a_folder_takes_in_its_files_and_nothing_or_much_is_the_library() -> None:
    both = ["bridge/openresponses_bridge/emitter/__init__.py", "tests/bridge/emitter/test_order.py"]
    assert quick.selection(both) == ["tests/bridge/emitter"]
    assert quick.selection(["README.md"]) == [*quick.LIBRARY]
    tests = [str(each.relative_to(REPOSITORY)) for each in (REPOSITORY / "tests/server").rglob("test_*.py")]
    assert quick.selection(tests) == [*quick.LIBRARY]
