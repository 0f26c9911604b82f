"""How many calls of the project's own functions, in how many of its files, one thing costs: each addition
shows. The limits are what it costs now; who needs more says why in the commit that raises one. The extra
`otel`, which the tests have and a server need not, is left out."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from uvicorn import Config, Server

from openresponses_bridge.sse import DONE
from openresponses_server.api.app import create_app
from openresponses_server.http.connection import http_protocol
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.services import redis_server
from tests.support.upstream import call, chunk

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

_OURS = tuple(
    f"{Path(__file__).parents[2]}/{half}/"
    for half in ("bridge/openresponses_bridge", "server/openresponses_server")
)


@pytest.fixture(autouse=True)
def _without_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("requests.composition", "upstreams.routing", "upstreams.targets"):
        monkeypatch.setattr(f"openresponses_server.{where}.is_installed", lambda: False)


class Count:
    """Calls by the place of what was called."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            name = f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"
            self.calls[name] = self.calls.get(name, 0) + 1

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    @property
    def files(self) -> int:
        return len({name.rpartition(":")[0] for name in self.calls})

    def check(self, calls: int, files: int) -> None:
        shown = [f"{times:4} {name.partition('/openresponses_')[2]}" for name, times in self.calls.items()]
        found = "\n".join((f"{self.total} calls in {self.files} files:", *shown))
        assert self.total <= calls, found
        assert self.files <= files, found


def fewest(counts: list[Count]) -> Count:
    """Of the same thing several times: on a busy machine one read becomes two, and timers run beside it."""
    return min(counts, key=lambda each: each.total)


@contextmanager
def counting() -> Iterator[Count]:
    count = Count()
    before = sys.getprofile()
    sys.setprofile(count.note)
    try:
        yield count
    finally:
        sys.setprofile(before)


class Upstream:
    """A server of Chat Completions on this loop: each request is answered with the stream `whole`, or where
    that is empty with what is given to `write`."""

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
        """Send a request; the head of its answer, or that and the body where there is a length."""
        data = json.dumps({"model": "m", "input": "Hi", **body}).encode()
        self.writer.write(
            b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(data), data)
        )
        if body.get("stream"):
            async with asyncio.timeout(60):
                await self.upstream.asked.wait()
            return b""
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        return head + await self.reader.readexactly(size)

    async def token(self, text: str) -> None:
        """One that comes by itself, until the client has it."""
        self.upstream.write(chunk(content=text))
        async with asyncio.timeout(60):
            await self.reader.readuntil(text.encode())


@asynccontextmanager
async def serving(routes: int = 1, **settings: Any) -> Any:
    upstream = Upstream()
    listener = await asyncio.start_server(upstream.handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    models = ["m"] if routes > 1 else []
    upstreams = [UpstreamSettings(url=url, name=f"up{number}", models=models) for number in range(routes)]
    given = Settings(upstreams=upstreams, keep_alive=30.0, **settings)
    server = Server(
        Config(create_app(given), log_level="critical", port=0, http=http_protocol(given), lifespan="on")
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


async def steady(bench: Bench, **body: Any) -> Count:
    """One of several tokens that come in their time, after the first ones."""
    await bench.ask(stream=True, **body)
    for number in range(5):
        await bench.token(f"first{number}")
    counts = []
    for number in range(5):
        await asyncio.sleep(0.01)
        with counting() as count:
            await bench.token(f"token{number}")
        counts.append(count)
    return fewest(counts)


async def test_a_steady_token() -> None:
    async with serving(store="memory://") as bench:
        (await steady(bench, store=False)).check(12, 9)


async def test_a_steady_token_that_is_stored(tmp_path: Path) -> None:
    async with serving(store=f"sqlite:///{tmp_path}/responses.db") as bench:
        (await steady(bench)).check(17, 13)


async def test_a_steady_token_whose_log_is_in_redis(tmp_path: Path) -> None:
    with redis_server() as url:
        async with serving(store=f"sqlite:///{tmp_path}/responses.db", event_log=url) as bench:
            (await steady(bench)).check(19, 12)


async def test_the_first_chunk_of_a_call() -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    counts = []
    for _ in range(4):  # the first one makes what is made once, and reads may come together
        async with serving(store="memory://") as bench:
            await bench.ask(stream=True, store=False, tools=[tool])
            await bench.token("first")
            await asyncio.sleep(0.01)
            with counting() as count:
                bench.upstream.write(call(0, '{"a', "look", "call_1"))
                async with asyncio.timeout(60):
                    await bench.reader.readuntil(b'"delta":"{\\"a"')
            counts.append(count)
    fewest(counts).check(50, 18)


async def test_a_stream_of_twenty_tokens() -> None:
    async with serving(store="memory://") as bench:
        words = [chunk(content=f"word{number} ") for number in range(20)]
        bench.upstream.whole = b"".join([*words, chunk("stop"), DONE])
        for _ in range(3):
            await bench.ask(stream=True, store=False)
            await bench.reader.readuntil(b"0\r\n\r\n")
        counts = []
        for _ in range(5):
            await asyncio.sleep(0.05)
            with counting() as count:
                await bench.ask(stream=True, store=False)
                await bench.reader.readuntil(b"0\r\n\r\n")
            counts.append(count)
        fewest(counts).check(468, 67)


async def test_a_plain_request() -> None:
    async with serving(store="memory://") as bench:
        bench.upstream.whole = chunk(content="Hello") + chunk("stop") + DONE
        for _ in range(3):
            assert b"Hello" in await bench.ask(store=False)
        counts = []
        for _ in range(5):
            await asyncio.sleep(0.05)
            with counting() as count:
                await bench.ask(store=False)
            counts.append(count)
        fewest(counts).check(394, 65)


async def test_a_request_that_has_a_choice_of_routes() -> None:
    """Of four upstreams that share a model, in a session."""
    async with serving(routes=4, store="memory://", balance="round_robin") as bench:
        bench.upstream.whole = chunk(content="Hello") + chunk("stop") + DONE
        for _ in range(3):
            assert b"Hello" in await bench.ask(store=False, prompt_cache_key="k")
        counts = []
        for _ in range(5):
            await asyncio.sleep(0.05)
            with counting() as count:
                await bench.ask(store=False, prompt_cache_key="k")
            counts.append(count)
        fewest(counts).check(433, 68)
