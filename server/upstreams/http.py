"""An upstream behind HTTP, through aiohttp: it costs a quarter of httpx's CPU per chunk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final

import aiohttp

from bridge.errors import WireError
from bridge.protocol.codec import decode_json
from server.errors import UpstreamError
from server.settings import Timeouts
from server.upstreams.base import LOSSES_HEADER, UpstreamReply, UpstreamRequest, called
from server.upstreams.connections import Connections
from server.upstreams.dialects import HttpDialect
from server.upstreams.refusals import Clean, in_band_refusal, refusal
from server.upstreams.secrets import Secrets
from server.upstreams.whole_answers import WholeReply, is_whole_answer

_MAX_REFUSAL: Final = 64 * 1024  # bytes read of a refusal's body
_MAX_LIST: Final = 8 * 1024 * 1024  # bytes read of a list of models
_LIST_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 0.2
_STREAM_TYPE: Final = "text/event-stream"
# Servers that stream under a wrong name are believed; these say that it is something else.
_JSON_TYPE: Final = "application/json"
_NO_STREAM_TYPES: Final = ("text/html", _JSON_TYPE, "application/xml", "text/xml", "image/")
_FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError)


class HttpUpstream:
    """One address, which `url` names as the dialect's own clients take it. `api_key` goes out in the
    dialect's header and is never sent anywhere else; with `pass_through` the client's own goes out
    instead, where it has shown one. `headers` go with every request; `secrets` are the parts of them that
    errors and logs must not show."""

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
    ) -> None:
        self.name = name
        self._base = dialect.address(url)
        self._key_header = dialect.key_header
        self._recognises = dialect.side.whole
        self._headers = {**dialect.headers, **(headers or {})}
        self._timeouts = timeouts
        self._api_key = api_key
        self._pass_through = pass_through
        self._secrets = list(secrets)
        self._connections: Connections | None = None

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: UpstreamRequest) -> AsyncIterator[UpstreamReply]:
        response = await self._send(request)
        try:
            whole = await self._check(response, partial(self.clean, client_key=request.client_key))
            losses = response.headers.get(LOSSES_HEADER, "")
            reply = _HttpReply(self.name, response.content, self._timeouts.idle, losses)
            try:
                yield reply if whole is None else WholeReply(whole, reply)
            finally:
                reply.close()
            await _drain(response)
        finally:
            response.close()  # a body that was not read to its end closes the connection with it

    async def _send(self, request: UpstreamRequest) -> aiohttp.ClientResponse:
        headers = {
            "content-type": "application/json",
            "accept": _STREAM_TYPE,
            "x-request-id": request.request_id,
            **self._with_key(self._key_for(request)),
        }
        try:
            async with asyncio.timeout(self._timeouts.connect + self._timeouts.first_byte):
                return await self._connected().request(
                    "POST",
                    self._base + request.path,
                    data=request.body,
                    headers=headers,
                    allow_redirects=False,
                )
        except _FAILURES as error:
            raise self._failure(error) from error

    def clean(self, text: str, client_key: str | None = None) -> str:
        passed = client_key if self._pass_through else None
        return Secrets([self._api_key, passed, *self._secrets]).out_of(text)

    def _key_for(self, request: UpstreamRequest) -> str | None:
        return request.client_key or self._api_key if self._pass_through else self._api_key

    def _with_key(self, key: str | None) -> dict[str, str]:
        name, prefix = self._key_header
        return {**self._headers, name: prefix + key} if key else self._headers

    async def _check(self, response: aiohttp.ClientResponse, clean: Clean) -> bytes | None:
        """Raise what the upstream means when it answers with anything but an answer: a stream, or what has
        been read of a whole one in JSON, which is returned."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        accepted = 200 <= response.status < 300
        wrong = next((known for known in _NO_STREAM_TYPES if kind.startswith(known)), None)
        if accepted and wrong is None:
            return None
        try:
            # an answer may take its time, as long as something comes
            async with asyncio.timeout(None if accepted else self._timeouts.idle):
                body = await _read_up_to(response, _MAX_REFUSAL, self._timeouts.idle)
        except _FAILURES as error:
            raise self._failure(error) from error
        if not accepted:
            raise refusal(response.status, response.headers, body, clean)
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
        )

    def _failure(self, error: BaseException) -> UpstreamError:
        if isinstance(error, TimeoutError):
            return UpstreamError(
                504, f"the {called(self.name)} did not answer in time", code=UpstreamError.TIMEOUT
            )
        return UpstreamError(
            502,
            f"the {called(self.name)} can't be reached ({type(error).__name__})",
            code=UpstreamError.UNREACHABLE,
        )

    def _connected(self) -> Connections:
        # made here and not in __init__: they belong to the event loop that runs
        if self._connections is None:
            self._connections = Connections(self.name, self._timeouts)
        return self._connections

    async def models(self) -> list[str]:
        try:
            async with asyncio.timeout(self._timeouts.connect + _LIST_SECONDS):
                response = await self._connected().request(
                    "GET",
                    f"{self._base}/models",
                    headers=self._with_key(self._api_key),
                    allow_redirects=False,
                )
                async with response:
                    body = await _read_up_to(response, _MAX_LIST)
        except _FAILURES as error:
            raise self._failure(error) from error
        if response.status != 200:
            raise refusal(response.status, response.headers, body, self.clean)
        return _names(body)

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.close()
            self._connections = None


