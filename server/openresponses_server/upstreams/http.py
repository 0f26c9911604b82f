"""An upstream behind HTTP."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing, suppress
from copy import copy
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import structlog
from msgspec import Struct

from openresponses_bridge.diagnostics import LOSSES_HEADER
from openresponses_bridge.dialects.base import Framing
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame, encode
from openresponses_server.errors import FailureFacts, UpstreamError, unreadable
from openresponses_server.http.client.body import ResponseBody
from openresponses_server.http.client.failures import cause_of, is_permanent, public_reason
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.flow import BodyReader, Content, Discard, Sink
from openresponses_server.observation.recordings.masking import Secrets
from openresponses_server.settings import Timeouts
from openresponses_server.upstreams.aws_signing import AwsSigner, Sign
from openresponses_server.upstreams.base import (
    DRAIN_SECONDS,
    FAILURES,
    GZIP,
    HttpClient,
    HttpClientFactory,
    HttpResponse,
    UpstreamReply,
    UpstreamRequest,
    called,
    packed,
)
from openresponses_server.upstreams.catalog import ReportedModel, reported_models
from openresponses_server.upstreams.dialects import FORWARDING, HttpDialect, KeyHeader, without_password
from openresponses_server.upstreams.key_command import KeyCommand
from openresponses_server.upstreams.refusals import cleaner, refusal, refused_by, refused_in_band, said_in

_log = structlog.get_logger(__name__)
_IDLE_CHECKS: Final = 4
"""The number of checks within an idle timeout, which may be exceeded by the time between two of them."""


class HttpReply:
    """The body of an accepted request's answer; its failures become UpstreamErrors.

    One timer checks a few times within the idle timeout whether bytes arrived: a timer or a clock reading for
    each read would take a part of the translation's time.
    """

    whole = False

    __slots__ = (
        "_content",
        "_idle",
        "_idle_checks",
        "_loop",
        "_name",
        "_sink",
        "_timer",
        "feed",
        "headers",
        "losses",
        "pause",
        "resume",
    )

    def __init__(self, name: str, answer: HttpResponse, idle: float, losses: str) -> None:
        self.losses = losses
        self.headers = answer.headers
        self._name = name
        content = answer.content
        self._content: Content = content
        self._sink: Sink | None = None
        # the content's and the sink's own methods: one call less for each token
        self.pause, self.resume = content.pause, content.resume
        self.feed: Callable[[bytes], None] = _ignore
        self._idle = idle
        self._idle_checks = 0  # checks since the last bytes
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(idle / _IDLE_CHECKS, self._check_idle)

    def start(self, sink: Sink) -> None:
        self._sink, self.feed, self._idle_checks = sink, sink.feed, 0
        self._content.start(self)

    def end(self, error: Exception | None) -> None:
        """The body has ended."""
        self._timer.cancel()
        # else this object and the sink refer to each other until the next garbage collection
        sink, self._sink, self.feed = self._sink, None, _ignore
        if sink is not None:
            sink.end(None if error is None else self._as_error(error))

    def close(self) -> None:
        """Stop feeding the sink."""
        self._timer.cancel()
        self._sink, self.feed = None, _ignore
        self._content.pause()
        # which refers to this object, and they to each other until the next garbage collection
        self._content = _CLOSED
        self.pause = self.resume = _CLOSED.pause

    def _check_idle(self) -> None:
        """End the body if the upstream sent nothing for too long, time for a slow client not counted."""
        content = self._content
        self._idle_checks = 0 if content.has_received or not content.is_waiting else self._idle_checks + 1
        content.has_received = False
        if self._idle_checks > _IDLE_CHECKS:
            content.end(TimeoutError())
        else:
            self._timer = self._loop.call_later(self._idle / _IDLE_CHECKS, self._check_idle)

    def _as_error(self, error: Exception) -> UpstreamError:
        if isinstance(error, TimeoutError):
            silent = f"the {called(self._name)} went silent"
            return UpstreamError(504, silent, code=UpstreamError.TIMEOUT, cause="it went silent")
        why = public_reason(error)
        lost = f"the connection to the {called(self._name)} was lost: {why}"
        failure = UpstreamError(
            502, lost, code=UpstreamError.DISCONNECTED, cause=f"the connection was lost: {why}"
        )
        failure.__cause__ = error
        return failure


def _ignore(_data: bytes) -> None:
    return None


class _ClosedContent:
    """The rest of the content of a closed reply."""

    has_received = False
    is_waiting = False

    def start(self, sink: Sink) -> None:
        return None

    def pause(self) -> None:
        return None

    def resume(self) -> None:
        return None

    def end(self, error: Exception) -> None:
        return None


_CLOSED: Final = _ClosedContent()


# A whole JSON answer to a request for a stream, as servers and gateways send that can't stream. It becomes a
# stream with a single frame, as its bytes arrive, for the dialect's inbound.

_BOM: Final = b"\xef\xbb\xbf"
_FIELD: Final = b"data: "
_END: Final = b"\n\n"
# in JSON, a line end is white space between tokens, and never within a string
_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
_BEGIN_STREAM: Final = (b"data:", b"event:", b": ")
"""How a stream begins that has the content type of whole JSON."""

Recognises = Callable[[Mapping[str, Any]], bool]


def is_whole_answer(body: bytes, recognises: Recognises) -> bool:
    """Return True if a body is JSON that `recognises` accepts as an answer of its dialect, or an array of the
    chunks of one, as a proxy gives it that leaves out the query."""
    try:
        value = decode_frame(body.removeprefix(_BOM))
    except WireError:
        return False
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and recognises(first)


def _is_stream(body: bytes) -> bool:
    return body.removeprefix(_BOM).lstrip().startswith(_BEGIN_STREAM)


class WholeReply:
    """A whole answer as a stream of one frame, or a stream under a wrong content type as it came."""

    whole = True

    __slots__ = ("_begun", "_is_stream", "_rest", "_sink", "losses")

    def __init__(self, begun: bytes, losses: str, rest: UpstreamReply | None) -> None:
        """`begun`: the bytes that were received; `rest`: the source of the others, None if there are none."""
        self._is_stream = _is_stream(begun)
        self._begun = begun if self._is_stream else _FIELD + begun.removeprefix(_BOM).translate(_ONE_LINE)
        self._rest = rest
        self._sink: Sink | None = None
        self.losses = losses

    def start(self, sink: Sink) -> None:
        self._sink = sink
        sink.feed(self._begun)
        if self._rest is None:
            self.end(None)
        else:
            self._rest.start(self)

    def pause(self) -> None:
        if self._rest is not None:
            self._rest.pause()

    def resume(self) -> None:
        if self._rest is not None:
            self._rest.resume()

    def feed(self, data: bytes) -> None:
        """The next bytes of the answer."""
        if self._sink is not None:
            self._sink.feed(data if self._is_stream else data.translate(_ONE_LINE))

    def end(self, error: Exception | None) -> None:
        """The answer has ended."""
        sink, self._sink = self._sink, None
        if sink is not None:
            if error is None and not self._is_stream:
                sink.feed(_END)
            sink.end(error)


# A stream in a form of its own, as its dialect says. It becomes server-sent events, as its bytes arrive.


class FramedReply:
    """Converts a stream of another format to server-sent events."""

    whole = False

    __slots__ = ("_frames", "_reply", "_sink", "losses", "pause", "resume")

    def __init__(self, reply: HttpReply, framing: Framing) -> None:
        self._reply = reply
        self._frames = framing.reader()
        self._sink: Sink | None = None
        self.losses = reply.losses
        self.pause, self.resume = reply.pause, reply.resume

    def start(self, sink: Sink) -> None:
        self._sink = sink
        self._reply.start(self)

    def feed(self, data: bytes) -> None:
        """The next bytes of the stream."""
        sink = self._sink
        if sink is None:
            return
        try:
            frames = self._frames.feed(data)
        except WireError as error:
            self._sink = None
            sink.end(unreadable(error.message))
            return
        if frames:
            sink.feed(frames)

    def end(self, error: Exception | None) -> None:
        """The stream has ended."""
        sink, self._sink = self._sink, None
        if sink is None:
            return
        try:
            if error is None:
                self._frames.close()
        except WireError as cut:
            error = unreadable(cut.message)
        sink.end(error)


async def _send_signed(
    connections: HttpClient, sign: Sign, url: str, headers: Mapping[str, str], body: bytes
) -> HttpResponse:
    signed = {**headers, **await sign("POST", url, headers, body)}
    return await connections.request("POST", url, headers=signed, data=body)


_MAX_REFUSAL: Final = 64 * 1024  # bytes read of a refusal's body
_MAX_LIST: Final = 8 * 1024 * 1024  # bytes read of a list of models
_MAX_LOOK: Final = 1024 * 1024  # bytes read of an engine's facts: their templates are long
_LIST_SECONDS: Final = 5.0
_LONGEST_TYPE: Final = 200  # characters of a content type
_ACCOUNT_LENGTH: Final = 32  # characters of a hash: enough to distinguish keys, too few to reveal one's hash
_SHOWN_KEY: Final = 4  # characters of a key that operators are shown
_SHORTEST_SHOWN: Final = 16  # characters of such a key
_STREAM_TYPE: Final = "text/event-stream"
# Servers that stream under a wrong content type are accepted; these types mean something else.
_JSON_TYPE: Final = "application/json"
_PAGE_TYPES: Final = ("html", "xml", "script")
_NON_STREAM_TYPES: Final = ("text/html", _JSON_TYPE, "application/xml", "text/xml", "image/")


class UpstreamKey(Struct, frozen=True, kw_only=True):
    """The key that requests to an upstream carry."""

    value: str | None = None
    """The key that is sent in the dialect's header."""
    command: KeyCommand | None = None
    """Prints the key, which is then sent instead of `value`."""
    header: str | None = None
    """The header with the key and nothing else, sent instead of the dialect's header."""
    pass_through: bool = False
    """True if the client's key, if it has one, is sent instead."""
    signer: AwsSigner | None = None
    """Signs the requests, which carry no key then."""
    is_ours: bool = True
    """It is not the client's, so its refusal is not about the client's key."""


