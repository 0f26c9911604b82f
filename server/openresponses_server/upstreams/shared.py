"""One request of an upstream that several runs read, each a choice of its answer.

A task of its own holds it open. What comes is given to all readers, and nothing comes while one of them has
paused it, so that a slow client slows its upstream here too. It is closed when the last reader leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openresponses_server.http.flow import Sink
from openresponses_server.upstreams.base import Upstream, UpstreamReply, UpstreamRequest, UpstreamWrapper


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
            request.look()

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


class _Reader(UpstreamWrapper):
    def __init__(self, shared: SharedUpstream, number: int) -> None:
        super().__init__(shared.upstream)
        self._shared = shared
        self._number = number

    @asynccontextmanager
    async def open(self, request: UpstreamRequest) -> AsyncIterator[UpstreamReply]:
        joined = self._shared.join(self._number, request)
        try:
            await joined.opened()
            yield _Reply(joined, self._number)
        finally:
            joined.leave(self._number)


class _Reply:
    """An `UpstreamReply`."""

    def __init__(self, request: _Request, number: int) -> None:
        self._request = request
        self._number = number
        self.losses, self.whole = request.losses, request.whole

    def start(self, sink: Sink) -> None:
        self._request.start(self._number, sink)

    def pause(self) -> None:
        self._request.pause(self._number)

    def resume(self) -> None:
        self._request.resume(self._number)


class _Request:
    """One request. It is read when everybody expected has started, or left without."""

    losses = ""
    whole = False

    def __init__(
        self, upstream: Upstream, asked: UpstreamRequest, expected: set[int], left: set[int]
    ) -> None:
        self._expected = expected
        self._left = left
        self._readers: set[int] = set()
        self._sinks: dict[int, Sink] = {}
        self._gone: set[int] = set()
        self._paused: set[int] = set()
        self._reply: UpstreamReply | None = None
        self._started = self._ended = False
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._hold(upstream, asked))

    # ── the readers' side ──────────────────────────────────────────────────────────────────────────────
    def join(self, number: int) -> None:
        self._readers.add(number)

    async def opened(self) -> None:
        """Raises UpstreamError when the request is refused."""
        await asyncio.shield(self._opened)

    def start(self, number: int, sink: Sink) -> None:
        self._sinks[number] = sink
        self.look()

    def pause(self, number: int) -> None:
        if number in self._sinks:
            self._paused.add(number)
            if self._reply is not None:
                self._reply.pause()

    def resume(self, number: int) -> None:
        self._paused.discard(number)
        if not self._started:
            self.look()
        elif not self._paused and self._reply is not None:
            self._reply.resume()

    def leave(self, number: int) -> None:
        self._readers.discard(number)
        self._sinks.pop(number, None)
        self._gone.add(number)
        if not self._readers:
            if not self._ended:
                self._task.cancel()
            self._over.set()
        elif number in self._paused:
            self.resume(number)
        self.look()

    def look(self) -> None:
        """Begin to read when nobody is waited for any more."""
        waited_for = self._expected - self._left - self._gone - self._sinks.keys()
        if self._reply is not None and not self._started and not (waited_for or self._paused) and self._sinks:
            self._started = True
            self._reply.start(self)

    # ── the upstream's side ────────────────────────────────────────────────────────────────────────────
    def feed(self, data: bytes) -> None:
        for sink in list(self._sinks.values()):
            sink.feed(data)

    def end(self, error: Exception | None) -> None:
        self._ended = True
        for sink in list(self._sinks.values()):
            sink.end(error)

    async def _hold(self, upstream: Upstream, asked: UpstreamRequest) -> None:
        try:
            async with upstream.open(asked) as reply:
                self._reply, self.losses, self.whole = reply, reply.losses, reply.whole
                self._opened.set_result(None)
                self.look()
                await self._over.wait()
        except Exception as error:
            if self._opened.done():  # its readers have had the end
                raise
            self._opened.set_exception(error)
            self._opened.exception()  # it is raised by those who wait, if anybody does
