"""The floor for Python: a bare protocol that copies bytes between two connections without parsing HTTP.

python -m tests.benchmarks.served.copier PORT TO
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class _Side(asyncio.Protocol):
    """One side, which writes the bytes that arrive on the other side's connection."""

    def __init__(self) -> None:
        self.other: _Side | None = None
        self.out: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.out = cast(asyncio.Transport, transport)  # uvloop's transport has none of these classes

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.out is not None:
            self.other.out.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.out is not None:
            self.other.out.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.out is not None:
            self.other.out.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.out is not None:
            self.other.out.close()


class _Accepted(_Side):
    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early += data
        else:
            super().data_received(data)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        transport, other = await loop.create_connection(_Side, "127.0.0.1", self._port)
        other.other, self.other = self, other
        transport.write(self._early)


async def _serve(port: int, to: int) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: _Accepted(to), "127.0.0.1", port, backlog=4096
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
