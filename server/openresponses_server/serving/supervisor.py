"""The parent of several workers: it listens, replaces workers that have died, and on SIGHUP replaces all
workers one after the other, each once its successor serves."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import structlog

from openresponses_server.isolated import isolated_command
from openresponses_server.serving import worker
from openresponses_server.serving.shutdown import MODE_OF_SIGNAL, ShutdownDeadline
from openresponses_server.settings import Settings, seconds_of

_FROZEN_SECONDS: Final = 15.0  # without a message, after which a worker that serves is replaced
_START_SECONDS: Final = 60.0  # for a worker to start
_RESTART_DELAY: Final = 1.0  # seconds between two starts of the same worker
_EXIT_SECONDS: Final = 20.0  # for a worker to exit after the shutdown's deadline
_POLL_SECONDS: Final = 0.5
_log = structlog.get_logger(__name__)


class _Worker:
    """A worker process and its control socket. The process is a fresh interpreter, so that it loads newly
    deployed code."""

    def __init__(self, listener: socket.socket) -> None:
        self.control, theirs = socket.socketpair()
        self.control.setblocking(False)
        passed = (listener.fileno(), theirs.fileno())
        # the parent gets SIGINT and SIGHUP of the terminal, and forwards them
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
        try:
            self.process = subprocess.Popen(
                isolated_command(worker.__name__, *map(str, passed)),
                stdin=subprocess.DEVNULL,
                pass_fds=passed,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self.ready = False
        self.started_at = self.last_message_at = time.monotonic()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def receive(self) -> None:
        """Read the worker's messages."""
        with suppress(OSError):
            while data := self.control.recv(4096):
                self.last_message_at = time.monotonic()
                self.ready = self.ready or worker.READY in data

    def send_command(self, what: bytes) -> None:
        """Send a command; a worker that is still starting reads it later."""
        with suppress(OSError):
            self.control.send(what)

    def is_frozen(self, now: float) -> bool:
        """Return True if the worker serves but sends no messages, or has not started in time."""
        return now - self.last_message_at > (_FROZEN_SECONDS if self.ready else _START_SECONDS)

    def end(self) -> None:
        """Kill the worker."""
        self.process.kill()
        self.process.wait()
        self.control.close()


class Supervisor:
    """Starts, replaces and stops the workers."""

    def __init__(self, listener: socket.socket, settings: Settings, *, shared: bool) -> None:
        """`shared` is True if other processes accept from the same socket when these workers shut down."""
        self._listener = listener
        self._count = settings.workers
        self._shared = shared
        drain = seconds_of(settings.drain)
        assert drain is not None
        self._shutdown_deadline = ShutdownDeadline(drain, settings.limits.grace)
        self._serving: list[_Worker] = []
        self._retired: list[_Worker] = []
        self._successor: _Worker | None = None
        self._to_replace: list[_Worker] = []
        self._signals: list[int] = []
        self._code = 0

    def run(self) -> int:
        """Run until all workers have exited. Returns the exit code: 1 if a worker could not start, else 0."""
        with self._signal_wakeup() as wakeup:
            self._serving = [_Worker(self._listener) for _ in range(self._count)]
            while self._all:
                sockets = [each.control for each in self._all if each.alive]
                select.select([wakeup, *sockets], [], [], _POLL_SECONDS)
                with suppress(BlockingIOError):
                    wakeup.recv(4096)
                self._poll()
        return self._code

    @property
    def _all(self) -> list[_Worker]:
        return [*self._serving, *self._retired, *([self._successor] if self._successor else [])]

    def _poll(self) -> None:
        while self._signals:
            self._handle_signal(self._signals.pop(0))
        now = time.monotonic()
        for each in self._all:
            each.receive()
            late = self._shutdown_deadline.deadline + _EXIT_SECONDS < now
            if each.alive and (each.is_frozen(now) or late):
                _log.error("worker.killed", pid=each.process.pid)
                each.end()
        self._retired = [each for each in self._retired if each.alive]
        if self._shutdown_deadline.mode is None:
            self._replace_dead(now)
            self._reload()
        else:
            self._serving = [each for each in self._serving if each.alive]

    def _handle_signal(self, number: int) -> None:
        if number == signal.SIGHUP and not sys.stdin.isatty():
            _log.info("workers.replacing", workers=len(self._serving))
            self._to_replace = list(self._serving)
            return
        self._shutdown_deadline.handle_signal(
            signal.SIGINT if number == signal.SIGHUP else number, time.monotonic()
        )
        mode = self._shutdown_deadline.mode
        assert mode is not None
        self._stop_successor()
        for each in self._all:
            if self._shared:
                each.send_command(worker.RETIRE)
            each.send_command(worker.LEAVE[mode])

    def _replace_dead(self, now: float) -> None:
        for index, each in enumerate(self._serving):
            if each.alive or now - each.started_at < _RESTART_DELAY:
                continue
            if not each.ready and (each.process.returncode or 0) >= 0:  # it was not killed: it can't start
                _log.error("worker.not_started", pid=each.process.pid, exit_code=each.process.returncode)
                self._code = 1
                self._handle_signal(signal.SIGTERM)
                return
            _log.error("worker.died", pid=each.process.pid, exit_code=each.process.returncode)
            each.end()
            self._serving[index] = _Worker(self._listener)

    def _reload(self) -> None:
        """Take the next step of replacing the workers."""
        self._to_replace = [each for each in self._to_replace if each in self._serving]
        if self._successor is None:
            if self._to_replace:
                self._successor = _Worker(self._listener)
        elif self._successor.ready and self._successor.alive:
            if self._to_replace:
                old = self._to_replace.pop(0)
                self._serving[self._serving.index(old)] = self._successor
                old.send_command(worker.RETIRE)
                self._retired.append(old)
                self._successor = None
            else:  # the worker to be replaced has died and was replaced
                self._stop_successor()
        elif not self._successor.alive:
            _log.error("worker.not_started", pid=self._successor.process.pid, kept=len(self._to_replace))
            self._to_replace = []
            self._stop_successor()

    def _stop_successor(self) -> None:
        if self._successor is not None:
            self._successor.end()
            self._successor = None

    @contextmanager
    def _signal_wakeup(self) -> Iterator[socket.socket]:
        """A socket that becomes readable at each signal, SIGCHLD included."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)

        def on_signal(number: int, _frame: object) -> None:
            self._signals.append(number)

        numbers = [*MODE_OF_SIGNAL, signal.SIGHUP]
        before = {number: signal.signal(number, on_signal) for number in numbers}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        wakeup = signal.set_wakeup_fd(theirs.fileno())
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            ours.close()
            theirs.close()


def supervise(listener: socket.socket, settings: Settings, *, shared: bool) -> int:
    """Serve with `settings.workers` processes. Returns the exit code."""
    _log.info("workers.starting", pid=os.getpid(), workers=settings.workers)
    return Supervisor(listener, settings, shared=shared).run()
