"""One worker process of several: it accepts from its parent's socket and leaves when the parent says so or is
gone."""

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
from openresponses_server.serving.leaving import Pace
from openresponses_server.serving.memory import give_back_freed_memory
from openresponses_server.serving.server import Server
from openresponses_server.settings import Settings, of_worker

# How one worker of several accepts connections from the socket that all of them listen on.

_NO_FILES: Final = 1.0  # seconds until it is tried again, when the process may open no more


class OneByOne:
    """Takes one connection a turn of the event loop, so that a busy worker leaves some to the others.
    An event loop's own server takes all that wait at once: of 32 connections one of two workers got 24 to 32.
    It is closed as such a server is."""

    def __init__(self, listener: socket.socket, connect: Callable[[], asyncio.Protocol]) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._connect = connect
        self._connecting: set[asyncio.Task[None]] = set()
        self._later: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept no more, and give up the socket; what was accepted goes on."""
        if self._listener.fileno() < 0:
            return
        self._loop.remove_reader(self._listener)
        if self._later is not None:
            self._later.cancel()
        self._listener.close()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # another worker has it, or it is gone
        except OSError:
            self._loop.remove_reader(self._listener)
            self._later = self._loop.call_later(_NO_FILES, self._listen)
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._begin(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _begin(self, connection: socket.socket) -> None:
        with suppress(OSError):  # it is gone already
            await self._loop.connect_accepted_socket(self._connect, connection)


READY: Final = b"r"
"""To the parent, once: it serves."""
ALIVE: Final = b"a"
"""To the parent, once a second."""
LEAVE: Final = {pace: b"012"[pace : pace + 1] for pace in Pace}
"""From the parent: leave, at this pace. New connections are answered with 503."""
RETIRE: Final = b"R"
"""From the parent: leave, since another worker accepts in its place."""

_PACES: Final = {command[0]: pace for pace, command in LEAVE.items()}
_TICKS: Final = 10  # in a second


def main() -> None:
    """The whole life of the process, whose arguments are the descriptors of two sockets: the one to accept
    from, and the one over which its parent commands it."""
    listener, control = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    give_back_freed_memory()
    settings = of_worker()
    configure_logs(level=settings.log_level)
    server = _WorkerServer(create_app(settings), settings, control)
    server.run(sockets=[listener])
    if not server.started:
        sys.exit(1)


class _WorkerServer(Server):
    """Signals of a terminal or a service manager may reach all processes, and the parent passes its own on:
    so here they begin the leaving and don't hurry it."""

    def __init__(self, app: Starlette, settings: Settings, control: socket.socket) -> None:
        super().__init__(app, settings, shared=False)
        self._control = control
        control.setblocking(False)

    @property
    def signals(self) -> list[signal.Signals]:
        return [signal.SIGTERM]

    def handle_exit(self, sig: int, frame: object) -> None:
        self._leave(Pace.DRAIN)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        if self.started:
            self.servers = [cast(Any, OneByOne(each, self._connection)) for each in sockets or []]
        asyncio.get_running_loop().add_reader(self._control, self._commanded)
        self._say(READY)

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS == 0:
            self._say(ALIVE)
        return await super().on_tick(counter)

    def _connection(self) -> asyncio.Protocol:
        make = cast(Any, self.config.http_protocol_class)
        made: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    def _commanded(self) -> None:
        try:
            commands = self._control.recv(64)
        except BlockingIOError:
            return
        except OSError:
            commands = b""
        if not commands:  # the parent has died: the port is for whoever comes after it
            asyncio.get_running_loop().remove_reader(self._control)
            commands = RETIRE
        for command in commands:
            if command == RETIRE[0]:
                self.shared = True
                self.stop_accepting()
                self._leave(Pace.DRAIN)
            else:
                self._leave(_PACES[command])

    def _leave(self, pace: Pace) -> None:
        self.leaving.ask(pace, asyncio.get_running_loop().time())

    def _say(self, what: bytes) -> None:
        with suppress(OSError):  # of a parent that is gone the reader hears; a full pipe says it already
            self._control.send(what)
