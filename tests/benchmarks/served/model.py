"""The model process, which answers as the name of the model says, as fast as it can.

    python -m tests.benchmarks.served.model PORT

`burst-N`: N tokens, each in a chunk of its own. `paced-N`: N tokens at thirty a second, each with the time at
which it was written; `slow-N`: N tokens at one a second. `arguments-N`: the arguments of a call in N
fragments. For a request that is not streamed, it sends one short answer.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import Final, cast

import uvloop

from tests.benchmarks.served.frames import CHAT, RESPONSES, Spoken

_PATTERN: Final = re.compile(rb'"model"\s*:\s*"(burst|paced|slow|arguments)-(\d{1,6})"')
_LENGTH: Final = re.compile(rb"(?i)content-length: (\d{1,9})")
_STREAM: Final = re.compile(rb'"stream"\s*:\s*true')
_AT_ONCE: Final = 16  # tokens after which the other connections get their turn
PAUSES: Final = {b"paced": 1 / 30, b"slow": 1.0}
"""Seconds between two tokens."""
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    b"cache-control: no-store\r\n\r\n"
)
_LAST: Final = b"0\r\n\r\n"
_TOKEN: Final = " token"


class _Connection(asyncio.Protocol):
    """A connection, which answers one request after another."""

    def __init__(self) -> None:
        self._got = b""
        self._room = asyncio.Event()
        self._room.set()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = cast(asyncio.Transport, transport)  # uvloop's transport has none of these classes

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, mark, body = self._got.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not mark or (length and len(body) < int(length[1])):
            return
        self._got = b""
        spoken = RESPONSES if b"/responses" in head.partition(b"\r\n")[0] else CHAT
        match = _PATTERN.search(body)
        if match is None or not _STREAM.search(body):
            self._out.write(_whole(spoken.whole))
        elif match[1] in PAUSES:
            paced = self._paced(spoken, int(match[2]), PAUSES[match[1]])
            self._task = asyncio.get_running_loop().create_task(paced)
        else:
            self._task = asyncio.get_running_loop().create_task(self._burst(spoken, match[1], int(match[2])))

    async def _burst(self, spoken: Spoken, kind: bytes, tokens: int) -> None:
        calls = kind == b"arguments"
        self._out.write(_HEAD + _chunk(spoken.call if calls else spoken.head))
        for number in range(tokens):
            self._out.write(_chunk(spoken.fragment if calls else spoken.token(_TOKEN, number)))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if not self._room.is_set():
                await self._room.wait()
        tail = spoken.call_tail if calls else spoken.tail(_TOKEN * tokens, tokens)
        self._out.write(_chunk(tail) + _LAST)

    async def _paced(self, spoken: Spoken, tokens: int, pause: float) -> None:
        loop = asyncio.get_running_loop()
        self._out.write(_HEAD + _chunk(spoken.head))
        begun, stamps = loop.time(), []
        for number in range(tokens):
            await asyncio.sleep(begun + (number + 1) * pause - loop.time())
            stamps.append(f" @{time.monotonic_ns()};")
            self._out.write(_chunk(spoken.token(stamps[-1], number)))
        self._out.write(_chunk(spoken.tail("".join(stamps), tokens)) + _LAST)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
