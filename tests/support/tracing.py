"""Restricts the measurement of coverage to what tests run, as a plugin of pytest.

A traced line costs several times as much as another one, and what runs between tests is pytest itself.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Final

import pytest
from coverage import Coverage

_TRACED_CASES: Final = 32  # the most cases of one test that are traced

# The library's tests, and tests of the server and command line that alone cover some of the library's code.
TRACED: Final = (
    "tests/agent",
    "tests/bridge",
    "tests/cli/commands/test_cli_validate.py",
    "tests/cli/commands/test_conform.py",
    "tests/cli/commands/test_inspect.py",
    "tests/conformance",
    "tests/properties/test_fed_alike.py",
    "tests/properties/test_hostile_requests.py",
    "tests/properties/test_hostile_values.py",
    "tests/server/api/test_interactions.py",
    "tests/server/observation",
    "tests/server/test_backend.py",
    "tests/server/test_responses.py",
    "tests/server/upstreams/test_bedrock.py",
    "tests/server/upstreams/test_codex.py",
    "tests/server/upstreams/test_socket_requests.py",
    "tests/server/upstreams/test_sockets.py",
)
_NONE: Final = (None, None)


class Tracing:
    """Traces fixtures and tests of `TRACED`, and of a test's many cases only some; of tests with the mark
    `untraced` only the fixtures."""

    def __init__(self) -> None:
        self._functions = _NONE
        """The trace functions of the measurement; None if nothing is measured."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Import what is measured, traced, and then collect the tests, which takes twice as long traced."""
        if (measuring := Coverage.current()) is not None:
            packages = measuring.get_option("run:source")
            assert isinstance(packages, list)
            for name in packages:
                _import_all(name)
        with _traced_by(_NONE):
            return (yield)

    @pytest.hookimpl(trylast=True)  # Hypothesis marks its tests in this hook
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Spread the traced cases of a test evenly, since most cases run the same lines. Generated examples
        are not traced; tests of costs or of streams cut at every byte carry the mark themselves."""
        cases = Counter(_test_of(item) for item in items)
        before: Counter[str] = Counter()
        for item in items:
            test = _test_of(item)
            place, count = before[test], cases[test]
            before[test] += 1
            is_left_out = place and place * _TRACED_CASES // count == (place - 1) * _TRACED_CASES // count
            if (count > _TRACED_CASES and is_left_out) or item.get_closest_marker("hypothesis"):
                item.add_marker("untraced")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._functions = _trace_functions() if item.nodeid.startswith(TRACED) else _NONE
        with _traced_by(_NONE):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_fixture_setup(self) -> Generator[None, object, object]:
        with _traced_by(self._functions):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        with _traced_by(_NONE if pyfuncitem.get_closest_marker("untraced") else self._functions):
            return (yield)


def _import_all(package: str) -> None:
    for module in walk_packages(import_module(package).__path__, f"{package}."):
        import_module(module.name)


def _test_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _trace_functions() -> tuple[Any, Any]:
    """Return those of this thread and of threads that it starts."""
    return sys.gettrace(), threading.gettrace()


@contextmanager
def _traced_by(functions: tuple[Any, Any]) -> Iterator[None]:
    before = _trace_functions()
    sys.settrace(functions[0])
    threading.settrace(functions[1])
    try:
        yield
    finally:
        sys.settrace(before[0])
        threading.settrace(before[1])
