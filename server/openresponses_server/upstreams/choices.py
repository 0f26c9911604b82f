"""One request to an upstream that several runs read, each one choice of its answer.

A task of its own keeps it open. Data goes to all readers; the upstream is paused while one of them has paused
it. The request is closed when the last reader leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openresponses_server.http.flow import Sink
from openresponses_server.tasks import retrieve_exception
from openresponses_server.upstreams.base import Upstream, UpstreamReply, UpstreamRequest, UpstreamWrapper


class SharedUpstream:
    """An upstream for several readers, numbered from 0, which all make the same requests in the same
    order."""

    def __init__(self, upstream: Upstream, readers: int) -> None:
        self.upstream = upstream
        self.readers = readers
        self._request_counts = [0] * readers
        self._finished: set[int] = set()
        self._requests: list[_SharedRequest] = []

    def choice_upstream(self, number: int) -> Upstream:
        """The upstream for the run of this choice."""
        return _ChoiceUpstream(self, number)

    def leave(self, number: int) -> None:
        """Remove the reader: it makes no more requests, and nothing waits for it."""
        self._finished.add(number)
        for request in self._requests:
            request.start_if_ready()

    def add_reader(self, number: int, request: UpstreamRequest) -> _SharedRequest:
        """Add a reader to its next request: the nth request of each reader is the same one."""
        index = self._request_counts[number]
        self._request_counts[number] += 1
        if index == len(self._requests):
            expected = set(range(self.readers))
            self._requests.append(_SharedRequest(self.upstream, request, expected, self._finished))
        joined = self._requests[index]
        joined.add_reader(number)
        return joined


class _ChoiceUpstream(UpstreamWrapper):
    """The upstream as one reader sees it."""

    def __init__(self, shared: SharedUpstream, number: int) -> None:
        super().__init__(shared.upstream)
        self._shared = shared
        self._number = number

    @asynccontextmanager
    async def open(self, request: UpstreamRequest) -> AsyncIterator[UpstreamReply]:
        joined = self._shared.add_reader(self._number, request)
        try:
            await joined.opened()
            yield _ChoiceReply(joined, self._number)
        finally:
            joined.leave(self._number)


class _ChoiceReply:
    """The `UpstreamReply` of one reader."""

    def __init__(self, request: _SharedRequest, number: int) -> None:
        self._request = request
        self._number = number
        self.losses, self.whole = request.losses, request.whole

    def start(self, sink: Sink) -> None:
        self._request.start(self._number, sink)

    def pause(self) -> None:
        self._request.pause(self._number)

    def resume(self) -> None:
        self._request.resume(self._number)


class _SharedRequest:
    """One request. Its reply is read when every expected reader has started or left."""

    losses = ""
    whole = False

    def __init__(
        self, upstream: Upstream, request: UpstreamRequest, expected: set[int], finished: set[int]
    ) -> None:
        self._expected = expected
        self._finished = finished
        self._readers: set[int] = set()
        self._sinks: dict[int, Sink] = {}
        self._departed: set[int] = set()
        self._paused: set[int] = set()
        self._reply: UpstreamReply | None = None
        self._started = self._ended = False
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers_gone = asyncio.Event()
        self._task = asyncio.create_task(self._keep_open(upstream, request))

    def add_reader(self, number: int) -> None:
        self._readers.add(number)

    async def opened(self) -> None:
        """Wait until the upstream accepts. Raises UpstreamError if it refuses."""
        await asyncio.shield(self._opened)

    def start(self, number: int, sink: Sink) -> None:
        self._sinks[number] = sink
        self.start_if_ready()

    def pause(self, number: int) -> None:
        if number in self._sinks:
            self._paused.add(number)
            if self._reply is not None:
                self._reply.pause()

    def resume(self, number: int) -> None:
        self._paused.discard(number)
        if not self._started:
            self.start_if_ready()
        elif not self._paused and self._reply is not None:
            self._reply.resume()

    def leave(self, number: int) -> None:
        self._readers.discard(number)
        self._sinks.pop(number, None)
        self._departed.add(number)
        if not self._readers:
            if not self._ended:
                self._task.cancel()
            self._readers_gone.set()
        elif number in self._paused:
            self.resume(number)
        self.start_if_ready()

    def start_if_ready(self) -> None:
        """Start the reply when no reader is missing."""
        waited_for = self._expected - self._finished - self._departed - self._sinks.keys()
        if self._reply is not None and not self._started and not (waited_for or self._paused) and self._sinks:
            self._started = True
            self._reply.start(self)

    def feed(self, data: bytes) -> None:
        for sink in list(self._sinks.values()):
            sink.feed(data)

    def end(self, error: Exception | None) -> None:
        self._ended = True
        for sink in list(self._sinks.values()):
            sink.end(error)

    async def _keep_open(self, upstream: Upstream, request: UpstreamRequest) -> None:
        try:
            async with upstream.open(request) as reply:
                self._reply, self.losses, self.whole = reply, reply.losses, reply.whole
                self._opened.set_result(None)
                self.start_if_ready()
                await self._readers_gone.wait()
        except Exception as error:
            if self._opened.done():  # the readers got the end
                raise
            self._opened.set_exception(error)
            retrieve_exception(self._opened)
