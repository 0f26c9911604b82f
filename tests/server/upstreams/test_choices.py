"""One request of an upstream that several readers share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

import pytest

from openresponses_server.errors import UpstreamError
from openresponses_server.http.flow import BodyReader, Discard, TaskSource
from openresponses_server.upstreams.base import UpstreamReply, UpstreamRequest
from openresponses_server.upstreams.choices import SharedUpstream
from openresponses_server.upstreams.demo.upstream import DemoUpstream

pytestmark = pytest.mark.anyio
ASKED = UpstreamRequest("/x", b"{}", "req_1")
CUT = UpstreamError(502, "cut")


class Pieces(DemoUpstream):
    """Gives pieces; an error among them is raised, None hangs. `taken` counts them, `ended` says how it was
    left."""

    def __init__(self, *pieces: bytes | Exception | None) -> None:
        self.pieces = list(pieces)
        self.requests = self.taken = 0
        self.ended: str | None = None

    @asynccontextmanager
    async def open(self, request: UpstreamRequest) -> AsyncIterator[UpstreamReply]:  # type: ignore[override]
        self.requests += 1
        if self.pieces and self.pieces[0] is CUT:
            raise CUT
        try:
            with closing(TaskSource(self.read)) as reply:
                yield reply
            self.ended = "left"
        except asyncio.CancelledError:
            self.ended = "aborted"
            raise

    async def read(self) -> bytes:
        piece = self.pieces[self.taken] if self.taken < len(self.pieces) else b""
        self.taken += 1
        if piece is None:
            await asyncio.Event().wait()
        if isinstance(piece, Exception):
            raise piece
        return piece or b""


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def whole_of(reply: UpstreamReply) -> bytes:
    reader, pieces = BodyReader(reply), []
    while piece := await reader.read():
        pieces.append(piece)
    return b"".join(pieces)


async def test_all_readers_get_every_piece_of_one_request() -> None:
    upstream = Pieces(b"a", b"b", b"c")
    shared = SharedUpstream(upstream, 3)

    async def read(number: int) -> bytes:
        async with shared.choice_upstream(number).open(ASKED) as reply:
            return await whole_of(reply)

    assert await asyncio.gather(*map(read, range(3))) == [b"abc"] * 3
    await settled()
    assert (upstream.requests, upstream.ended) == (1, "left")


async def test_a_slow_reader_holds_the_upstream_back_until_it_leaves() -> None:
    upstream = Pieces(*[b"x"] * 50)
    shared = SharedUpstream(upstream, 2)
    async with AsyncExitStack() as slow, shared.choice_upstream(0).open(ASKED) as quick:
        paused = await slow.enter_async_context(shared.choice_upstream(1).open(ASKED))
        paused.start(Discard())
        paused.pause()
        reading = asyncio.create_task(whole_of(quick))
        await settled()
        assert upstream.taken == 0
        await slow.aclose()
        assert await reading == b"x" * 50


async def test_nothing_is_read_before_all_have_joined_or_left() -> None:
    upstream = Pieces(b"a")
    shared = SharedUpstream(upstream, 3)
    async with shared.choice_upstream(0).open(ASKED) as first:
        reading = asyncio.create_task(whole_of(first))
        shared.leave(2)
        await settled()
        assert (upstream.requests, upstream.taken) == (1, 0)
        async with shared.choice_upstream(1).open(ASKED) as second:
            assert await whole_of(second) == await reading == b"a"


@pytest.mark.parametrize("pieces", [[None], [b"a", None]])
async def test_it_is_aborted_when_the_last_reader_leaves(pieces: list[Any]) -> None:
    upstream = Pieces(*pieces)
    shared = SharedUpstream(upstream, 2)
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        replies = [
            await stack.enter_async_context(shared.choice_upstream(number).open(ASKED))
            for number, stack in enumerate((first, second))
        ]
        readers = [BodyReader(reply) for reply in replies]
        if pieces[0]:
            assert [await reader.read() for reader in readers] == [b"a"] * 2
        await settled()
        await first.aclose()
        await settled()
        assert upstream.ended is None
    await settled()
    assert upstream.ended == "aborted"


async def test_errors_are_everybody_s() -> None:
    for pieces, expected in (([CUT], 0), ([b"a", CUT], 1)):
        shared = SharedUpstream(Pieces(*pieces), 2)

        async def read(number: int, shared: SharedUpstream = shared) -> int:
            taken = 0
            try:
                async with shared.choice_upstream(number).open(ASKED) as reply:
                    reader = BodyReader(reply)
                    while await reader.read():
                        taken += 1
            except UpstreamError:
                return taken
            return -1  # it ended without its error

        assert await asyncio.gather(read(0), read(1)) == [expected, expected]


async def test_asking_again_is_another_request_of_all() -> None:
    upstream = Pieces(CUT)
    shared = SharedUpstream(upstream, 2)

    async def read(number: int) -> bytes:
        with pytest.raises(UpstreamError):
            async with shared.choice_upstream(number).open(ASKED):
                pass
        upstream.pieces = [b"a"]
        await asyncio.sleep(0.01 * number)
        async with shared.choice_upstream(number).open(ASKED) as reply:
            return await whole_of(reply)

    assert await asyncio.gather(read(0), read(1)) == [b"a"] * 2
    assert upstream.requests == 2
