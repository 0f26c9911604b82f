"""A server on a port of this machine; its connections are closed and released when it ends."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

_ACCEPTING = 3  # iterations of the loop from a connection to `begin`, when a server can't be closed
Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handle: Handle, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Yield the server's port. A connection that breaks or is closed ends its `handle` quietly."""
    writers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
    over = False

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if over:  # its handshake took longer than these iterations
            writer.transport.abort()
        else:
            writers[asyncio.create_task(handled(reader, writer))] = writer

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handle(reader, writer)
        finally:
            writer.transport.abort() if task.cancelling() else writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    server = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=tls, backlog=1024)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for each in server.sockets:
            asyncio.get_running_loop().remove_reader(each)  # the server accepts no further connections
        for _ in range(_ACCEPTING):
            await asyncio.sleep(0)
        over = True
        server.close()
        for task in writers:
            task.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        for writer in writers.values():
            writer.transport.abort()  # of a task that had not started
        await asyncio.sleep(0.01)  # in these iterations the clients' ends are closed
