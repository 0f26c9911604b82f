"""One request of an upstream that several runs read, each a choice of its answer.

A task of its own opens it and reads, the next bytes when all readers have taken the last ones, so that a slow
client slows its upstream here too. It is aborted when the last reader leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from openresponses_server.upstreams.base import DataReceiver, Upstream, UpstreamReply, UpstreamRequest


class SharedUpstream:
    """This upstream for so many readers, numbered from 0. All of them ask for the same, and when they ask
    again, they all do."""

    def __init__(self, upstream: Upstream, readers: int) -> None:
        self.upstream = upstream
        self.readers = readers
        self._asked = [0] * readers
        self._left: set[int] = set()
        self._requests: list[_Request] = []

    def reader(self, number: int) -> Upstream:
        """The upstream as this reader sees it."""
        return _Reader(self, number)

    def leave(self, number: int) -> None:
        """This reader asks for nothing more: it is not waited for."""
        self._left.add(number)
        for request in self._requests:
            request.change()

    def join(self, number: int, asked: UpstreamRequest) -> _Request:
        """The request of this reader: its nth is everybody's nth."""
        turn = self._asked[number]
        self._asked[number] += 1
        if turn == len(self._requests):
            expected = set(range(self.readers))
            self._requests.append(_Request(self.upstream, asked, expected, self._left))
        request = self._requests[turn]
        request.join(number)
        return request


class _Reader:
    """An `Upstream`."""

    def __init__(self, shared: SharedUpstream, number: int) -> None:
        self._shared = shared
        self._number = number
        self.name = shared.upstream.name
        self.address = shared.upstream.address
        self.clean = shared.upstream.clean
        self.account = shared.upstream.account
        self.models = shared.upstream.models
        self.close = shared.upstream.close

    @asynccontextmanager
    async def open(self, asked: UpstreamRequest) -> AsyncIterator[UpstreamReply]:
        request = self._shared.join(self._number, asked)
        try:
            await request.opened()
            yield _Reply(request, self._number)
        finally:
            request.leave(self._number)


class _Reply:
    """An `UpstreamReply`."""

    def __init__(self, request: _Request, number: int) -> None:
        self._request = request
        self._number = number
        self.losses = request.losses

    async def read(self, receive: DataReceiver | None = None) -> bytes:
        return await self._request.piece(self._number)


class _Request:
    """One request. Its bytes come in pieces, of which one is kept; `_taken` says how many each reader that
    has not left again has taken. Reading waits until everybody expected has joined, or left without."""

    def __init__(
        self, upstream: Upstream, asked: UpstreamRequest, expected: set[int], left: set[int]
    ) -> None:
        self._expected = expected
        self._left = left
        self._joined: set[int] = set()
        self._taken: dict[int, int] = {}
        self._pieces = 0
        self._piece = b""
        self._accepted = False
        self.losses = ""
        self._waits = False
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._read(upstream, asked))

    def join(self, number: int) -> None:
        self._joined.add(number)
        self._taken[number] = 0
        self.change()

    def leave(self, number: int) -> None:
        del self._taken[number]
        self.change()
        if not self._taken and not self._waits:
            self._task.cancel()

    def change(self) -> None:
        """Something has happened that somebody may wait for."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def opened(self) -> None:
        """Raises UpstreamError when the request is refused."""
        await self._until(lambda: self._accepted or self._error is not None)
        if not self._accepted and self._error is not None:
            raise self._error

    async def piece(self, number: int) -> bytes:
        """What comes next, b"" at the end. Raises UpstreamError when the stream is cut."""
        await self._until(lambda: self._taken[number] < self._pieces or self._error is not None)
        if self._taken[number] == self._pieces and self._error is not None:
            raise self._error
        self._taken[number] = self._pieces
        self.change()
        return self._piece

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            await self._changed.wait()

    async def _read(self, upstream: Upstream, asked: UpstreamRequest) -> None:
        try:
            async with upstream.open(asked) as reply:
                self.losses = reply.losses
                self._accepted = True
                self.change()
                while await self._is_wanted():
                    self._piece = await reply.read()
                    self._pieces += 1
                    self.change()
        except Exception as error:  # whoever reads raises it
            self._error = error
            self.change()

    async def _is_wanted(self) -> bool:
        """All have taken what has come; whether there is anybody left to read on."""
        self._waits = True
        try:
            await self._until(self._all_have_taken)
        finally:
            self._waits = False
        return bool(self._taken) and (self._pieces == 0 or bool(self._piece))

    def _all_have_taken(self) -> bool:
        here = self._expected <= self._joined | self._left
        return here and all(taken == self._pieces for taken in self._taken.values())
