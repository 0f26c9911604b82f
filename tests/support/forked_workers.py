"""Distributes tests to processes that are forked once the tests are collected, as a plugin of pytest.

Workers that are started, as those of pytest-xdist are, import and collect every test themselves: seven
seconds of each worker, and twice that in a fresh clone. Here all of that is done once, and workers share its
memory.

Exit functions (`atexit`) are not called in a worker; what needs one is made before the workers are forked,
and shared by them (`shared_by_workers`).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import pytest
from _pytest import runner
from coverage import Coverage

_F = TypeVar("_F", bound=Callable[[], object])

WORKER: Final = "PYTEST_WORKER"
"""The variable that has the number of the worker, from 0, in its process and those that it starts."""

_MOST: Final = 40
"""The most tests that a worker is given at once; all are of one module, since they share its fixtures."""

_SHARE: Final = 4  # parts of what is left for each worker; the last are small, so that all end together
_LOOK: Final = 1.0  # seconds between two looks at whether the workers are alive
_STOP: Final = 30.0  # seconds that a worker has for its teardown before it is killed

_shared: list[Callable[[], object]] = []


def shared_by_workers(function: _F) -> _F:
    """Call this cached function before workers are forked, if the function's module is imported by then."""
    _shared.append(function)
    return function


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for workers."""
    parser.addoption(
        "--workers",
        type=_count,
        default=0,
        metavar="N",
        help="run the tests in N processes, or with 3x in three for each core",
    )
    parser.addoption(
        "--whole-modules",
        action="store_true",
        help="give all tests of a module to one worker",
    )


def _count(text: str) -> int:
    return int(text.removesuffix("x")) * ((os.cpu_count() or 1) if text.endswith("x") else 1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers, if an option asks for them."""
    config = session.config
    count = min(config.getoption("--workers"), len(session.items))
    if count < 2 or config.option.collectonly or "fork" not in multiprocessing.get_all_start_methods():
        return None
    if session.testsfailed and not config.option.continue_on_collection_errors:
        return None  # pytest's own loop raises an error
    config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    for function in _shared:
        function()
    gc.freeze()  # a collection in a worker would copy what it shares with the others
    most = len(session.items) if config.getoption("--whole-modules") else None
    _Workers(session, count, chunks([item.path for item in session.items], count, most)).run()
    return True


def chunks(paths: Sequence[Path], workers: int, most: int | None = None) -> Iterator[list[int]]:
    """Divide tests, of which these are the modules in order, into chunks of `most` tests of one module.
    Without `most`, the chunks get smaller towards the end. Yields the tests' indexes."""
    start = 0
    while start < len(paths):
        size = most or max(1, min(_MOST, (len(paths) - start) // (workers * _SHARE)))
        end = start + 1
        while end < len(paths) and end - start < size and paths[end] == paths[start]:
            end += 1
        yield list(range(start, end))
        start = end


class _Worker:
    """What the main process knows of a worker: the tests that it has yet to report, in order."""

    def __init__(self, session: pytest.Session, number: int, others: Sequence[_Worker]) -> None:
        fork = multiprocessing.get_context("fork")
        self.connection, end = fork.Pipe()
        ours = [self.connection, *(each.connection for each in others)]
        self.process = fork.Process(target=_work, args=(session, end, number, ours))
        self.process.start()
        end.close()
        self.tests: deque[int] = deque()


class _Workers:
    """The main process: it gives tests to workers, and their reports to pytest."""

    def __init__(self, session: pytest.Session, count: int, chunks: Iterator[list[int]]) -> None:
        self._session = session
        self._count = count
        self._chunks = chunks
        self._left: deque[list[int]] = deque()  # by workers that died
        self._workers: list[_Worker] = []
        self._forked = 0

    def run(self) -> None:
        """Raises what pytest's own loop raises if it stops early."""
        try:
            for _ in range(self._count):
                self._fork()
            while self._workers:
                ready = wait([each.connection for each in self._workers], _LOOK)
                for worker in list(self._workers):
                    if worker.connection in ready:
                        self._receive(worker)
                    elif not ready and not worker.process.is_alive() and not worker.connection.poll():
                        self._end(worker)  # what a test forked holds its connection open
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
            if self._left or any(self._chunks):
                raise self._session.Interrupted("every worker has ended, but not every test was run")
        finally:
            self._stop()

    def _fork(self) -> None:
        self._workers.append(_Worker(self._session, self._forked, self._workers))
        self._forked += 1

    def _receive(self, worker: _Worker) -> None:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            self._end(worker)
            return
        if message is None:
            chunk = self._left.popleft() if self._left else next(self._chunks, [])
            worker.tests.extend(chunk)
            with suppress(OSError):  # it died, which is noticed next
                worker.connection.send(chunk)
        elif isinstance(message, str):
            pytest.exit(f"a worker failed:\n{message}", returncode=pytest.ExitCode.INTERNAL_ERROR)
        else:
            hook = self._session.config.hook
            item = self._session.items[worker.tests.popleft()]
            for data in message:
                report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _end(self, worker: _Worker) -> None:
        """Remove a worker that has ended. The first test that it has not reported failed; another worker gets
        the others."""
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join()
        if not worker.tests:
            return
        item = self._session.items[worker.tests.popleft()]
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"the worker ended with {worker.process.exitcode} while it ran this test",
            when="call",
        )
        self._session.config.hook.pytest_runtest_logreport(report=report)
        if worker.tests:
            self._left.append(list(worker.tests))
        self._fork()

    def _stop(self) -> None:
        for worker in self._workers:
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid or 0, signal.SIGINT)
        deadline = time.monotonic() + _STOP
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join()


