"""uvicorn's server with a shutdown as law S8 requires: responses in progress finish within a time, and those
that do not are cut off with an end that says so."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final, cast

import structlog
import uvicorn
from starlette.applications import Starlette

from openresponses_server.http.connection import HttpConnection
from openresponses_server.http.registry import ConnectionRegistry
from openresponses_server.requests.service import Service
from openresponses_server.serving.memory import MemoryTrimmer, tune_gc
from openresponses_server.serving.preload import import_for_requests
from openresponses_server.serving.shutdown import MODE_OF_SIGNAL, ShutdownDeadline, ShutdownMode
from openresponses_server.settings import Settings, seconds_of

_CONNECTION_SECONDS: Final = 3  # for connections that are still open when all responses have ended
_CUT_OFF_SECONDS: Final = {ShutdownMode.DRAIN: 6.0, ShutdownMode.GRACE: 6.0, ShutdownMode.CUT: 1.0}
"""Seconds to store and send the ends of responses that were cut off. A store has five of them to answer."""
_ABORT_SECONDS: Final = 0.5  # for answers to notice that their connection was aborted
_CLOSE_SECONDS: Final = 8.0  # to release leases and close stores; then the process ends
_THREAD_SECONDS: Final = 1.0  # after `_CLOSE_SECONDS`, for threads whose work nothing waits for
_log = structlog.get_logger(__name__)


@contextmanager
def held_signals() -> Iterator[Callable[[], object]]:
    """Hold the signals that end a server until it handles them and calls the yielded function, or until the
    block ends. Python's own handler raises KeyboardInterrupt wherever the process is; within a callback of
    the garbage collector it is ignored, and the signal is lost."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield _nothing_held
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, MODE_OF_SIGNAL)
    release = partial(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
    try:
        yield release
    finally:
        release()


def _nothing_held() -> None: ...


class Server(uvicorn.Server):
    """Serves `app` with these settings."""

    def __init__(
        self,
        app: Starlette,
        settings: Settings,
        *,
        shared: bool,
        release_signals: Callable[[], object] = _nothing_held,
    ) -> None:
        """`shared` is True if other processes accept from the same socket, so that they get new connections
        as soon as this server shuts down. Otherwise it answers new connections with 503 until it has shut
        down. `release_signals`, from `held_signals`, is called as soon as the server handles signals."""
        self._registry = ConnectionRegistry(settings)
        super().__init__(_config(app, self._registry))
        self._service: Service = app.state.service
        self.shared = shared
        self._release_signals = release_signals
        drain = seconds_of(settings.drain)
        assert drain is not None
        self.shutdown_deadline = ShutdownDeadline(drain, settings.limits.grace)
        self._handover: asyncio.Task[None] | None = None
        self._memory_trimmer = MemoryTrimmer()
        import_for_requests()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals that begin and hurry the shutdown. Unlike uvicorn this does not raise them again
        at the end: a server that shut down as requested has not failed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in self.signals}
        self._release_signals()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def signals(self) -> list[signal.Signals]:
        """The signals that this server handles."""
        return list(MODE_OF_SIGNAL)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.shutdown_deadline.handle_signal(sig, asyncio.get_running_loop().time())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if threading.current_thread() is threading.main_thread():  # else the server is embedded
            tune_gc()

    def stop_accepting(self) -> None:
        """Close the listening socket in this process."""
        for server in self.servers:
            server.close()

    async def on_tick(self, counter: int) -> bool:
        """Handle a tick, ten times a second. Returns whether the server can exit."""
        if await super().on_tick(counter):
            return True
        if self.shutdown_deadline.mode is None:
            busy = bool(self.server_state.tasks or self._service.running)
            self._memory_trimmer.tick(self.server_state.total_requests, busy)
            return False
        if self._handover is None:
            self._handover = self._start_draining()
        if self._is_idle():
            return True
        if asyncio.get_running_loop().time() < self.shutdown_deadline.deadline:
            return False
        await self._cut_off()
        return True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        closed = threading.Event()
        if threading.current_thread() is threading.main_thread():
            threading.Thread(target=_exit_in_time, args=(closed,), daemon=True).start()
        if self._handover is not None:
            self._handover.cancel()
        await super().shutdown(sockets)
        closed.set()

    def _start_draining(self) -> asyncio.Task[None]:
        """Stop accepting. Returns the task that releases waiting responses to other workers."""
        gate = self._service.gate
        _log.info("shutdown.draining", running=gate.running, seconds=self._seconds_left)
        self._registry.retire()
        if self.shared:
            self.stop_accepting()
            gate.leave()
        else:
            gate.close()
        return asyncio.create_task(self._service.runs.stop_claiming(self._service.running))

    @property
    def _seconds_left(self) -> int:
        return round(self.shutdown_deadline.deadline - asyncio.get_running_loop().time())

    def _is_idle(self) -> bool:
        """Return True if no response is in progress, waiting ones were released, and no connection may bring
        a new request."""
        if self.server_state.tasks or self._service.running or not (self._handover and self._handover.done()):
            return False
        return not (self.shared and self.server_state.connections)

    async def _cut_off(self) -> None:
        """End the responses in progress, then abort connections that still read; their clients can request
        the rest."""
        gate = self._service.gate
        _log.warning("shutdown.cut_off", running=gate.running, answering=len(self.server_state.tasks))
        gate.cut_off()
        loop = asyncio.get_running_loop()
        cut_at = loop.time()
        while self.server_state.tasks or self._service.running:
            mode = self.shutdown_deadline.mode
            assert mode is not None
            if loop.time() - cut_at > _CUT_OFF_SECONDS[mode]:
                break
            await asyncio.sleep(0.05)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        left = set(self.server_state.tasks)
        if left:
            _, left = await asyncio.wait(left, timeout=_ABORT_SECONDS)
        for task in left:
            task.cancel()


def _config(app: Starlette, registry: ConnectionRegistry) -> uvicorn.Config:
    return uvicorn.Config(
        cast(Any, app),
        http=cast(Any, partial(HttpConnection, registry)),
        ws="none",  # the connections have a class of their own
        loop="auto",  # uvloop if it is installed
        lifespan="on",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # any client can send them, and they would replace the peer's address
        server_header=False,
        timeout_graceful_shutdown=_CONNECTION_SECONDS,
    )


def _exit_in_time(closed: threading.Event) -> None:
    """Exit even if a store or a log does not answer, or a thread still works. Responses that were not
    released are settled when their leases expire."""
    if closed.wait(_CLOSE_SECONDS):
        threading.Event().wait(_THREAD_SECONDS)  # `time.sleep` fails where libfaketime sets the clock
        os._exit(0)
    _log.warning("shutdown.not_closed", seconds=_CLOSE_SECONDS)
    os._exit(1)