class AddressOptions(Struct, frozen=True, kw_only=True):
    """The options of an upstream's address: what requests carry beside their body and key, and how it is
    shown."""

    headers: Mapping[str, str] = MappingProxyType({})
    """The headers that are sent with every request."""
    query: Mapping[str, str] = MappingProxyType({})
    """Parameters of the address of each request."""
    secrets: Sequence[str] = ()
    """The parts of these that errors and logs must not show."""
    shown_as: str | None = None
    """The address for the operator, if it differs from that of the requests."""
    plays: bool = False
    """True for a recording, which has answers of its dialect only."""


_NO_KEY: Final = UpstreamKey()
_PLAIN: Final = AddressOptions()


class HttpUpstream:
    """An upstream at one HTTP address."""

    def __init__(
        self,
        name: str,
        url: str,
        dialect: HttpDialect,
        timeouts: Timeouts,
        key: UpstreamKey = _NO_KEY,
        address: AddressOptions = _PLAIN,
        connect: HttpClientFactory = ConnectionPool,
    ) -> None:
        """`url`: the address in the form of the dialect's own clients. `connect`: makes the HTTP client."""
        self.name = name
        self._base = dialect.address(url)
        self.address = address.shown_as or without_password(self._base)
        self._key_header = dialect.key_header if key.header is None else KeyHeader(key.header.lower())
        self._framing = dialect.endpoint.framing
        self._query = urlencode(address.query)
        self.key_command = key.command
        self.signer = key.signer
        if (
            without_password(self._base) != self._base
            and (key.value or key.pass_through or key.command)
            and self._key_header[0] == "authorization"
        ):
            raise ValueError(
                "a user name in the address and a key are mutually exclusive: both are authorization"
            )
        self.forwards = dialect.dialect.name in FORWARDING and not address.plays
        self._recognises = dialect.side.whole
        self._headers = {**dialect.headers, **address.headers}
        self._timeouts = timeouts
        self._api_key = key.value
        self._pass_through = key.pass_through
        self._key_is_ours = key.is_ours
        self._own_headers = self._with_key(key.value)
        self._secrets = list(address.secrets)
        self._sources = [each for each in (key.command, key.signer) if each is not None]
        self._connect = connect
        self._client: HttpClient | None = None
        self._first: HttpUpstream | None = None  # whose connections it uses

    def with_key(self, api_key: str | None, key_command: KeyCommand | None) -> HttpUpstream:
        """Return this upstream with another key, over the same connections."""
        other = copy(self)
        other._first = self
        other._api_key, other.key_command, other.signer = api_key, key_command, None
        other._own_headers = other._with_key(api_key)
        return other

    def share_secrets(self, others: Sequence[HttpUpstream]) -> None:
        """Remove the keys of all of these from the texts of each, too."""
        everyone = (self, *others)
        keys = [each._api_key for each in everyone if each._api_key is not None]
        sources = [each for one in everyone for each in (one.key_command, one.signer) if each is not None]
        for each in everyone:
            each._secrets = [*dict.fromkeys([*each._secrets, *keys])]
            each._sources = sources

    def key_end(self) -> str:
        """The last four characters of its key; "" if it has none, or a short one."""
        printed = self.key_command.secrets[-1:] if self.key_command is not None else [self._api_key or ""]
        key = printed[0] if printed else ""
        return key[-_SHOWN_KEY:] if len(key) >= _SHORTEST_SHOWN else ""

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        return _ReplyContext(self, request)

    async def ask(
        self, context: _ReplyContext, printed: str | None = None, *, sign: Sign | None = None
    ) -> UpstreamReply:
        """Send the request of this context, which closes the resources that are added to it; return the
        reply. `printed` is the key that the key command printed, if the upstream has one, and `sign` signs
        the request. Raises UpstreamError."""
        request = context.request
        assert request is not None
        try:
            response = await self._send(request, printed, sign)
        except FAILURES as error:
            raise self._failure(error) from error
        try:
            kind = _media_type(response.headers.get("content-type", "")[:_LONGEST_TYPE])
            whole, is_read = None, False
            if request.upload is not None:
                await self._check_forwarded(response, kind, request)
            elif not 200 <= response.status < 300 or _non_stream_type(kind) is not None:
                whole = await self._read_json_body(response, kind, request)
                is_read = isinstance(response.content, ResponseBody) and response.content.is_complete
            losses = response.headers.get(LOSSES_HEADER, "")
            reply = None if is_read else HttpReply(self.name, response, self._timeouts.idle, losses)
        except BaseException:
            response.close()
            raise
        context.answer, context.reply = response, reply
        context.request = None  # its body is not needed any more
        if reply is not None and whole is None:
            framed = self._framing is not None and kind == self._framing.content_type
            return FramedReply(reply, self._framing) if framed and self._framing is not None else reply
        return WholeReply(whole or b"", losses, reply)

    def _send(
        self, request: UpstreamRequest, printed: str | None, sign: Sign | None
    ) -> Awaitable[HttpResponse]:
        headers = self._headers_of(request, printed)
        url = self._address(request.path) if self._query else self._base + request.path
        connections = self._client or self._http_client()
        if sign is not None:
            return _send_signed(connections, sign, url, headers, request.body)
        return connections.request(
            "POST", url, headers=headers, data=request.upload or request.body, session=request.owner
        )

    def prewarm(self, request: UpstreamRequest) -> None:
        # a program is not run for a connection that may not be needed, and a signature is of one request
        printed = None if self.key_command is None else self.key_command.kept_key()
        if self.signer is not None or (self.key_command is not None and printed is None):
            return
        headers = self._headers_of(request, printed)
        self._http_client().prewarm(
            self._address(request.path),
            headers=headers,
            session=request.owner,
            conversation=request.conversation,
        )

    def _headers_of(self, request: UpstreamRequest, printed: str | None) -> dict[str, str]:
        if printed is not None:
            own = self._with_key(printed)
        elif self._pass_through:
            own = self._with_key(self._key_for(request.client_key))
        else:
            own = self._own_headers
        stream_type = _STREAM_TYPE if self._framing is None else self._framing.content_type
        accepted = "*/*" if request.upload is not None else stream_type if request.stream else _JSON_TYPE
        headers = {
            "content-type": _JSON_TYPE if request.upload is None else request.upload.content_type,
            "accept": accepted,
            "x-request-id": request.request_id,
            **own,
        }
        for name in request.headers:
            value = request.headers[name]
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        return headers

    def _address(self, path: str) -> str:
        """Return the URL of a path, which may have a query, with the parameters of each request."""
        separator = "&" if "?" in path else "?"
        return f"{self._base}{path}{separator}{self._query}" if self._query else self._base + path

    def clean(self, text: str, client_key: str | None = None) -> str:
        passed = client_key if self._pass_through else None
        printed = (each for source in self._sources for each in source.secrets)
        return Secrets([self._api_key, passed, *printed, *self._secrets]).out_of(text)

    def account(self, client_key: str | None = None) -> str:
        headers = self._with_key(self._key_for(client_key))
        command: list[Any] = [] if self.key_command is None else [self.key_command.argv]
        command += [] if self.signer is None else [self.signer.account]
        shown = encode([self.name, self._base, sorted(headers.items()), *command])
        return hashlib.sha256(shown).hexdigest()[:_ACCOUNT_LENGTH]

    def _key_for(self, client_key: str | None) -> str | None:
        return client_key or self._api_key if self._pass_through else self._api_key

    def _with_key(self, key: str | None) -> dict[str, str]:
        name, prefix = self._key_header
        return {**self._headers, name: prefix + key} if key else self._headers

    def key_refused(self, client_key: str | None = None) -> str:
        # the upstream's text is for the operator only: it may show a part of the key
        if not self._key_is_ours or (self._pass_through and client_key is not None):
            return ""
        shown = self.key_command or self.signer or self._own_headers.get(self._key_header[0])
        if shown is None and without_password(self._base) == self._base:
            return f"the {called(self.name)} asks for a key, and this server has none for it"
        return f"the {called(self.name)} does not accept this server's key for it"

    async def _check_forwarded(self, response: HttpResponse, kind: str, request: UpstreamRequest) -> None:
        """Raises the upstream's error, and UpstreamError for a web page, which a browser would show as a page
        of this server."""
        if not 200 <= response.status < 300:
            await self._read_json_body(response, kind, request)
        page = next((known for known in _PAGE_TYPES if known in kind), None)
        if page is not None:
            what = f"answered with {page} instead of data"
            raise UpstreamError(
                502,
                f"the {called(self.name)} {what}",
                code=UpstreamError.INVALID_RESPONSE,
                cause=f"it {what}",
                facts=FailureFacts(permanent=True),
            )

    async def _read_json_body(self, response: HttpResponse, kind: str, request: UpstreamRequest) -> bytes:
        """The bytes read of an answer that is whole JSON; `kind` is its content type. Raises the upstream's
        error, which any other answer than a stream is."""
        accepted = 200 <= response.status < 300
        reader, idle = BodyReader(response.content), self._timeouts.idle
        try:
            if accepted:  # it may take long, as long as bytes arrive
                body = await reader.collect(_MAX_REFUSAL, idle)
            else:
                async with asyncio.timeout(idle):
                    body = await reader.collect(_MAX_REFUSAL)
        except FAILURES as error:
            raise self._failure(error) from error
        if not accepted:
            raise refused_by(self, request, response.status, response.headers, body)
        if kind == _JSON_TYPE:
            if len(body) >= _MAX_REFUSAL:
                return body  # no error is that long
            if is_whole_answer(body, self._recognises):
                return body
        meant = refused_in_band(self, request, body)
        if meant is None and _is_stream(body):
            return body
        if body[:2] == GZIP:
            raise packed()
        clean, wrong = cleaner(self, request), _non_stream_type(kind)
        raise meant or UpstreamError(
            502,
            f"the {called(self.name)} answered with {wrong} where an event stream was asked for",
            code=UpstreamError.INVALID_RESPONSE,
            cause=f"it answered with {wrong} where an event stream was asked for",
            facts=FailureFacts(said=said_in(body, clean), permanent=True),
        )

    def _failure(self, error: BaseException) -> UpstreamError:
        if isinstance(error, TimeoutError):
            what = "did not answer in time"
            return UpstreamError(
                504, f"the {called(self.name)} {what}", code=UpstreamError.TIMEOUT, cause=f"it {what}"
            )
        return UpstreamError(
            502,
            f"the {called(self.name)} can't be reached: {public_reason(error)}",
            code=UpstreamError.UNREACHABLE,
            cause=self.clean(cause_of(error)),
            facts=FailureFacts(permanent=is_permanent(error)),
        )

    def _http_client(self) -> HttpClient:
        if self._first is not None:
            return self._first._client or self._first._http_client()
        # not in __init__: they belong to the running event loop
        if self._client is None:
            self._client = self._connect(self.name, self._timeouts)
        return self._client

    async def models(self) -> list[ReportedModel]:
        if self.key_command is None:
            return await self._models(self._api_key)
        return await self.key_command.try_with(self._models)

    async def _models(self, key: str | None) -> list[ReportedModel]:
        try:
            async with asyncio.timeout(self._timeouts.connect + _LIST_SECONDS):
                response = await self._http_client().request(
                    "GET", self._address("/models"), headers=self._with_key(key)
                )
                with closing(response):
                    body = await BodyReader(response.content).collect(_MAX_LIST)
        except FAILURES as error:
            raise self._failure(error) from error
        if response.status != 200:
            raise refusal(
                response.status,
                response.headers,
                body,
                self.clean,
                self.key_refused(),
            )
        return reported_models(body)

    async def look(
        self, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Ask for another path of its host: (status, headers, the beginning of the body). With a `body` it is
        a POST. Raises OSError."""
        root = urlsplit(self._base)._replace(path="", query="").geturl()
        method, data = ("GET", b"") if body is None else ("POST", encode(body))
        headers = {**self._with_key(self._api_key), "content-type": _JSON_TYPE, "accept": _JSON_TYPE}
        async with asyncio.timeout(self._timeouts.connect + _LIST_SECONDS):
            response = await self._http_client().request(method, root + path, headers=headers, data=data)
            with closing(response):
                return (
                    response.status,
                    response.headers,
                    await BodyReader(response.content).collect(_MAX_LOOK),
                )

    async def close(self) -> None:
        for source in (self.key_command, self.signer):
            if source is not None:
                await source.close()
        if self._client is not None:
            await self._client.close()
            self._client = None


class _ReplyContext(Struct, eq=False):
    """The context of one request and its reply. A class, because a generator would take several calls more
    for every request."""

    upstream: HttpUpstream
    request: UpstreamRequest | None
    answer: HttpResponse | None = None
    reply: HttpReply | None = None

    def __aenter__(self) -> Coroutine[Any, Any, UpstreamReply]:
        command, ask = self.upstream.key_command, self.upstream.ask
        if (signer := self.upstream.signer) is not None:
            return signer.try_with(lambda sign: ask(self, sign=sign))
        if command is None:
            return ask(self)
        assert self.request is not None
        return command.try_with(partial(ask, self), again=_can_be_repeated(self.request))

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self.answer is not None
        if self.reply is None:
            self.answer.close()
            return
        self.reply.close()
        content = self.answer.content
        if isinstance(content, ResponseBody) and content.is_complete:
            return  # nothing more arrives of it
        try:
            if kind is None:
                await _drain(content)
        finally:
            self.answer.close()  # an unread body closes the connection as well


def _can_be_repeated(request: UpstreamRequest) -> bool:
    return request.upload is None or request.upload.can_be_repeated


@lru_cache(maxsize=64)
def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


@lru_cache(maxsize=64)
def _non_stream_type(kind: str) -> str | None:
    """The content type if it means something other than a stream."""
    return next((known for known in _NON_STREAM_TYPES if kind.startswith(known)), None)


async def _drain(content: Content) -> None:
    """Wait for the rest after the end of the stream, so that the connection can be reused."""
    rest = Discard()
    content.start(rest)
    with suppress(TimeoutError):  # then the connection is closed, which does no harm
        async with asyncio.timeout(DRAIN_SECONDS):
            await rest.ended.wait()
