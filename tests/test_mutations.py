"""`python -m tests.mutations`: what it changes, and which tests judge that."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations import Copy, is_near, mutations, noted, wide_tests


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("return a < b", ["return (a <= b)"]),
        ("return a and b", ["return (a or b)"]),
        ("return not a", ["return (a)"]),
        ("return a + é", ["return (a - é)"]),
        ("a.b(c)", ["pass"]),
        ("self.a = 1", ["pass"]),
        ("a = 1", []),
        ("x = 1 if a else 2", ["x = 1 if (not (a)) else 2"]),
        ("return f'{a < b}'", []),
    ],
)
def test_each_mistake_is_one_change_of_a_function(line: str, changed: list[str]) -> None:
    source = f"a = 1 < 2\ndef f(a=1 < 2):\n    {line}\n".encode()
    made = [each.applied(source).decode() for each in mutations(source)]
    assert made == [f"a = 1 < 2\ndef f(a=1 < 2):\n    {new}\n" for new in changed]
    assert all(ast.parse(each) for each in made)


def test_each_place_that_is_run_is_noted_and_nothing_else_differs(tmp_path: Path) -> None:
    source = b"""def f(a, b):
    if a < b and not a:
        print(a + b + 1, end="")
    elif a < b or a + b: print(-1, end="")
    return 2 if a else 3
print(f(0, 2), f(2, 0))
"""
    places = dict(enumerate(mutations(source)))
    reached = {place: tmp_path / str(place) for place in places}
    code = noted(source, places).decode().replace('__import__("reached")', "reached")
    recorder = "import pathlib\nclass reached:\n    note = lambda place: pathlib.Path(str(place)).touch()\n"
    done = subprocess.run(
        [sys.executable, "-c", recorder + code], cwd=tmp_path, capture_output=True, check=True
    )
    assert done.stdout == b"3-13 2\n"
    assert all(file.exists() for file in reached.values())


def test_near_are_the_tests_of_the_name_and_of_the_folder() -> None:
    assert is_near("bridge/openresponses_bridge/sse.py", "tests/bridge/test_sse.py")
    assert is_near("server/openresponses_server/store/persistence.py", "tests/server/store/sql/test_store.py")
    assert not is_near("server/openresponses_server/store/persistence.py", "tests/server/api/test_store.py")
    assert is_near("server/openresponses_cli/agents/tools.py", "tests/cli/agents/test_tools.py")
    assert wide_tests("server/openresponses_cli/agents") == ["tests/cli"]
    assert "tests/agent" in wide_tests("bridge/openresponses_bridge")


def test_only_the_wanted_tests_are_run_and_their_ends_are_known(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.root.mkdir()
    (copy.root / "test_one.py").write_text(
        "import reached\n"
        "def test_a():\n    reached.note(7)\n"
        "def test_b():\n    reached.note(7)\n    assert False\n"
        "def test_c():\n    pass\n"
    )
    assert copy.run("-n0", tests=["test_one.py"], seconds=60) == 1
    assert copy.passed().keys() == {"test_one.py::test_a", "test_one.py::test_c"}
    assert copy.reached(7) == {"test_one.py::test_a", "test_one.py::test_b"}
    assert copy.run("-n0", tests=["test_one.py"], wanted=["test_one.py::test_a"], seconds=60) == 0
    assert copy.passed().keys() == {"test_one.py::test_a"}
