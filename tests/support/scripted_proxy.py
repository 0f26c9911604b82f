"""A scripted HTTP proxy: it opens tunnels (CONNECT) and forwards requests."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.support.listening import listening


class ScriptedProxy:
    """A scripted proxy. `hosts` maps `host:port` to ports of 127.0.0.1. `user` is the only user, as
    `user:password`. If `says` is set, it is the answer to every request. `behind` is sent immediately after a
    tunnel is opened. `asked` are the received heads, `passed` those that were let through."""

    def __init__(
        self, hosts: dict[str, int] | None = None, user: str = "", says: bytes = b"", behind: bytes = b""
    ) -> None:
        self.hosts = hosts or {}
        self.user = user
        self.says = says
        self.behind = behind
        self.asked: list[str] = []
        self.passed: list[str] = []
        self.port = 0

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        async with listening(self._serve, tls) as self.port:
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        credentials = f"proxy-authorization: Basic {b64encode(self.user.encode()).decode()}\r\n"
        if self.says:
            writer.write(self.says)
        elif self.user and credentials not in head:
            writer.write(b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n")
        else:
            await self._pass(head, reader, writer)
        await writer.drain()

    async def _pass(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = head.split(" ", 2)
        self.passed.append(head)
        host = target if method == "CONNECT" else urlsplit(target).netloc
        there, out = await asyncio.open_connection("127.0.0.1", self.hosts.get(host, 0))
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n" + self.behind)
            else:
                path = target.removeprefix(f"http://{host}")
                out.write(head.replace(f"{method} {target}", f"{method} {path}").encode())
            await asyncio.gather(_copy(reader, out), _copy(there, writer))
        finally:
            out.close()


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        to.write(data)
        await to.drain()
    if to.can_write_eof():
        to.write_eof()
