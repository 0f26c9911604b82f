"""`python -m tests.mutations`: what it changes, and which tests judge that."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations import Copy, is_asked, is_near, mutations, noted, rounds, wide_tests
from tests.support.reached import Judged
from tests.support.releases import python_path
from tests.support.waiting import NEVER, wait_until


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("return a < b", ["return (a <= b)"]),
        ("return a and b", ["return (a or b)"]),
        ("return not a", ["return (a)"]),
        ("return a + é", ["return (a - é)"]),
        ("a.b(c)", ["None and a.b(c)"]),
        ("self.a = 1", ["pass"]),
        ("a = 1", []),
        ("x = 1 if a else 2", ["x = 1 if (not (a)) else 2"]),
        ("return (b := a) + 1", ["return ((b := a) - 1)"]),
        ("return f'{a < b}'", []),
    ],
)
def test_each_mistake_is_one_change_of_a_function(line: str, changed: list[str]) -> None:
    source = f"a = 1 < 2\ndef f(a=1 < 2):\n    {line}\n".encode()
    mutants = [each.applied(source).decode() for each in mutations(source)]
    assert mutants == [f"a = 1 < 2\ndef f(a=1 < 2):\n    {new}\n" for new in changed]
    assert all(ast.parse(each) for each in mutants)


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


def test_what_is_asked_for_is_a_folder_a_module_or_a_line() -> None:
    sse, state = "bridge/openresponses_bridge/sse.py", "bridge/openresponses_bridge/state.py"
    assert is_asked(sse, 7, ["bridge/openresponses_bridge/"])
    assert is_asked(sse, 7, [state, sse])
    assert is_asked(sse, 7, [f"{sse}:6", f"{sse}:7"])
    assert not is_asked(sse, 7, [state, f"{sse}:77", f"{state}:7", "bridge/openresponses_bridge/s"])


def test_near_are_the_tests_of_the_name_and_of_the_folder() -> None:
    assert is_near("bridge/openresponses_bridge/sse.py", "tests/bridge/test_sse.py")
    assert is_near("server/openresponses_server/store/persistence.py", "tests/server/store/sql/test_store.py")
    assert not is_near("server/openresponses_server/store/persistence.py", "tests/server/api/test_store.py")
    assert is_near("server/openresponses_cli/agents/tools.py", "tests/cli/agents/test_tools.py")
    assert wide_tests("server/openresponses_cli/agents") == ["tests/cli"]
    assert "tests/agent" in wide_tests("bridge/openresponses_bridge")


def test_near_tests_judge_first_and_the_quickest_files_for_as_long_as_is_allowed() -> None:
    durations = {
        "tests/bridge/test_sse.py::test_a": 3.0,
        "tests/agent/test_x.py::test_slow": 9.0,
        "tests/agent/test_y.py::test_quick": 1.0,
        "tests/agent/test_z.py::test_slowest": 10.0,
    }
    near, elsewhere = rounds("bridge/openresponses_bridge/sse.py", durations, 5.0)
    assert near == ("near", ["tests/bridge/test_sse.py::test_a"])
    assert elsewhere == (
        "elsewhere",
        ["tests/agent/test_y.py::test_quick", "tests/agent/test_x.py::test_slow"],
    )


# without plugins whose imports take more than half of the time
INI = "[pytest]\naddopts = -p no:anyio -p no:hypothesispytest -p no:randomly -p no:syrupy\n"


def copy_of(folder: Path, module: str, tests: str) -> Copy:
    """A copy of a tree that has one module, and one file of tests of it."""
    copy = Copy(folder)
    (copy.root / "bridge").mkdir(parents=True)
    (copy.root / "bridge" / "module.py").write_text(module)
    (copy.root / "test_one.py").write_text(tests)
    (copy.root / "pytest.ini").write_text(INI)
    return copy


def test_a_mistake_is_noticed_by_the_round_that_runs_it_and_what_passes_is_known(tmp_path: Path) -> None:
    module = "import reached\ndef f():\n    reached.note(7)\n    return 1\n"
    copy = copy_of(
        tmp_path,
        module,
        "import subprocess, sys\n"
        "from module import f\n"
        "def test_a():\n    assert f()\n"
        "def test_b():\n    assert f() == 1\n"
        "def test_c():\n    assert False\n"
        "def test_d():\n    assert subprocess.check_output([sys.executable, '-c', "
        "'import module; print(module.f())']) == b'1\\n'\n",
    )
    copy.run(tests=["test_one.py"])
    a, b, d = (f"test_one.py::test_{each}" for each in "abd")
    assert copy.passed().keys() == {a, b, d} == copy.reached(7)
    plan = [
        Judged(number, "bridge/module.py", mistaken, [("near", [a]), ("elsewhere", [wide])], 60.0)
        for number, (mistaken, wide) in enumerate(
            [
                (module, b),
                (module.replace("1", "0"), b),
                (module.replace("1", "2"), b),
                (module.replace("1", "2"), d),
            ]
        )
    ]
    judged = list(copy.judge("-x", tests=["test_one.py"], plan=plan))
    assert judged == [(0, "SURVIVED"), (1, "near"), (2, "elsewhere"), (3, "elsewhere")]
    assert (copy.root / "bridge" / "module.py").read_text() == module


def test_each_result_is_known_before_the_next_mistake_is_judged(tmp_path: Path) -> None:
    module = "def f():\n    return 1\n"
    copy = copy_of(
        tmp_path,
        module,
        "import os, time\n"
        "from module import f\n"
        "def test_a():\n    assert f() == 1\n"
        "def test_b():\n"
        "    while not os.path.exists('known'):\n        time.sleep(0.01)\n"
        "    assert f() == 1\n",
    )
    mistaken = module.replace("1", "2")
    plan = [
        Judged(number, "bridge/module.py", mistaken, [("near", [f"test_one.py::test_{name}"])], 60.0)
        for number, name in enumerate("ab")
    ]
    judging = copy.judge("-x", tests=["test_one.py"], plan=plan)
    assert next(judging) == (0, "near")
    (copy.root / "known").touch()
    assert list(judging) == [(1, "near")]


def test_judging_that_is_left_ends_what_it_has_started(tmp_path: Path) -> None:
    module = "def f():\n    return 1\n"
    copy = copy_of(
        tmp_path,
        module,
        "import os, pathlib, time\n"
        "from module import f\n"
        "def test_a():\n    assert f() == 1\n"
        "def test_b():\n"
        "    pathlib.Path('new').write_text(str(os.getpid()))\n"
        "    os.rename('new', 'pid')\n"
        "    while f():\n        time.sleep(0.01)\n",
    )
    plan = [
        Judged(number, "bridge/module.py", module, [("near", [f"test_one.py::test_{name}"])], NEVER)
        for number, name in enumerate("ab")
    ]
    judging = copy.judge("-x", tests=["test_one.py"], plan=plan)
    assert next(judging) == (0, "SURVIVED")
    wait_until((copy.root / "pid").exists)
    judging.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((copy.root / "pid").read_text()), 0)


def test_a_mistake_that_nothing_judges_is_unknown(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.root.mkdir()
    (copy.root / "pytest.ini").write_text(INI)
    (copy.root / "test_one.py").write_text("no Python\n")
    plan = [Judged(7, "bridge/module.py", "", [("near", ["test_one.py::test_a"])], 60.0)]
    assert list(copy.judge("-x", tests=["test_one.py"], plan=plan)) == [(7, "UNKNOWN")]


def test_folders_come_before_those_that_python_has_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("a", "b")))
    assert python_path(Path("c"), Path("d")) == os.pathsep.join("cdab")
    for absent in ("", None):
        monkeypatch.setenv("PYTHONPATH", absent) if absent is not None else monkeypatch.delenv("PYTHONPATH")
        assert python_path(Path("c")) == "c"
