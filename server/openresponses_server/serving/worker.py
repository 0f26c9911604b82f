"""A worker process: it accepts from its parent's socket, and shuts down on the parent's command or death."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from starlette.applications import Starlette

from openresponses_server.api.app import create_app
from openresponses_server.observation.logs import configure_logs
from openresponses_server.serving.memory import fix_malloc_thresholds
from openresponses_server.serving.server import Server
from openresponses_server.serving.shutdown import ShutdownMode
from openresponses_server.settings import Settings, of_worker

_RETRY_SECONDS: Final = 1.0  # after the process has reached its limit of open files
_MOST_AT_ONCE: Final = 128  # connections that one iteration of the event loop accepts


class GradualAcceptServer:
    """An asyncio server that accepts one connection in an iteration of the event loop, and one more in each
    further iteration while others are pending. The loop's own server accepts all that are pending: one of two
    workers got 24 to 32 of 32. If it were always one, a busy worker, whose iterations are long, would accept
    fewer than arrive; what does not fit into the system's queue connects seconds later, or never."""

    def __init__(self, listener: socket.socket, connect: Callable[[], asyncio.Protocol]) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._connect = connect
        self._connecting: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._at_once = 1
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Stop accepting and close the socket; accepted connections stay open."""
        if self._listener.fileno() < 0:
            return
        self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()
        self._listener.close()

    async def wait_closed(self) -> None:
        """Return at once: there is nothing to wait for."""

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for accepted in range(self._at_once):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                self._at_once = max(accepted, 1)  # no more are pending
                return
            except (InterruptedError, ConnectionError):
                continue  # the client has closed this one
            except OSError:
                self._loop.remove_reader(self._listener)
                self._retry = self._loop.call_later(_RETRY_SECONDS, self._listen)
                return
            self._connect_to(connection)
        self._at_once = min(self._at_once + 1, _MOST_AT_ONCE)

    def _connect_to(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        task = self._loop.create_task(self._begin(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _begin(self, connection: socket.socket) -> None:
        with suppress(OSError):  # the client has closed it
            await self._loop.connect_accepted_socket(self._connect, connection)


READY: Final = b"r"
"""Sent to the parent once: the worker serves."""
ALIVE: Final = b"a"
"""Sent to the parent once a second."""
LEAVE: Final = {mode: b"012"[mode : mode + 1] for mode in ShutdownMode}
"""Sent by the parent: shut down in this mode. New connections are answered with 503."""
RETIRE: Final = b"R"
"""Sent by the parent: shut down, since another worker accepts instead."""

_MODES: Final = {command[0]: mode for mode, command in LEAVE.items()}
_TICKS: Final = 10  # per second


def main() -> None:
    """Run the worker. The process's arguments are the descriptors of two sockets: the one to accept from, and
    the control socket."""
    listener, control = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    fix_malloc_thresholds()
    settings = of_worker()
    configure_logs(level=settings.log_level)
    server = _WorkerServer(create_app(settings), settings, control)
    server.run(sockets=[listener])
    if not server.started:
        sys.exit(1)


class _WorkerServer(Server):
    """The server of a worker. Signals of a terminal or a service manager may reach all processes, and the
    parent forwards its own; so here SIGTERM only begins the shutdown and never hurries it."""

    def __init__(self, app: Starlette, settings: Settings, control: socket.socket) -> None:
        super().__init__(app, settings, shared=False)
        self._control = control
        control.setblocking(False)

    @property
    def signals(self) -> list[signal.Signals]:
        return [signal.SIGTERM]

    def handle_exit(self, sig: int, frame: object) -> None:
        self._leave(ShutdownMode.DRAIN)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        if self.started:
            self.servers = [cast(Any, GradualAcceptServer(each, self._connection)) for each in sockets or []]
        asyncio.get_running_loop().add_reader(self._control, self._read_commands)
        self._report(READY)

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS == 0:
            self._report(ALIVE)
        return await super().on_tick(counter)

    def _connection(self) -> asyncio.Protocol:
        make = cast(Any, self.config.http_protocol_class)
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def _read_commands(self) -> None:
        try:
            commands = self._control.recv(64)
        except BlockingIOError:
            return
        except OSError:
            commands = b""
        if not commands:  # the parent has died, and its successor needs the port
            asyncio.get_running_loop().remove_reader(self._control)
            commands = RETIRE
        for command in commands:
            if command == RETIRE[0]:
                self.shared = True
                self.stop_accepting()
                self._leave(ShutdownMode.DRAIN)
            else:
                self._leave(_MODES[command])

    def _leave(self, mode: ShutdownMode) -> None:
        self.shutdown_deadline.request(mode, asyncio.get_running_loop().time())

    def _report(self, what: bytes) -> None:
        with suppress(OSError):  # the parent has died, which `_read_commands` notices, or the pipe is full
            self._control.send(what)
