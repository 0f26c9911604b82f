"""HTTP as the clients of a load speak it: one request a connection, read as it arrives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httptools

_READ: Final = 65_536
TIMEOUT: Final = 60.0
"""Seconds in which something has to arrive."""


class Broken(Exception):
    """The connection ended before the answer did."""


class Answer:
    """The head of an answer, and its body as it arrives."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._has_head = self._complete = False
        self.headers: dict[str, str] = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the head."""
        self.headers[name.decode().lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head has arrived."""
        self._has_head = True

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        """The answer has arrived."""
        self._complete = True

    @property
    def status(self) -> int:
        """Its status."""
        found: int = self._parser.get_status_code()
        return found

    async def head(self) -> None:
        """Read until the head is there. Raises Broken."""
        while not self._has_head:
            await self._feed()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body. Raises Broken if it is cut."""
        while True:
            taken, self._pieces = self._pieces, []
            for piece in taken:
                yield piece
            if self._complete:
                return
            await self._feed()

    async def body(self) -> bytes:
        """All of the body."""
        return b"".join([piece async for piece in self.pieces()])

    async def json(self) -> Any:
        """The body as a JSON value. Raises Broken for anything else."""
        try:
            return json.loads(await self.body())
        except ValueError as error:
            raise Broken("no JSON") from error

    async def _feed(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT):
                data = await self._reader.read(_READ)
            if not data:
                raise Broken("closed")
            self._parser.feed_data(data)
        except (OSError, httptools.HttpParserError) as error:
            raise Broken(type(error).__name__) from error


@asynccontextmanager
async def asked(
    port: int, method: str, path: str, body: Any = None, key: str = "load"
) -> AsyncIterator[Answer]:
    """The answer to a request, from its head on; leaving early leaves the server without its client. Raises
    Broken when there is none."""
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\nanthropic-version: 2023-06-01\r\nconnection: close\r\n"
        f"content-length: {len(data)}\r\n\r\n"
    )
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        raise Broken(type(error).__name__) from error
    try:
        writer.write(head.encode() + data)
        answer = Answer(reader)
        await answer.head()
        yield answer
    finally:
        writer.transport.abort()
