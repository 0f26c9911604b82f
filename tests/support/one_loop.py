"""The server, its upstream and a client's connection, all on one event loop."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import Any

from uvicorn import Config, Server

from openresponses_server.api.app import create_app
from openresponses_server.http.connection import http_protocol
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.upstream import chunk


class Upstream:
    """A server of Chat Completions on this loop. It answers each request with the stream `whole`; if that is
    empty, with the pieces passed to `write`."""

    def __init__(self) -> None:
        self.whole = b""
        self.writer: asyncio.StreamWriter | None = None
        self.asked = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
                await reader.readexactly(size)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
                writer.write(b"transfer-encoding: chunked\r\n\r\n")
                self.writer = writer
                if self.whole:
                    self.write(self.whole)
                    writer.write(b"0\r\n\r\n")
                self.asked.set()

    def write(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))


class Bench:
    """The server on this loop, its upstream and one connection of a client."""

    def __init__(
        self, upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.upstream, self.reader, self.writer = upstream, reader, writer

    async def ask(self, **body: Any) -> bytes:
        """Send a request and return its answer. If the answer is streamed, return nothing, as soon as the
        upstream has got its request."""
        data = json.dumps({"model": "m", "input": "Hi", **body}).encode()
        self.writer.write(
            b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(data), data)
        )
        if body.get("stream"):
            await self.upstream.asked.wait()
            return b""
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        return head + await self.reader.readexactly(size)

    async def token(self, text: str) -> None:
        """Have the upstream send one token, and return once the client has received it."""
        self.upstream.write(chunk(content=text))
        await self.reader.readuntil(text.encode())


@asynccontextmanager
async def serving(routes: int = 1, **settings: Any) -> Any:
    upstream = Upstream()
    listener = await asyncio.start_server(upstream.handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    models = ["m"] if routes > 1 else []
    upstreams = [UpstreamSettings(url=url, name=f"up{number}", models=models) for number in range(routes)]
    configuration = Settings(upstreams=upstreams, keep_alive=30.0, **settings)
    server = Server(
        Config(
            create_app(configuration),
            log_level="critical",
            port=0,
            http=http_protocol(configuration),
            ws="none",
            lifespan="on",
        )
    )
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        yield Bench(upstream, reader, writer)
    finally:
        writer.close()
        if upstream.writer is not None:
            upstream.writer.close()
        server.should_exit = True
        await running
        listener.close()
