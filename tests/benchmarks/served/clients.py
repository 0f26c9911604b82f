"""The clients: many requests from one process, which only counts what arrives.

    python -m tests.benchmarks.served.clients JSON     → one line of JSON

Latencies are measured from the times that the model process writes into its tokens; both processes are on one
machine.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import Final

import msgspec
import uvloop

_STAMP: Final = re.compile(rb"@(\d{10,20});")
_KEPT: Final = 64  # bytes at the end of a read that are searched again together with the next one
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3})")
_TIMEOUT: Final = 120.0  # seconds for the whole load


class Load(msgspec.Struct):
    """`count` requests of `body` to `path`, at most `together` at a time; with `over` they begin evenly over
    so many seconds. `stamped` says that the tokens contain times."""

    port: int
    path: str
    body: str
    count: int
    together: int
    over: float = 0.0
    stamped: bool = False
    authorization: str = "Bearer bench"


class Found(msgspec.Struct):
    """Seconds: `seconds` for the whole load; for `first`, the time to a stream's first event, and for
    `latency`, the time from the model's write of a token to its arrival, the 99th percentile. `received`
    counts bytes, `failed` requests."""

    seconds: float
    first: float
    latency: float
    received: int
    failed: int


class _Client(asyncio.Protocol):
    def __init__(self, request: bytes, stamped: bool) -> None:
        self._request, self._stamped = request, stamped
        self.first = 0.0
        self.latencies: list[float] = []
        self.received = 0
        self.failed = False
        self._tail = b""
        self._length = -1
        self._latest = 0
        self.begun = 0.0

    def ask(self, transport: asyncio.Transport) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first, self._tail, self._length, self._head = 0.0, b"", -1, True
        self._body = 0
        self.begun = time.monotonic()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self.received += len(data)
        if self._head:
            self._tail += data
            head, mark, rest = self._tail.partition(b"\r\n\r\n")
            if not mark:
                return
            self._head = False
            status = _STATUS.match(head)
            self.failed |= status is None or status[1] != b"200"
            found = re.search(rb"(?i)content-length: (\d+)", head)
            self._length = int(found[1]) if found else -1
            data, self._tail = rest, b""
        if data and not self.first:
            self.first = now / 1e9 - self.begun
        self._body += len(data)
        seen = self._tail + data
        if self._stamped:
            for found in _STAMP.finditer(data if not self._tail else seen, 0):
                written = int(found[1])
                if written > self._latest:  # the events at the end repeat the whole text
                    self._latest = written
                    self.latencies.append((now - written) / 1e9)
        self._tail = seen[-_KEPT:]
        if self._body >= self._length >= 0 or self._tail.endswith(b"\r\n0\r\n\r\n"):
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.failed = True
            self.done.set_result(None)


async def load(asked: Load) -> Found:
    body = asked.body.encode()
    request = (
        f"POST {asked.path} HTTP/1.1\r\nhost: 127.0.0.1:{asked.port}\r\ncontent-type: application/json\r\n"
        f"authorization: {asked.authorization}\r\naccept: */*\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    loop = asyncio.get_running_loop()
    firsts: list[float] = []
    latencies: list[float] = []
    received = failed = 0
    left = iter(range(asked.count))
    begun = time.monotonic()

    async def one_after_another() -> None:
        nonlocal received, failed
        connected: tuple[asyncio.Transport, _Client] | None = None
        for number in left:
            if asked.over:
                await asyncio.sleep(begun + asked.over * number / asked.count - time.monotonic())
            if connected is None or connected[0].is_closing():
                transport, client = await loop.create_connection(
                    lambda: _Client(request, asked.stamped), "127.0.0.1", asked.port
                )
                connected = transport, client
            transport, client = connected
            client.received, client.latencies, client.failed = 0, [], False
            client.ask(transport)
            await client.done
            firsts.append(client.first)
            latencies.extend(client.latencies)
            received += client.received
            failed += client.failed
        if connected is not None:
            connected[0].abort()

    async with asyncio.timeout(_TIMEOUT):
        await asyncio.gather(*(one_after_another() for _ in range(asked.together)))
    return Found(time.monotonic() - begun, _percentile(firsts), _percentile(latencies), received, failed)


def _percentile(values: list[float], share: float = 0.99) -> float:
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


if __name__ == "__main__":
    found = uvloop.run(load(msgspec.json.decode(sys.argv[1], type=Load)))
    sys.stdout.buffer.write(msgspec.json.encode(found))
