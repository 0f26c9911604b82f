"""A relay between a client and a server of this machine that can delay or drop answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.support.listening import listening


class Relay:
    """A relay that passes `requests` and `answers` on while these events are set. Only those answers wait
    that follow a request selected by `late`. After a request selected by `cut`, the relay closes the
    connection instead of passing the server's answer on. `asked` has the requests in the order in which they
    arrived."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._there = host, port
        self.requests, self.answers = asyncio.Event(), asyncio.Event()
        self.requests.set()
        self.answers.set()
        self.late: Callable[[bytes], bool] = lambda _asked: True
        self.cut: Callable[[bytes], bool] = lambda _asked: False
        self.asked: list[bytes] = []
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Relay]:
        async with listening(self._serve) as self.port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection(*self._there)
        late, cuts = asyncio.Event(), asyncio.Event()
        ways = [
            asyncio.create_task(self._ask(reader, out, late, cuts)),
            asyncio.create_task(self._answer(there, writer, late, cuts)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            out.close()  # before the first await, at which a cancellation may end this
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        out: asyncio.StreamWriter,
        late: asyncio.Event,
        cuts: asyncio.Event,
    ) -> None:
        while data := await reader.read(65536):
            self.asked.append(data)
            if self.late(data):
                late.set()
            if self.cut(data):
                cuts.set()
            await self.requests.wait()
            out.write(data)
            await out.drain()

    async def _answer(
        self,
        there: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        late: asyncio.Event,
        cuts: asyncio.Event,
    ) -> None:
        while data := await there.read(65536):
            if cuts.is_set():
                return
            if late.is_set():
                await self.answers.wait()
                late.clear()
            writer.write(data)
            await writer.drain()
