"""Records which tests run a place in the code, in any process, how each ended, and which notice a mistake.

`python -m tests.mutations` copies this file to a folder from which the processes of tests import it, and
gives it to pytest as a plugin.
"""

import contextlib
import gc
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

import pytest
from _pytest.main import pytest_runtestloop as run_items

_FOLDER: Final = Path(os.environ.get("REACHED", "."))
_noted: set[tuple[int, str]] = set()


class Judged(NamedTuple):
    """A mistake; the file `plan` has one as JSON in each line."""

    number: int
    path: str
    mistaken: str
    """The module with the mistake."""
    rounds: list[tuple[str, list[str]]]
    """The tests that judge it in turn, under the word for their round in the file `judged`."""
    seconds: float
    """The seconds after which a round is stopped; its word is `hangs` then."""


def note(place: int) -> None:
    """Record in the file for this place's number that the current test, or the test that started this
    process, has reached it."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if (place, test) not in _noted:
        _noted.add((place, test))
        with (_FOLDER / str(place)).open("a", encoding="utf-8") as file:
            file.write(test + "\n")


def pytest_runtest_logreport(report: Any) -> None:
    """Write to the file `ended` how a test or its setup ended, its seconds, and its name, as one line."""
    with (_FOLDER / "ended").open("a", encoding="utf-8") as file:
        file.write(f"{report.outcome}\t{report.duration}\t{report.nodeid}\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: Any) -> bool | None:
    """If there is a file `plan`, judge each mistake in it in processes forked from this one, which has
    collected the tests once and imported their modules. The file `judged` gets a line for each: its number,
    and the word of the round that noticed it, `SURVIVED`, or `UNKNOWN` if no live function can have its
    code."""
    if not (plan := _FOLDER / "plan").exists():
        return None
    gc.unfreeze()  # `_replace_code` does not find frozen objects
    items = {item.nodeid: item for item in session.items}
    for line in plan.read_text("utf-8").splitlines():
        judged = Judged(*json.loads(line))
        module = session.config.rootpath / judged.path
        source = module.read_bytes()
        module.write_bytes(judged.mistaken.encode())
        word = "SURVIVED"
        for name, tests in judged.rounds:
            chosen = [items[test] for test in tests if test in items]
            if chosen and (code := _forked(session, chosen, module, source, judged.seconds)):
                word = {1: name, 2: "UNKNOWN"}.get(code, "hangs")
                break
        module.write_bytes(source)
        with (_FOLDER / "judged").open("a", encoding="utf-8") as file:
            file.write(f"{judged.number} {word}\n")
    return True


def _forked(session: Any, items: list[Any], module: Path, source: bytes, seconds: float) -> int:
    """Run the tests in a forked process: 0 if they pass, 1 if one fails, 2 if they could not be tried, 3 if
    they did not end."""
    child = os.fork()
    if not child:
        os.setsid()
        code = 2
        try:
            _replace_code(module, source)
            code = 1
            session.items[:] = items
            run_items(session)
            code = int(session.testsfailed > 0)
        finally:
            with contextlib.suppress(BaseException):
                session._setupstate.teardown_exact(None)
            os._exit(code)
    until = time.monotonic() + seconds
    pid = status = 0
    try:
        while not pid and time.monotonic() <= until:
            time.sleep(0.02)
            pid, status = os.waitpid(child, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else 3
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and processes that the tests have started
        if not pid:
            os.kill(child, signal.SIGKILL)  # if it was no group yet
            os.waitpid(child, 0)


def _replace_code(module: Path, before: bytes) -> None:
    """Give the current code in a module's file to the live functions of the module, if the module is
    imported."""
    path = str(module)
    new = {
        _key(old): new
        for old, new in _pairs(compile(before, path, "exec"), compile(module.read_bytes(), path, "exec"))
    }
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == path:
            each.__code__ = new.get(_key(each.__code__), each.__code__)


def _key(code: CodeType) -> tuple[object, ...]:
    return code.co_qualname, code.co_firstlineno, code.co_names, code.co_varnames


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    yield old, new
    within, now = ([each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new))
    if len(within) == len(now):  # otherwise a mistake has removed the function of this code
        for pair in zip(within, now, strict=True):
            yield from _pairs(*pair)
