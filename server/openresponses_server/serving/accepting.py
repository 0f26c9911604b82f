"""How one worker of several accepts connections from the socket that all of them listen on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

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
