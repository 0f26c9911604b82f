"""One worker process of several: it accepts from its parent's socket and leaves when the parent says so or is
gone."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Final, cast

from starlette.applications import Starlette

from openresponses_server.api.app import create_app
from openresponses_server.observation.logs import configure_logs
from openresponses_server.serving.accepting import OneByOne
from openresponses_server.serving.leaving import Pace
from openresponses_server.serving.memory import give_back_freed_memory
from openresponses_server.serving.server import Server
from openresponses_server.settings import Settings, of_worker

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
