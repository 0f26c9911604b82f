"""An upstream that floods a WebSocket: what one iteration of the event loop parses, what is kept and what is
read from the network are bounded, whatever it sends. The network is a transport of the test's own, and
iterations are counted, so that nothing depends on time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from websockets.frames import Opcode

from openresponses_server.http.client.body import FairScheduler, ResponseBody
from openresponses_server.http.client.socket import SocketConnection
from tests.support.socket_network import Network, open_connection
from tests.support.socket_upstream import text_frame

READ = 64 * 1024  # bytes of one read
FLOOD = 64  # reads of the flood
PIECE = 1024  # bytes that are parsed at once
IN_ONE_ITERATION = 64 + PIECE // 2  # frames: 64, and those of the piece that goes beyond
MOST_FRAGMENTS = 64 * 1024  # the limit of a message here


class Flooded:
    """An open connection, the messages that it has given, and the most of them in one iteration."""

    def __init__(self, connection: SocketConnection, network: Network) -> None:
        self.connection, self.network = connection, network
        connection.on_message, connection.on_end = self._count, self._end
        self.messages = 0
        self.most = 0
        self._before = 0
        self.error: OSError | None = None

    def _count(self, _message: bytes) -> None:
        self.messages += 1

    def _end(self, error: OSError) -> None:
        self.error = error

    async def iteration(self) -> None:
        """Let the event loop run once, and see what it parsed."""
        await asyncio.sleep(0)
        self._note()

    def feed(self, data: bytes) -> bool:
        """Give the connection what one read brings; return False if it does not read now."""
        if not self.network.reads or self.network.is_gone:
            return False
        self.connection.data_received(data)
        self._note()
        return True

    def _note(self) -> None:
        self.most = max(self.most, self.messages - self._before)
        self._before = self.messages


def flooded(use: Callable[[Flooded], Awaitable[None]]) -> Flooded:
    async def run() -> Flooded:
        flood = Flooded(*await open_connection(MOST_FRAGMENTS))
        await use(flood)
        flood.connection.abort()
        await asyncio.sleep(0)
        return flood

    return asyncio.run(run())


def reads(frame: bytes) -> bytes:
    """As many of these frames as one read brings."""
    return frame * (READ // len(frame))


FRAMES = {
    "empty messages": text_frame(b"").data,
    "small messages": text_frame(b"{}").data,
    "pongs": text_frame(b"", opcode=Opcode.PONG).data,
    "pings": text_frame(b"", opcode=Opcode.PING).data,
}


@pytest.mark.parametrize("name", FRAMES)
def test_an_iteration_parses_a_bounded_number(name: str) -> None:
    """Between two parts of a flood all others have their turn, and no more is read until it is parsed."""
    frame = FRAMES[name]
    count = READ // len(frame)

    async def use(flood: Flooded) -> None:
        for _ in range(2):
            assert flood.feed(reads(frame))
            iterations = 0
            while not flood.network.reads:
                assert not flood.feed(b"")
                await flood.iteration()
                flood.network.written.clear()  # the upstream reads its pongs
                iterations += 1
            assert count / IN_ONE_ITERATION - 2 <= iterations <= count // 64 + 2

    flood = flooded(use)
    is_message = name.endswith("messages")
    assert flood.messages == (2 * count if is_message else 0)
    assert flood.most <= IN_ONE_ITERATION
    assert flood.error is None or flood.network.is_gone


def test_nothing_is_read_or_given_while_its_reader_is_paused() -> None:
    """So what waits is one read of the network, and what it had given before."""

    async def use(flood: Flooded) -> None:
        scheduler = FairScheduler()
        body = ResponseBody(flood.connection, scheduler)
        count = 0

        def receive(message: bytes) -> None:
            nonlocal count
            count += 1
            body.feed(b"data: \n\n")

        flood.connection.on_message = receive
        taken = sum(flood.feed(reads(FRAMES["empty messages"])) for _ in range(FLOOD))
        while True:
            before = count
            for _ in range(20):
                await flood.iteration()
            taken += sum(flood.feed(reads(FRAMES["empty messages"])) for _ in range(FLOOD))
            if count == before:
                break
        assert taken == 1
        assert count <= 64 * 1024 // 8 + IN_ONE_ITERATION  # the most that a body keeps

    flooded(use)


def test_pings_are_answered_as_fast_as_the_upstream_reads() -> None:
    """One that sends pings and reads no answers is read no more."""

    async def use(flood: Flooded) -> None:
        network = flood.network
        network.is_full = True
        write = network.write

        def writing(data: Any) -> None:
            write(data)
            if len(network.written) > 64 * 1024 and flood.connection._write_resumed is None:
                flood.connection.pause_writing()

        network.write = writing  # type: ignore[method-assign]
        taken = 0
        for _ in range(FLOOD):
            taken += flood.feed(reads(FRAMES["pings"]))
            for _ in range(20):
                await flood.iteration()
        assert taken == 1
        assert 64 * 1024 < len(network.written) < 64 * 1024 + PIECE * 6
        network.is_full = False
        network.written.clear()
        network.write = write  # type: ignore[method-assign]
        flood.connection.resume_writing()
        while not network.reads:
            await flood.iteration()
        assert flood.feed(text_frame(b"{}").data)

    assert flooded(use).messages == 1


@pytest.mark.parametrize("size", [1, 100])
def test_a_message_without_an_end_is_kept_up_to_its_limit(size: int) -> None:
    begin = text_frame(b"x" * size, fin=False).data
    more = text_frame(b"x" * size, fin=False, opcode=Opcode.CONT).data

    async def use(flood: Flooded) -> None:
        assert flood.feed(begin)
        while flood.error is None:
            flood.feed(reads(more))
            buffered = sum(map(len, flood.connection._parts))
            assert buffered <= MOST_FRAGMENTS
            await flood.iteration()
        assert flood.connection._parts == []
        assert not flood.connection._unparsed

    flood = flooded(use)
    assert "too large" in str(flood.error)
    assert flood.network.is_gone


def test_fragments_without_content_are_nothing() -> None:
    """They add nothing to their message, however many there are."""
    nothing = text_frame(b"", fin=False, opcode=Opcode.CONT).data

    async def use(flood: Flooded) -> None:
        assert flood.feed(text_frame(b"{", fin=False).data)
        for _ in range(4):
            assert flood.feed(reads(nothing))
            while not flood.network.reads:
                await flood.iteration()
                assert len(flood.connection._parts) == 1
        assert flood.feed(text_frame(b"}", opcode=Opcode.CONT).data)

    assert flooded(use).messages == 1


def test_what_is_closed_keeps_nothing_of_a_flood() -> None:
    async def use(flood: Flooded) -> None:
        assert flood.feed(reads(FRAMES["small messages"]))
        before = flood.messages
        flood.connection.abort()
        for _ in range(20):
            await flood.iteration()
        assert flood.messages == before
        assert not flood.connection._unparsed

    flooded(use)
