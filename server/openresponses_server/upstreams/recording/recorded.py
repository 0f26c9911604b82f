"""Records the exchanges with an upstream over HTTP: sits between the upstream and its connections and changes
nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import msgspec

from openresponses_bridge.diagnostics import LOSSES_HEADER
from openresponses_server.errors import UpstreamError, error_body
from openresponses_server.http.client.failures import public_reason
from openresponses_server.http.client.upload import Upload
from openresponses_server.http.flow import Content, Discard, Sink, Source
from openresponses_server.observation.recordings.masking import (
    MOST_SECRETS,
    Secrets,
    hidden_in_body,
    model_of,
    searched,
    secrets_in,
)
from openresponses_server.observation.recordings.records import RecordedRequest
from openresponses_server.observation.recordings.writer import (
    ExchangeRecorder,
    RecordingPolicy,
    RecordingTarget,
    masked_request,
)
from openresponses_server.tasks import on_thread
from openresponses_server.upstreams.base import (
    DRAIN_SECONDS,
    FAILURES,
    HttpClient,
    HttpResponse,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    UpstreamWrapper,
)
from openresponses_server.upstreams.dialects import without_password

TIMEOUT: Final = "timeout"
UNREACHABLE: Final = "unreachable"
LOST: Final = "lost"
_LARGE: Final = 64 * 1024  # bytes
_LEFT: Final[tuple[Any, ...]] = ("left",)


class RecordingRequests:
    """Records requests where `policy` says, except those for lists of models and uploads, whose bodies are of
    no dialect. `dialect` is what the upstream `name` speaks below `base`; `secrets` are masked in addition to
    those in its headers."""

    def __init__(
        self,
        requests: HttpClient,
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
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        data: bytes | Upload = b"",
        session: str = "",
    ) -> HttpResponse:
        target = None if isinstance(data, Upload) or method != "POST" else self._policy.target_for(self._name)
        if target is None or isinstance(data, Upload):
            return await self._requests.request(method, url, headers=headers, data=data, session=session)
        recorder = await self._begin(target, url, headers, data)
        try:
            answer = await self._requests.request(method, url, headers=headers, data=data, session=session)
        except FAILURES as error:
            if isinstance(error, TimeoutError):
                recorder.end("failed", TIMEOUT, "it did not answer in time")
            else:
                recorder.end("failed", UNREACHABLE, public_reason(error))
            raise
        except asyncio.CancelledError:
            recorder.end("left", reason="nobody waited for the answer")
            raise
        recorder.answer(answer.status, answer.headers)
        return _Recorded(answer, recorder)

    async def _begin(
        self, target: RecordingTarget, url: str, headers: Mapping[str, str], body: bytes
    ) -> ExchangeRecorder:
        recorded_request = RecordedRequest(
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
        secrets = [*self._secrets, *target.secrets, *secrets_in(headers)]
        return await recorder_of(target, secrets, recorded_request, body)

    def prewarm(
        self, url: str, *, headers: Mapping[str, str], session: str = "", conversation: str = ""
    ) -> None:
        self._requests.prewarm(url, headers=headers, session=session, conversation=conversation)

    async def close(self) -> None:
        self._policy.close()
        await self._requests.close()


class _Recorded:
    """An answer whose body is recorded as it arrives."""

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


class _RecordedSource:
    """Records the data between a source and its sink. `cut` returns the recorded end of an exchange whose
    answer ends with an error."""

    whole = False

    def __init__(
        self, source: Source, recorder: ExchangeRecorder, cut: Callable[[Exception], tuple[Any, ...]]
    ) -> None:
        self._source = source
        self._recorder = recorder
        self._cut = cut
        self._sink: Sink | None = None
        self.pause, self.resume = source.pause, source.resume
        self.ending: tuple[Any, ...] = _LEFT
        """The end to record if the exchange is closed now."""

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self._source.start(self)

    def feed(self, data: bytes) -> None:
        self._recorder.chunk(data)
        if self._sink is not None:
            self._sink.feed(data)

    def end(self, error: Exception | None) -> None:
        if error is None:
            self.ending = ("finished",)
        else:
            self.ending = self._cut(error)
        if self._sink is not None:
            self._sink.end(error)


class _RecordedContent(_RecordedSource):
    def __init__(self, content: Content, recorder: ExchangeRecorder) -> None:
        super().__init__(content, recorder, _cut_connection)
        self._content = content

    @property
    def has_received(self) -> bool:
        return self._content.has_received

    @has_received.setter
    def has_received(self, has_received: bool) -> None:
        self._content.has_received = has_received

    @property
    def is_waiting(self) -> bool:
        return self._content.is_waiting


def _cut_connection(error: Exception) -> tuple[Any, ...]:
    return ("cut", TIMEOUT if isinstance(error, TimeoutError) else LOST, public_reason(error))


async def recorder_of(
    target: RecordingTarget, known: Sequence[str | None], recorded_request: RecordedRequest, body: bytes
) -> ExchangeRecorder:
    """The recorder of this exchange, with the model in the body. The `known` secrets and those in the body
    are masked, of the latter as many as are `searched`; a thread masks a large body, or any body if there are
    many secrets."""

    def found() -> Secrets:
        return Secrets([*known, *searched(hidden_in_body(body, MOST_SECRETS))])

    def shown(secrets: Secrets) -> RecordedRequest:
        secrets.make_ready()
        return masked_request(msgspec.structs.replace(recorded_request, model=model_of(body)), body, secrets)

    is_long = len(body) >= _LARGE
    secrets = await on_thread(found, begun=True) if is_long else found()
    is_long = is_long or secrets.are_many
    masked = await on_thread(partial(shown, secrets), begun=True) if is_long else shown(secrets)
    return ExchangeRecorder(target.file, secrets, masked)


_NO_ANSWER = {UpstreamError.TIMEOUT: TIMEOUT, UpstreamError.UNREACHABLE: UNREACHABLE}


class RecordedUpstream(UpstreamWrapper):
    """An `Upstream` that is not reached over HTTP, whose exchanges are recorded, as HTTP would have carried
    them, where `policy` says; `dialect` is what it speaks."""

    def __init__(self, upstream: Upstream, policy: RecordingPolicy, dialect: str) -> None:
        super().__init__(upstream)
        self._policy = policy
        self._dialect = dialect

    @asynccontextmanager
    async def open(self, request: UpstreamRequest) -> AsyncIterator[UpstreamReply]:
        target = self._policy.target_for(self.name)
        if target is None:
            async with self.inner.open(request) as reply:
                yield reply
            return
        recorded_request = RecordedRequest(
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
            target, [request.client_key, *target.secrets], recorded_request, request.body
        )
        accepted = False
        ending: tuple[Any, ...] = _LEFT
        try:
            async with self.inner.open(request) as reply:
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

    async def close(self) -> None:
        self._policy.close()
        await super().close()


class _RecordedReply(_RecordedSource):
    """An `UpstreamReply`."""

    def __init__(self, reply: UpstreamReply, recorder: ExchangeRecorder) -> None:
        super().__init__(reply, recorder, _cut_reply)
        self.losses, self.whole = reply.losses, reply.whole

    async def drain(self) -> None:
        """Wait for the rest after the end of the stream, as an upstream over HTTP does, to record that
        nothing more came."""
        if self.ending == _LEFT:
            rest = Discard()
            self.start(rest)
            with suppress(TimeoutError):  # its client had everything it wanted
                async with asyncio.timeout(DRAIN_SECONDS):
                    await rest.ended.wait()


def _cut_reply(error: Exception) -> tuple[Any, ...]:
    late = isinstance(error, UpstreamError) and error.code == UpstreamError.TIMEOUT
    return ("cut", TIMEOUT if late else LOST, error.cause if isinstance(error, UpstreamError) else "")


def _refused(recorder: ExchangeRecorder, error: UpstreamError) -> tuple[Any, ...]:
    """Record a refusal; returns the end of the exchange."""
    if error.code in _NO_ANSWER:
        return ("failed", _NO_ANSWER[error.code], error.cause)
    recorder.answer(error.http_status, {"content-type": "application/json", **error.headers})
    recorder.chunk(error_body(error))
    return ("finished",)
