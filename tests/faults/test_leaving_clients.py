"""Laws S3, S8: thousands of clients that connect and leave at any point leave nothing behind."""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.load.faults import reset
from tests.load.returning import TOLERATED, Standing, Tolerance, differences, held
from tests.load.scene import port_of
from tests.support.serving import respond
from tests.support.workers import Worker, working

pytestmark = pytest.mark.anyio

AT_ONCE: Final = 20
FEWER: Final = TOLERATED | {
    "files": Tolerance(6, "connections to SQLite"),
    "tasks": Tolerance(3, "what runs from time to time"),
}
"""The tolerances are lower than what the clients of one way of leaving could leave behind."""
HEAD: Final = "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n"
UPGRADE: Final = (
    "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
MESSAGE: Final = b"\x81\xfe\x01\x00\x00\x00\x00\x00" + bytes(256)
"""A client's frame with a mask of zeros, with which a message of 256 bytes begins."""


class Client:
    """One connection, and the random choices of the client that leaves it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.chance = chance

    async def send(self, data: bytes, share: float = 1.0) -> None:
        """Send this share of the bytes; less than all of them for a share below one."""
        self._writer.write(data if share == 1.0 else data[: int(len(data) * share)])
        await self._writer.drain()

    async def read_until(self, end: bytes) -> None:
        await self._reader.readuntil(end)

    def leave(self) -> None:
        """Close the connection, or reset it."""
        reset(self._writer) if self.chance.random() < 0.5 else self._writer.close()


def request(**fields: Any) -> bytes:
    body = json.dumps({"model": "demo-slow", "input": "4 words", "stream": True, **fields}).encode()
    lines = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return HEAD.format(method="POST", path="/v1/responses", fields=lines).encode() + body


def handshake() -> bytes:
    return HEAD.format(method="GET", path="/v1/responses", fields=UPGRADE).encode()


async def connects(_client: Client) -> None:
    """Connect, and send nothing."""


async def half_a_request(client: Client) -> None:
    await client.send(request(), client.chance.random() * 0.99)


async def before_the_first_byte(client: Client) -> None:
    await client.send(request(store=client.chance.random() < 0.5))
    await asyncio.sleep(client.chance.uniform(0.0, 0.01))


async def after_the_first_byte(client: Client) -> None:
    await client.send(request(store=client.chance.random() < 0.5))
    await client.read_until(b"HTTP/1.1 200")


async def in_the_middle(client: Client) -> None:
    await client.send(request(store=client.chance.random() < 0.5))
    for _ in range(client.chance.randrange(1, 5)):
        await client.read_until(b"response.output_text.delta\n")


async def in_the_background(client: Client) -> None:
    await client.send(request(background=True))
    await client.read_until(b"response.created")


async def after_an_answer(client: Client) -> None:
    await client.send(request(model="demo", stream=False, store=False))
    await client.read_until(b'"completed"')


async def half_a_handshake(client: Client) -> None:
    await client.send(handshake(), client.chance.random() * 0.99)


async def after_a_handshake(client: Client) -> None:
    await client.send(handshake())
    await client.read_until(b"101 ")
    if client.chance.random() < 0.5:
        await client.send(MESSAGE, client.chance.random() * 0.99)


LEAVES: Final = (
    connects,
    half_a_request,
    before_the_first_byte,
    after_the_first_byte,
    in_the_middle,
    in_the_background,
    after_an_answer,
    half_a_handshake,
    after_a_handshake,
)


async def leave(port: int, count: int, chance: random.Random) -> Counter[str]:
    """Let so many clients connect and leave; returns the number of each way of leaving."""
    counts: Counter[str] = Counter()

    async def one_after_the_other(number: int) -> None:
        for _ in range(number, count, AT_ONCE):
            how = chance.choice(LEAVES)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            client = Client(reader, writer, chance)
            await how(client)
            client.leave()
            counts[how.__name__] += 1

    await asyncio.gather(*map(one_after_the_other, range(AT_ONCE)))
    return counts


async def returned(worker: Worker, start: Standing, seconds: float = 60.0) -> list[str]:
    """Return the amounts that have not returned to their start after so many seconds."""
    remaining: list[str] = []
    for _ in range(int(seconds / 0.25)):
        remaining = differences(start, await held(worker.pid, port_of(worker.base)), tolerated=FEWER)
        if not remaining:
            break
        await asyncio.sleep(0.25)
    return remaining


async def come_and_go(folder: Path, count: int, warming: int) -> None:
    chance = random.Random(count)
    with working(folder, f"sqlite:///{folder}/s.sqlite3") as worker:
        port = port_of(worker.base)
        await leave(port, warming, chance)
        nothing: Standing = {**await held(worker.pid, port), "running": 0, "streams": 0}
        assert await returned(worker, nothing) == []
        start = await held(worker.pid, port)
        counts = await leave(port, count, chance)
        assert await returned(worker, start) == []
        assert set(counts) == {each.__name__ for each in LEAVES}
        reply = await asyncio.to_thread(respond, worker.base, model="demo")
        assert (reply.status, reply.json["status"]) == (200, "completed")
        print(f"{count:,} clients left: {dict(counts)}; {start}; {await held(worker.pid, port)}")


async def test_s3_s8_clients_that_leave_at_any_point_leave_nothing_behind(tmp_path: Path) -> None:
    await come_and_go(tmp_path, 120, warming=40)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_s3_s8_ten_thousand_connects_and_leaves(tmp_path: Path) -> None:
    await come_and_go(tmp_path, 10_000, warming=500)
