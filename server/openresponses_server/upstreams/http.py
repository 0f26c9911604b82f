"""An upstream behind HTTP."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, closing, suppress
from functools import lru_cache, partial
from typing import Final

from openresponses_bridge.protocol.codec import encode
from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.body import Body
from openresponses_server.http.client.failures import cause_of, is_lasting, words_of
from openresponses_server.http.client.pool import Connections
from openresponses_server.http.flow import Discard, Reader, Sink
from openresponses_server.observation.recordings.masking import Secrets
from openresponses_server.settings import Timeouts
from openresponses_server.upstreams.base import (
    DRAIN_SECONDS,
    LOSSES_HEADER,
    UpstreamReply,
    UpstreamRequest,
    called,
)
from openresponses_server.upstreams.catalog import ReportedModel, reported_models
from openresponses_server.upstreams.connections import FAILURES, Connect, HttpResponse, Requests
from openresponses_server.upstreams.dialects import HttpDialect, without_password
from openresponses_server.upstreams.refusals import Clean, in_band_refusal, refusal, said_in
from openresponses_server.upstreams.whole_answers import WholeReply, is_whole_answer

_LOOKS: Final = 4
"""The number of checks within the seconds of a wait; the wait may exceed its limit by one such part."""


class HttpReply:
    """The body of an accepted request; its failures become UpstreamErrors.

    `idle` bounds each wait for bytes. One timer checks that a few times within those seconds: a timer or a
    clock reading for each read would cost a part of the translation's time.
    """

    whole = False

    __slots__ = (
        "_content",
        "_idle",
        "_loop",
        "_name",
        "_quiet",
        "_sink",
        "_timer",
        "feed",
        "losses",
        "pause",
        "resume",
    )

    def __init__(self, name: str, answer: HttpResponse, idle: float, losses: str) -> None:
        self.losses = losses
        self._name = name
        self._content = content = answer.content
        self._sink: Sink | None = None
        # the content's and the sink's own methods: one call less for each token
        self.pause, self.resume = content.pause, content.resume
        self.feed: Callable[[bytes], None] = _ignore
        self._idle = idle
        self._quiet = 0  # checks since the last bytes
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(idle / _LOOKS, self._look)

    def start(self, sink: Sink) -> None:
        self._sink, self.feed, self._quiet = sink, sink.feed, 0
        self._content.start(self)

    def end(self, error: Exception | None) -> None:
        """The body has ended."""
        sink = self._close()
        if sink is not None:
            sink.end(None if error is None else self._as_error(error))

    def close(self) -> None:
        """The sink needs nothing more."""
        self._close()
        self._content.pause()

    def _close(self) -> Sink | None:
        self._timer.cancel()
        # else this object and the sink refer to each other until the next garbage collection
        sink, self._sink, self.feed = self._sink, None, _ignore
        return sink

    def _look(self) -> None:
        """Whether the wait for the upstream took too long; time spent on a slow client does not count."""
        content = self._content
        self._quiet = 0 if content.heard or not content.waits else self._quiet + 1
        content.heard = False
        if self._quiet > _LOOKS:
            content.end(TimeoutError())
        else:
            self._timer = self._loop.call_later(self._idle / _LOOKS, self._look)

    def _as_error(self, error: Exception) -> UpstreamError:
        if isinstance(error, TimeoutError):
            silent = f"the {called(self._name)} went silent"
            return UpstreamError(504, silent, code=UpstreamError.TIMEOUT, cause="it went silent")
        why = words_of(error)
        lost = f"the connection to the {called(self._name)} was lost: {why}"
        failure = UpstreamError(
            502, lost, code=UpstreamError.DISCONNECTED, cause=f"the connection was lost: {why}"
        )
        failure.__cause__ = error
        return failure


def _ignore(_data: bytes) -> None:
    return None


_MAX_REFUSAL: Final = 64 * 1024  # bytes read of a refusal's body
_MAX_LIST: Final = 8 * 1024 * 1024  # bytes read of a list of models
_LIST_SECONDS: Final = 5.0
_LONGEST_TYPE: Final = 200  # characters of a content type
_ACCOUNT_LENGTH: Final = 32  # characters of a hash: enough to distinguish keys, too few to reveal one's hash
_STREAM_TYPE: Final = "text/event-stream"
# Servers that stream under a wrong content type are accepted; these types mean something else.
_JSON_TYPE: Final = "application/json"
_NO_STREAM_TYPES: Final = ("text/html", _JSON_TYPE, "application/xml", "text/xml", "image/")


class HttpUpstream:
    """An upstream at one HTTP address.

    `url` is the address in the form of the dialect's own clients. `api_key` is sent in the dialect's header
    and nowhere else; with `pass_through` the client's key is sent instead, if it has one. `headers` go with
    every request; `secrets` are those parts of them that errors and logs must not show. `connect` makes the
    connections; `shown_as` is the address for the operator, if it differs from that of the requests.
    `key_is_ours`: the key is not the client's, so its refusal is not about the client's key.
    """

    def __init__(
        self,
        name: str,
        url: str,
        dialect: HttpDialect,
        timeouts: Timeouts,
        *,
        api_key: str | None = None,
        pass_through: bool = False,
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        connect: Connect = Connections,
        shown_as: str | None = None,
        key_is_ours: bool = True,
    ) -> None:
        self.name = name
        self._base = dialect.address(url)
        self.address = shown_as or without_password(self._base)
        self._key_header = dialect.key_header
        if (
            without_password(self._base) != self._base
            and (api_key or pass_through)
            and self._key_header[0] == "authorization"
        ):
            raise ValueError(
                "a user name in the address and a key exclude each other: both are authorization"
            )
        self._recognises = dialect.side.whole
        self._headers = {**dialect.headers, **(headers or {})}
        self._timeouts = timeouts
        self._api_key = api_key
        self._pass_through = pass_through
        self._key_is_ours = key_is_ours
        self._own = self._with_key(api_key)
        self._secrets = list(secrets)
        self._connect = connect
        self._connections: Requests | None = None

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        return _Exchange(self, request)

    async def ask(self, request: UpstreamRequest) -> tuple[HttpResponse, HttpReply | None, bytes | None]:
        """Send the request. Returns the answer, which has to be closed; the source of its body, unless the
        body has been read; and the bytes of a whole JSON answer. Raises UpstreamError."""
        try:
            response = await self._sent(request)
        except FAILURES as error:
            raise self._failure(error) from error
        try:
            theirs = not self._key_is_ours or (self._pass_through and request.client_key is not None)
            clean = partial(self.clean, client_key=request.client_key)
            whole = await self._check(response, clean, theirs)
            if whole is not None and isinstance(response.content, Body) and response.content.is_complete:
                return response, None, whole
            return response, HttpReply(self.name, response, self._timeouts.idle, losses_in(response)), whole
        except BaseException:
            response.close()
            raise

    def _sent(self, request: UpstreamRequest) -> Awaitable[HttpResponse]:
        headers = {
            "content-type": "application/json",
            "accept": _STREAM_TYPE if request.stream else _JSON_TYPE,
            "x-request-id": request.request_id,
            **(self._with_key(self._key_for(request.client_key)) if self._pass_through else self._own),
        }
        for name in request.headers:
            value = request.headers[name]
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        url = self._base + request.path
        connections = self._connections or self._connected()
        return connections.request("POST", url, headers=headers, data=request.body)

    def clean(self, text: str, client_key: str | None = None) -> str:
        passed = client_key if self._pass_through else None
        return Secrets([self._api_key, passed, *self._secrets]).out_of(text)

    def account(self, client_key: str | None = None) -> str:
        headers = self._with_key(self._key_for(client_key))
        shown = encode([self.name, self._base, sorted(headers.items())])
        return hashlib.sha256(shown).hexdigest()[:_ACCOUNT_LENGTH]

    def _key_for(self, client_key: str | None) -> str | None:
        return client_key or self._api_key if self._pass_through else self._api_key

    def _with_key(self, key: str | None) -> dict[str, str]:
        name, prefix = self._key_header
        return {**self._headers, name: prefix + key} if key else self._headers

    @property
    def _key_refused(self) -> str:
        """The client's message if the refused key is not its own. The upstream's text is for the operator
        only: it may show a part of the key."""
        shown = self._own.get(self._key_header[0])
        if shown is None and without_password(self._base) == self._base:
            return f"the {called(self.name)} asks for a key, and this server has none for it"
        return f"the {called(self.name)} does not accept this server's key for it"

    async def _check(self, response: HttpResponse, clean: Clean, theirs: bool) -> bytes | None:
        """Raise the upstream's error unless the answer is a stream or whole JSON; returns the bytes read of
        whole JSON. `theirs`: the key is the client's."""
        kind = _kind_of(response.headers.get("content-type", "")[:_LONGEST_TYPE])
        accepted = 200 <= response.status < 300
        wrong = _no_stream(kind)
        if accepted and wrong is None:
            return None
        try:
            # an answer may take long, as long as bytes arrive
            async with asyncio.timeout(None if accepted else self._timeouts.idle):
                body = await Reader(response.content).collect(_MAX_REFUSAL, self._timeouts.idle)
        except FAILURES as error:
            raise self._failure(error) from error
        if not accepted:
            raise refusal(response.status, response.headers, body, clean, "" if theirs else self._key_refused)
        if kind == _JSON_TYPE:
            if len(body) >= _MAX_REFUSAL:
                return body  # no error is that long
            if is_whole_answer(body, self._recognises):
                return body
        meant = in_band_refusal(body, clean)
        raise meant or UpstreamError(
            502,
            f"the {called(self.name)} answered with {wrong} where an event stream was asked for",
            code=UpstreamError.INVALID_RESPONSE,
            cause=f"it answered with {wrong} where an event stream was asked for",
            said=said_in(body, clean),
            lasting=True,
        )

    def _failure(self, error: BaseException) -> UpstreamError:
        if isinstance(error, TimeoutError):
            what = "did not answer in time"
            return UpstreamError(
                504, f"the {called(self.name)} {what}", code=UpstreamError.TIMEOUT, cause=f"it {what}"
            )
        return UpstreamError(
            502,
            f"the {called(self.name)} can't be reached: {words_of(error)}",
            code=UpstreamError.UNREACHABLE,
            cause=self.clean(cause_of(error)),
            lasting=is_lasting(error),
        )

    def _connected(self) -> Requests:
        # not in __init__: they belong to the running event loop
        if self._connections is None:
            self._connections = self._connect(self.name, self._timeouts)
        return self._connections

    async def models(self) -> list[ReportedModel]:
        try:
            async with asyncio.timeout(self._timeouts.connect + _LIST_SECONDS):
                response = await self._connected().request(
                    "GET", f"{self._base}/models", headers=self._with_key(self._api_key)
                )
                with closing(response):
                    body = await Reader(response.content).collect(_MAX_LIST)
        except FAILURES as error:
            raise self._failure(error) from error
        if response.status != 200:
            raise refusal(
                response.status,
                response.headers,
                body,
                self.clean,
                self._key_refused if self._key_is_ours else "",
            )
        return reported_models(body)

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.close()
            self._connections = None


