"""Recording what an upstream over HTTP is asked and sends: it stands between the upstream and its connections
and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import msgspec

from openresponses_server.errors import UpstreamError, error_body
from openresponses_server.observation.recordings.masking import (
    Secrets,
    model_of,
    secrets_in,
)
from openresponses_server.observation.recordings.records import Asked
from openresponses_server.observation.recordings.writer import (
    ExchangeRecorder,
    RecordingPolicy,
    RecordingTarget,
    masked_request,
)
from openresponses_server.tasks import on_thread
from openresponses_server.upstreams.base import (
    DRAIN_SECONDS,
    LOSSES_HEADER,
    DataReceiver,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
)
from openresponses_server.upstreams.catalog import ReportedModel
from openresponses_server.upstreams.connections import FAILURES, Content, HttpResponse, Requests
from openresponses_server.upstreams.dialects import without_password
from openresponses_server.upstreams.refusals import words_of

TIMEOUT: Final = "timeout"
UNREACHABLE: Final = "unreachable"
LOST: Final = "lost"
_LARGE: Final = 64 * 1024  # bytes


class RecordingRequests:
    """Requests that are recorded where `policy` says, those for lists of models excepted. `dialect` is what
    the upstream `name` speaks below `base`; `secrets` are masked beside what its headers carry."""

    def __init__(
        self,
        requests: Requests,
        policy: RecordingPolicy,
        name: str,
        dialect: str,
        base: str,
        secrets: Iterable[str] = (),
    ) -> None:
        self._requests = requests
        self._policy = policy
        self._name = name
        self._dialect = dialect
        self._base = base
        self._secrets = list(secrets)

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], data: bytes = b""
    ) -> HttpResponse:
        target = self._policy.target_for(self._name) if method == "POST" else None
        if target is None:
            return await self._requests.request(method, url, headers=headers, data=data)
        recorder = await self._begin(target, url, headers, data)
        try:
            answer = await self._requests.request(method, url, headers=headers, data=data)
        except FAILURES as error:
            late = isinstance(error, TimeoutError)
            code, reason = (TIMEOUT, "it did not answer in time") if late else (UNREACHABLE, words_of(error))
            recorder.end("failed", code, reason)
            raise
        except asyncio.CancelledError:
            recorder.end("left", reason="nobody waited for the answer")
            raise
        recorder.answer(answer.status, answer.headers)
        return _Recorded(answer, recorder)

    async def _begin(
        self, target: RecordingTarget, url: str, headers: Mapping[str, str], body: bytes
    ) -> ExchangeRecorder:
        asked = Asked(
            0,
            0,
            dialect=self._dialect,
            upstream=self._name,
            address=without_password(self._base) if target.shows_address else "",
            path=url.removeprefix(self._base),
            headers=dict(headers),
            request_id=headers.get("x-request-id", ""),
            run=target.run,
        )
        secrets = Secrets([*self._secrets, *target.secrets, *secrets_in(headers)])
        return await recorder_of(target, secrets, asked, body)

    async def close(self) -> None:
        self._policy.close()
        await self._requests.close()


class _Recorded:
    """An answer whose body is recorded as it is read."""

    def __init__(self, answer: HttpResponse, recorder: ExchangeRecorder) -> None:
        self._answer = answer
        self._recorder = recorder
        self._content = _RecordedContent(answer.content, recorder)
        self.status = answer.status
        self.headers = answer.headers

    @property
    def content(self) -> Content:
        return self._content

    def close(self) -> None:
        self._recorder.end(*self._content.ending)
        self._answer.close()


class _RecordedContent:
    def __init__(self, content: Content, recorder: ExchangeRecorder) -> None:
        self._content = content
        self._recorder = recorder
        self.ending: tuple[Any, ...] = ("left",)
        """How the exchange ends when it is closed now."""

    async def readany(self) -> bytes:
        try:
            data = await self._content.readany()
        except FAILURES as error:
            code = TIMEOUT if isinstance(error, TimeoutError) else LOST
            self.ending = ("cut", code, words_of(error))
            raise
        await self._note(data)
        return data

    def set_exception(self, error: BaseException) -> None:
        self._content.set_exception(error)

    async def _note(self, data: bytes) -> None:
        if data:
            await self._recorder.feed(data)
        else:
            self._recorder.end("finished")


async def recorder_of(
    target: RecordingTarget, secrets: Secrets, asked: Asked, body: bytes
) -> ExchangeRecorder:
    """What records this exchange, with the model that the body names; a large body is masked on a thread, and
    for many secrets any."""

    def shown() -> Asked:
        secrets.make_ready()
        return masked_request(msgspec.structs.replace(asked, model=model_of(body)), body, secrets)

    is_long = len(body) >= _LARGE or secrets.are_many
    return ExchangeRecorder(target.file, secrets, await on_thread(shown, begun=True) if is_long else shown())


# Recording an upstream that is not reached over HTTP, as one that is would have sent it.

_LEFT: Final[tuple[Any, ...]] = ("left",)
_NO_ANSWER = {UpstreamError.TIMEOUT: TIMEOUT, UpstreamError.UNREACHABLE: UNREACHABLE}


class RecordedUpstream:
    """An `Upstream` whose exchanges are recorded where `policy` says; `dialect` is what it speaks."""

    def __init__(self, upstream: Upstream, policy: RecordingPolicy, dialect: str) -> None:
        self._upstream = upstream
        self._policy = policy
        self._dialect = dialect
        self.name = upstream.name
        self.address = upstream.address
        self.clean = upstream.clean
        self.account = upstream.account

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: UpstreamRequest) -> AsyncIterator[UpstreamReply]:
        target = self._policy.target_for(self.name)
        if target is None:
            async with self._upstream.open(request) as reply:
                yield reply
            return
        asked = Asked(
            0,
            0,
            dialect=self._dialect,
            upstream=self.name,
            address=self.address if target.shows_address else "",
            path=request.path,
            request_id=request.request_id,
            run=target.run,
        )
        recorder = await recorder_of(
            target, Secrets([request.client_key, *target.secrets]), asked, request.body
        )
        accepted = False
        ending: tuple[Any, ...] = _LEFT
        try:
            async with self._upstream.open(request) as reply:
                accepted = True
                losses = {LOSSES_HEADER: reply.losses} if reply.losses else {}
                recorder.answer(200, {"content-type": "text/event-stream", **losses})
                recorded = _RecordedReply(reply, recorder)
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
        self._policy.close()
        await self._upstream.close()


class _RecordedReply:
    """An `UpstreamReply`."""

    def __init__(self, reply: UpstreamReply, recorder: ExchangeRecorder) -> None:
        self._reply = reply
        self._recorder = recorder
        self.losses = reply.losses
        self.ending: tuple[Any, ...] = _LEFT

    async def read(self, receive: DataReceiver | None = None) -> bytes:
        try:
            data = await self._reply.read()
        except UpstreamError as error:
            self.ending = ("cut", TIMEOUT if error.code == UpstreamError.TIMEOUT else LOST, error.cause)
            raise
        if data:
            await self._recorder.feed(data)
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