def _work(session: pytest.Session, connection: Connection, number: int, others: Sequence[Connection]) -> None:
    """Run what the main process gives. A failure of the worker itself is sent to it."""
    for each in others:
        each.close()
    try:
        measured = _measured_anew()
        _settle(session.config, number)
        session.config.pluginmanager.register(_Sender(connection))
        try:
            _run_tests(session, connection)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, and then of the main process
            runner.pytest_sessionfinish(session)  # the teardown of what an interrupted test leaves
        if measured is not None:
            measured.stop()
            measured.save()
    except KeyboardInterrupt:
        return
    except BaseException:
        with suppress(OSError):
            connection.send(traceback.format_exc())


def _settle(config: Any, number: int) -> None:
    """Make the process a worker: it has a folder of its own for `tmp_path`, and prints no progress."""
    os.environ[WORKER] = str(number)
    factory = config._tmp_path_factory
    factory._basetemp = factory.getbasetemp() / f"worker-{number}"
    factory._basetemp.mkdir(mode=0o700)
    reporter = config.pluginmanager.unregister(name="terminalreporter")
    # pytest-timeout writes the stacks of other threads with it
    config.pluginmanager.register(SimpleNamespace(_tw=reporter._tw), "terminalreporter")


def _measured_anew() -> Coverage | None:
    """Measure the coverage of this process into a file of its own; pytest-cov combines the files."""
    if (inherited := Coverage.current()) is None:
        return None
    inherited.stop()
    file = os.path.abspath(str(inherited.get_option("run:data_file")))
    measured = Coverage(data_file=file, data_suffix=True)
    measured.set_option("run:disable_warnings", ["module-not-measured"])  # the main process measured imports
    measured.start()
    return measured


def _run_tests(session: pytest.Session, connection: Connection) -> None:
    tests: deque[int] = deque(_next(connection))
    while tests:
        item = session.items[tests.popleft()]
        if not tests:  # the teardown of a test depends on the next one
            tests.extend(_next(connection))
        following = session.items[tests[0]] if tests else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _next(connection: Connection) -> list[int]:
    connection.send(None)
    chunk: list[int] = connection.recv()
    return chunk


class _Sender:
    """Sends the reports of a test to the main process, instead of calling the hooks for reports."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        reports = runner.runtestprotocol(item, log=False, nextitem=nextitem)
        to_data = item.config.hook.pytest_report_to_serializable
        self._connection.send([to_data(config=item.config, report=report) for report in reports])
        return True