class _Exchange:
    """One request and its answer, within a context. A class, since every request uses one and a generator
    costs several calls more."""

    __slots__ = ("_answer", "_reply", "_request", "_upstream")
    _answer: HttpResponse
    _reply: HttpReply | None

    def __init__(self, upstream: HttpUpstream, request: UpstreamRequest) -> None:
        self._upstream = upstream
        self._request = request

    async def __aenter__(self) -> UpstreamReply:
        self._answer, reply, whole = await self._upstream.ask(self._request)
        del self._request  # its body is not needed any more
        self._reply = reply
        if reply is not None and whole is None:
            return reply
        return WholeReply(whole or b"", losses_in(self._answer), reply)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._reply is None:
            self._answer.close()
            return
        self._reply.close()
        try:
            if kind is None:
                await _drain(self._answer)
        finally:
            self._answer.close()  # an unread body closes the connection as well


@lru_cache(maxsize=64)
def _kind_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


@lru_cache(maxsize=64)
def _no_stream(kind: str) -> str | None:
    """The content type if it means something other than a stream."""
    return next((known for known in _NO_STREAM_TYPES if kind.startswith(known)), None)


def losses_in(answer: HttpResponse) -> str:
    """The losses that the upstream reports."""
    return answer.headers.get(LOSSES_HEADER, "")


async def _drain(response: HttpResponse) -> None:
    """Wait for the rest after the end of the stream, so that the connection can be reused."""
    content = response.content
    if isinstance(content, Body) and content.is_complete:
        return
    rest = Discard()
    content.start(rest)
    with suppress(TimeoutError):  # then the connection is closed, which does no harm
        async with asyncio.timeout(DRAIN_SECONDS):
            await rest.ended.wait()
