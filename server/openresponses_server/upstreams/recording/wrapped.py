"""Recording an upstream that is not reached over HTTP, as one that is would have sent it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from openresponses_server.errors import UpstreamError, error_body
from openresponses_server.observation.recordings.records import Asked
from openresponses_server.observation.recordings.secrets import Secrets
from openresponses_server.observation.recordings.writer import ExchangeRecorder, Into
from openresponses_server.upstreams.base import (
    DRAIN_SECONDS,
    LOSSES_HEADER,
    Take,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
)
from openresponses_server.upstreams.recording.recorded import LOST, TIMEOUT, UNREACHABLE, recorder_of
from openresponses_server.upstreams.reported import ReportedModel

_LEFT: Final[tuple[Any, ...]] = ("left",)
_NO_ANSWER = {UpstreamError.TIMEOUT: TIMEOUT, UpstreamError.UNREACHABLE: UNREACHABLE}


class RecordedUpstream:
    """An `Upstream` whose exchanges are recorded where `into` says; `dialect` is what it speaks."""

    def __init__(self, upstream: Upstream, into: Into, dialect: str) -> None:
        self._upstream = upstream
        self._into = into
        self._dialect = dialect
        self.name = upstream.name
        self.address = upstream.address
        self.clean = upstream.clean
        self.account = upstream.account

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: UpstreamRequest) -> AsyncIterator[UpstreamReply]:
        place = self._into.of_exchange(self.name)
        if place is None:
            async with self._upstream.open(request) as reply:
                yield reply
            return
        asked = Asked(
            0,
            0,
            dialect=self._dialect,
            upstream=self.name,
            address=self.address if place.shows_address else "",
            path=request.path,
            request_id=request.request_id,
            run=place.run,
        )
        recorder = await recorder_of(
            place, Secrets([request.client_key, *place.secrets]), asked, request.body
        )
        accepted = False
        ending: tuple[Any, ...] = _LEFT
        try:
            async with self._upstream.open(request) as reply:
                accepted = True
                losses = {LOSSES_HEADER: reply.losses} if reply.losses else {}
                recorder.answer(200, {"content-type": "text/event-stream", **losses})
                recorded = _Recorded(reply, recorder)
                try:
                    yield recorded
                    await recorded.drain()
                finally:
                    ending = recorded.ending
        except UpstreamError as error:
            if not accepted:
                ending = _refused(recorder, error)
            raise
        finally:
            recorder.end(*ending)

    async def models(self) -> list[ReportedModel]:
        return await self._upstream.models()

    async def close(self) -> None:
        self._into.close()
        await self._upstream.close()


class _Recorded:
    """An `UpstreamReply`."""

    def __init__(self, reply: UpstreamReply, recorder: ExchangeRecorder) -> None:
        self._reply = reply
        self._recorder = recorder
        self.losses = reply.losses
        self.ending: tuple[Any, ...] = _LEFT

    async def read(self, take: Take | None = None) -> bytes:
        try:
            data = await self._reply.read()
        except UpstreamError as error:
            self.ending = ("cut", TIMEOUT if error.code == UpstreamError.TIMEOUT else LOST, error.cause)
            raise
        if data:
            await self._recorder.take(data)
        else:
            self.ending = ("finished",)
        return data

    async def drain(self) -> None:
        """Read what is left when the stream has said its end, as an upstream over HTTP does: so it is known
        that nothing more came."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.ending == _LEFT and await self.read():
                    pass
        except (UpstreamError, TimeoutError):
            return  # its client has had all that it wanted


def _refused(recorder: ExchangeRecorder, error: UpstreamError) -> tuple[Any, ...]:
    """Write the answer of one that refuses; how the exchange ends."""
    if error.code in _NO_ANSWER:
        return ("failed", _NO_ANSWER[error.code], error.cause)
    recorder.answer(error.http_status, {"content-type": "application/json", **error.headers})
    recorder.chunk(error_body(error))
    return ("finished",)
