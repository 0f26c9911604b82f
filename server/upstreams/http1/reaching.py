"""An origin → a connection to it: its name looked up, its certificate checked."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from aiohappyeyeballs import start_connection

from server.upstreams.http1.connection import Connection
from server.upstreams.http1.head import Origin

_KNOWN: Final = 10.0  # seconds that a look-up is used for
_NEXT_ADDRESS: Final = 0.25  # seconds until another address is tried beside the one before (RFC 8305)

AddressInfo = tuple[Any, ...]
"""As `getaddrinfo` gives it."""


@cache
def tls_context() -> ssl.SSLContext:
    """With the system's authorities, read once: that takes many milliseconds."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Reaching:
    """Of one upstream. A name is looked up once for all who ask at the same time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._known: dict[tuple[str, int], tuple[float, asyncio.Task[list[AddressInfo]]]] = {}

    async def connect(self, origin: Origin, made: Callable[[], Connection]) -> Connection:
        """Raises OSError."""
        options: dict[str, Any] = {}
        if origin.tls:
            options = {"ssl": tls_context(), "server_hostname": origin.host}
        if origin.is_literal:
            return await self._create(made, host=origin.host, port=origin.port, **options)
        addresses = await self._addresses(origin.host, origin.port)
        try:
            found = await self._socket(addresses)
        except OSError:
            self._known.pop((origin.host, origin.port), None)
            raise
        try:
            return await self._create(made, sock=found, **options)
        except BaseException:
            found.close()
            raise

    async def _create(self, made: Callable[[], Connection], **options: Any) -> Connection:
        _, connection = await self._loop.create_connection(made, **options)
        return connection

    async def _addresses(self, host: str, port: int) -> list[AddressInfo]:
        now = self._loop.time()
        since, look = self._known.get((host, port), (0.0, None))
        if look is None or (look.done() and (now - since > _KNOWN or look.exception() is not None)):
            look = self._loop.create_task(self._look_up(host, port))
            look.add_done_callback(_retrieved)
            self._known[host, port] = now, look
        return await asyncio.shield(look)

    async def _look_up(self, host: str, port: int) -> list[AddressInfo]:
        return await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)

    async def _socket(self, addresses: list[AddressInfo]) -> socket.socket:
        return await start_connection(
            addresses, happy_eyeballs_delay=_NEXT_ADDRESS, interleave=1, loop=self._loop
        )

    def close(self) -> None:
        for _, look in self._known.values():
            look.cancel()
        self._known.clear()


def _retrieved(look: asyncio.Task[list[AddressInfo]]) -> None:
    """Nobody may be left who waits for it."""
    if not look.cancelled():
        look.exception()
