"""`make quick` tries the tests of what changed, and says what it leaves out."""

import json
from types import SimpleNamespace

import pytest

from tests import quick
from tests.support.shared import REPOSITORY

SERVER = "server/openresponses_server"


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("bridge/openresponses_bridge/sse.py", ["tests/bridge/test_sse.py"]),
        ("bridge/openresponses_bridge/emitter/__init__.py", ["tests/bridge/emitter"]),
        ("bridge/openresponses_bridge/state.py", ["tests/bridge"]),
        (f"{SERVER}/tasks.py", ["tests/server/test_tasks.py"]),
        (f"{SERVER}/limits/gone.py", ["tests/server/limits"]),
        (
            f"{SERVER}/upstreams/profiles/ollama.toml",
            ["tests/server/upstreams/test_profiles.py", "tests/test_docs.py"],
        ),
        (f"{SERVER}/api/inspector/fold.js", ["tests/server/api/inspector/test_fold.py"]),
        (f"{SERVER}/api/inspector/style/base.css", ["tests/server/api/inspector"]),
        ("snapshots/cli/demo.txt", [
            "tests/cli/test_snapshots_cli.py",
            "tests/cli/test_snapshots_start.py",
        ]),
        ("snapshots/cli/agents/rounds.json", ["tests/cli/agents/test_snapshots_agent.py"]),
        ("tests/bridge/test_wire.py", ["tests/bridge/test_wire.py"]),
        ("tests/bridge/test_gone.py", ["tests/bridge"]),
        ("tests/support/machines.py", [*quick.LIBRARY]),
        ("tests/quick.py", ["tests/test_quick.py"]),
        ("LICENSE", []),
    ],
)  # fmt: skip
def test_what_changed_names_its_tests(changed: str, tests: list[str]) -> None:
    assert quick.tests_of(changed) == tests
    assert all((REPOSITORY / each).exists() for each in tests)


def test_a_page_names_what_reads_it() -> None:
    assert {"tests/test_docs.py", "tests/cli/commands/test_page.py"} <= set(
        quick.tests_of("docs/terminal.md")
    )


def test_every_file_of_the_packages_has_a_test() -> None:
    """Also those that are no modules: profiles, pages, scripts."""
    files = [
        path.relative_to(REPOSITORY).as_posix()
        for package in ("bridge", "server")
        for path in (REPOSITORY / package).rglob("*")
        if path.is_file() and path.suffix not in ("", ".typed", ".pyc")
        if "__pycache__" not in path.parts and ".egg-info" not in str(path)  # left by installing
    ]
    tops = {SERVER, "server/openresponses_cli"}  # whose own modules are without tests of their name
    untested = [each for each in files if not quick.tests_of(each)]
    assert [each for each in untested if each.rpartition("/")[0] not in tops] == []


def test_outcomes_and_names_are_always_tried() -> None:
    """A field without its outcome and a flag without its name are elsewhere than what was changed."""
    for changed in ([], ["README.md"], ["bridge/openresponses_bridge/sse.py"]):
        assert set(quick.ALWAYS) <= set(quick.choose(changed, {}, 1.0).why)
    assert all((REPOSITORY / each).is_file() for each in quick.ALWAYS)


def test_what_is_named_goes_before_folders_and_the_quick_before_the_slow() -> None:
    changed = ["bridge/openresponses_bridge/sse.py", "bridge/openresponses_bridge/emitter/__init__.py"]
    files = quick._files_in("tests/bridge/emitter")
    slow = files[0]
    times = dict.fromkeys([*files, *quick.ALWAYS, "tests/bridge/test_sse.py"], 1.0) | {slow: 100.0}
    choice = quick.choose(changed, times, 50.0)
    assert choice.left_out == [slow]
    assert set(choice.why) == {*files, *quick.ALWAYS, "tests/bridge/test_sse.py"} - {slow}
    few = quick.choose(changed, times, len(quick.ALWAYS) + 1.0)
    assert list(few.why) == [*quick.ALWAYS, "tests/bridge/test_sse.py"]
    assert set(few.left_out) == set(files)
    none = quick.choose(changed, times, 0.0)
    assert list(none.why) == list(quick.ALWAYS)
    assert set(none.left_out) == {*files, "tests/bridge/test_sse.py"}


def test_the_report_names_what_was_chosen_left_out_and_not_covered() -> None:
    choice = quick.choose(["LICENSE", "docs/deploy/Caddyfile", f"{SERVER}/limits/gone.py"], {}, 5.0)
    report = quick.report(choice)
    assert "always: bridge/dialects/test_outcomes.py, server/test_snapshots_names.py" in report
    assert "NOT COVERED here: LICENSE\n" in report
    assert "NOT COVERED here: docs/deploy/Caddyfile (`make deploy` tests it)" in report
    first, *others = choice.left_out
    assert f"left out, since all would take too long: {first}" in report
    assert f" and {len(others) - 3} more; `make test` runs them" in report


def test_times_are_kept_by_file(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path = REPOSITORY.__class__(str(tmp_path), "times.json")
    monkeypatch.setattr(quick, "_TIMES", path)
    monkeypatch.setattr(quick, "_took", quick.Counter())
    path.write_text('{"tests/old.py": 3}')
    for test, duration in (("tests/a.py::x", 0.5), ("tests/a.py::y", 0.25), ("tests/b.py::z", 2.0)):
        quick.pytest_runtest_logreport(SimpleNamespace(nodeid=test, duration=duration))
    quick.pytest_sessionfinish()
    assert json.loads(path.read_text()) == {"tests/a.py": 0.75, "tests/b.py": 2.0, "tests/old.py": 3.0}
    path.write_text("[]")
    assert quick.known_times() == {}