class _HttpReply:
    """The body of an accepted request. What came before a cut is given before the cut is raised.

    `idle` bounds each wait for bytes. One timer looks after that, and it is set again when it goes off
    and not at each read: on uvloop a timer per read costs more than the translation.
    """

    __slots__ = ("_content", "_failure", "_idle", "_loop", "_name", "_timer", "_waiting_since", "losses")

    def __init__(self, name: str, content: aiohttp.StreamReader, idle: float, losses: str) -> None:
        self.losses = losses
        self._name = name
        self._content = content
        self._idle = idle
        self._failure: UpstreamError | None = None
        self._waiting_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(idle, self._look)

    async def read(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        self._waiting_since = self._loop.time()
        try:
            return await self._content.readany()
        except _FAILURES as error:
            self._failure = self._as_error(error)
            if rest := _left_over(self._content):
                return rest
            raise self._failure from error
        finally:
            self._waiting_since = None

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        """Whether the upstream has been waited for too long; time spent on a slow client does not count."""
        now = self._loop.time()
        waited = 0.0 if self._waiting_since is None else now - self._waiting_since
        if waited >= self._idle:
            self._content.set_exception(TimeoutError())
        else:
            self._timer = self._loop.call_later(self._idle - waited, self._look)

    def _as_error(self, error: BaseException) -> UpstreamError:
        if isinstance(error, TimeoutError):
            return UpstreamError(504, f"the {called(self._name)} went silent", code=UpstreamError.TIMEOUT)
        lost = f"the connection to the {called(self._name)} was lost ({type(error).__name__})"
        return UpstreamError(502, lost, code=UpstreamError.DISCONNECTED)


def _left_over(content: aiohttp.StreamReader) -> bytes:
    """What had arrived when the connection broke: aiohttp keeps it but raises first."""
    content.set_exception(None)  # type: ignore[arg-type]
    return content.read_nowait()


def _names(body: bytes) -> list[str]:
    """The ids in a list of models, in any known layout; empty for anything else."""
    try:
        listed: Any = decode_json(body)
    except WireError:
        return []
    entries = listed.get("data") or listed.get("models") if isinstance(listed, dict) else listed
    if not isinstance(entries, list):
        return []
    found = [each.get("id") or each.get("name") for each in entries if isinstance(each, dict)]
    return [str(name) for name in found if name]


async def _read_up_to(response: aiohttp.ClientResponse, limit: int, idle: float | None = None) -> bytes:
    """The body, or what comes until there are at least `limit` bytes of it; `idle` bounds each wait."""
    chunks, size = [], 0
    while size < limit:
        async with asyncio.timeout(idle):
            chunk = await response.content.readany()
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read what is left when the stream has said its end, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await response.content.readany():
                pass
    except _FAILURES:
        return  # it is closed then, which does no harm
