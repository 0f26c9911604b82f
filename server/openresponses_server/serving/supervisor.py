"""The parent of several workers: it holds the port and replaces workers that died; on SIGHUP all of them, one
after the other, each as soon as its successor serves."""

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
from openresponses_server.serving.leaving import PACE_OF, Leaving
from openresponses_server.settings import Settings, seconds_of

_FROZEN_AFTER: Final = 15.0  # seconds without a message, after which a worker that serves is replaced
_STARTED_WITHIN: Final = 60.0
_PAUSE: Final = 1.0  # seconds between two starts in the place of the same worker
_LEFT_AFTER: Final = 20.0  # seconds that a worker has to be gone, when the time for what runs is over
_LOOK_SECONDS: Final = 0.5
_log = structlog.get_logger(__name__)


class _Worker:
    """One process and the socket over which it is commanded. It is a fresh interpreter: what a deployment has
    replaced is read anew."""

    def __init__(self, listener: socket.socket) -> None:
        self.control, theirs = socket.socketpair()
        self.control.setblocking(False)
        passed = (listener.fileno(), theirs.fileno())
        # Ctrl-C and a terminal that is closed reach the parent, which passes them on
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
        self.born_at = self.heard_at = time.monotonic()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def hear(self) -> None:
        """Take what it has sent."""
        with suppress(OSError):
            while said := self.control.recv(4096):
                self.heard_at = time.monotonic()
                self.ready = self.ready or worker.READY in said

    def command(self, what: bytes) -> None:
        """It hears it even when it has not started yet."""
        with suppress(OSError):
            self.control.send(what)

    def is_frozen(self, now: float) -> bool:
        """It serves and says nothing, or does not come to serve."""
        return now - self.heard_at > (_FROZEN_AFTER if self.ready else _STARTED_WITHIN)

    def end(self) -> None:
        """Whatever it does."""
        self.process.kill()
        self.process.wait()
        self.control.close()


class Supervisor:
    """`run` returns the exit code: 1 when a worker could not begin to serve, else 0. With `shared`, others
    accept from the same socket when these workers leave."""

    def __init__(self, listener: socket.socket, settings: Settings, *, shared: bool) -> None:
        self._listener = listener
        self._count = settings.workers
        self._shared = shared
        drain = seconds_of(settings.drain)
        assert drain is not None
        self._leaving = Leaving(drain, settings.limits.grace)
        self._serving: list[_Worker] = []
        self._retired: list[_Worker] = []
        self._successor: _Worker | None = None
        self._to_replace: list[_Worker] = []
        self._heard: list[int] = []
        self._code = 0

    def run(self) -> int:
        """Until all workers have left."""
        with self._listening_for_signals() as wakeup:
            self._serving = [_Worker(self._listener) for _ in range(self._count)]
            while self._all:
                sockets = [each.control for each in self._all if each.alive]
                select.select([wakeup, *sockets], [], [], _LOOK_SECONDS)
                with suppress(BlockingIOError):
                    wakeup.recv(4096)
                self._look()
        return self._code

    @property
    def _all(self) -> list[_Worker]:
        return [*self._serving, *self._retired, *([self._successor] if self._successor else [])]

    def _look(self) -> None:
        while self._heard:
            self._signalled(self._heard.pop(0))
        now = time.monotonic()
        for each in self._all:
            each.hear()
            late = self._leaving.deadline + _LEFT_AFTER < now
            if each.alive and (each.is_frozen(now) or late):
                _log.error("worker.killed", pid=each.process.pid)
                each.end()
        self._retired = [each for each in self._retired if each.alive]
        if self._leaving.pace is None:
            self._replace_dead(now)
            self._reload()
        else:
            self._serving = [each for each in self._serving if each.alive]

    def _signalled(self, number: int) -> None:
        if number == signal.SIGHUP and not sys.stdin.isatty():
            _log.info("workers.replacing", workers=len(self._serving))
            self._to_replace = list(self._serving)
            return
        self._leaving.signalled(signal.SIGINT if number == signal.SIGHUP else number, time.monotonic())
        pace = self._leaving.pace
        assert pace is not None
        self._give_up_successor()
        for each in self._all:
            if self._shared:
                each.command(worker.RETIRE)
            each.command(worker.LEAVE[pace])

    def _replace_dead(self, now: float) -> None:
        for index, each in enumerate(self._serving):
            if each.alive or now - each.born_at < _PAUSE:
                continue
            if not each.ready and (each.process.returncode or 0) >= 0:  # it was not killed: it can't begin
                _log.error("worker.not_started", pid=each.process.pid, code=each.process.returncode)
                self._code = 1
                self._signalled(signal.SIGTERM)
                return
            _log.error("worker.died", pid=each.process.pid, code=each.process.returncode)
            each.end()
            self._serving[index] = _Worker(self._listener)

    def _reload(self) -> None:
        """The next step of replacing them."""
        self._to_replace = [each for each in self._to_replace if each in self._serving]
        if self._successor is None:
            if self._to_replace:
                self._successor = _Worker(self._listener)
        elif self._successor.ready and self._successor.alive:
            if self._to_replace:
                old = self._to_replace.pop(0)
                self._serving[self._serving.index(old)] = self._successor
                old.command(worker.RETIRE)
                self._retired.append(old)
                self._successor = None
            else:  # what it was to replace has died, and was replaced
                self._give_up_successor()
        elif not self._successor.alive:
            _log.error("worker.not_started", pid=self._successor.process.pid, kept=len(self._to_replace))
            self._to_replace = []
            self._give_up_successor()

    def _give_up_successor(self) -> None:
        if self._successor is not None:
            self._successor.end()
            self._successor = None

    @contextmanager
    def _listening_for_signals(self) -> Iterator[socket.socket]:
        """A socket that wakes who waits, when one has come or a worker has ended."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)

        def heard(number: int, _frame: object) -> None:
            self._heard.append(number)

        numbers = [*PACE_OF, signal.SIGHUP]
        before = {number: signal.signal(number, heard) for number in numbers}
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
    """Serve with `settings.workers` processes until they have left; the exit code."""
    _log.info("workers.starting", pid=os.getpid(), workers=settings.workers)
    return Supervisor(listener, settings, shared=shared).run()
