"""The interfaces of upstreams, whatever makes responses, and of the HTTP client that they ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Final, Protocol

from msgspec import Struct

from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.upload import Upload
from openresponses_server.http.flow import Content, Source
from openresponses_server.settings import Timeouts
from openresponses_server.upstreams.catalog import ReportedModel

DRAIN_SECONDS: Final = 0.2
"""Seconds to wait for the bytes after a stream's end."""

CONVERSATION_HEADER: Final = "openresponses-conversation"
"""The header of a request with the client's name for its conversation, for upstreams that keep
conversations."""

GZIP: Final = b"\x1f\x8b"
"""The first bytes of data that is compressed with gzip."""

UNNAMED: Final = "upstream"
"""The name of an upstream without a name in the settings."""


def called(name: str) -> str:
    """The upstream's name in messages: `upstream` and its name, if it has one."""
    return UNNAMED if name == UNNAMED else f"upstream {name}"


def packed() -> UpstreamError:
    """The failure of an answer that is compressed but has no header that says so."""
    what = "the upstream answered with gzip and no content-encoding that says so"
    return UpstreamError(502, what, code=UpstreamError.INVALID_RESPONSE, cause=what)


class UpstreamRequest(Struct, frozen=True):
    """A request to an upstream."""

    path: str
    """Relative to the upstream's address."""
    body: bytes
    """JSON in the upstream's dialect."""
    request_id: str
    """For the logs at both ends."""
    client_key: str | None = None
    """The client's key, for an upstream with `pass_through`."""
    stream: bool = True
    """True if the body asks for a stream, not for a whole answer."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Sent with the upstream's own headers; if both have a header, its values are joined by a comma."""
    owner: str = ""
    conversation: str = ""
    """The client's name for its conversation, or "": for upstreams that keep conversations."""
    clean: Callable[[str], str] = str
    """Removes from an error's text the secrets that the client gave for the upstream only."""
    dialect: str = ""
    """The dialect of `body`."""
    upload: Upload | None = None
    """Sent instead of `body`, as it is. Its answer is given as it is too, for an upstream that `forwards`."""
    operation: str = "chat"
    """What the request is for, in OpenTelemetry's names."""
    model: str = ""
    """The model that it is for."""


class UpstreamReply(Source, Protocol):
    """The answer to an accepted request: an event stream with a good status. It ends with an UpstreamError if
    it is cut or silent for too long."""

    losses: str
    """The losses that the upstream itself reports (header `openresponses-losses`), unchanged."""
    whole: bool
    """True if the answer is a single frame."""


class ForwardedReply(UpstreamReply, Protocol):
    """The answer to an upload: a body of any type."""

    headers: Mapping[str, str]
    """With names in lower case."""


class Upstream(Protocol):
    """Answers requests with responses of a model."""

    @property
    def name(self) -> str:
        """The upstream's name in lists and errors."""
        ...

    @property
    def address(self) -> str:
        """The upstream's address for the operator, without keys, passwords or text from clients."""
        ...

    @property
    def forwards(self) -> bool:
        """True if the upstream has the other endpoints of OpenAI's API, so that uploads can be sent to it."""
        ...

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        """Send the request; leaving the context early aborts it at the upstream. Raises UpstreamError if the
        upstream can't be reached, refuses, or sends an unexpected answer."""
        ...

    def prewarm(self, request: UpstreamRequest) -> None:
        """Begin to open the connection that such a request needs, if one can be opened ahead. Nothing waits
        for it. The request has no body yet; its `conversation` is the name that the body will have for it."""
        ...

    def clean(self, text: str, client_key: str | None = None) -> str:
        """The upstream's text, without the keys that a request with this client's key contains."""
        ...

    def key_refused(self, client_key: str | None = None) -> str:
        """The message to a client if the upstream refuses the key of a request with this client's key; "" if
        that is the client's own, or there is none."""
        ...

    def account(self, client_key: str | None = None) -> str:
        """A digest of its address and of the credentials of a request with this client's key: a response that
        the upstream stores can only be found with the same ones."""
        ...

    async def models(self) -> list[ReportedModel]:
        """The models that it lists. Raises UpstreamError if it lists none."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class UpstreamWrapper:
    """An `Upstream` around another one, `inner`; subclasses override what they change."""

    def __init__(self, inner: Upstream) -> None:
        self.inner = inner
        self.name, self.address, self.forwards = inner.name, inner.address, inner.forwards

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        return self.inner.open(request)

    def prewarm(self, request: UpstreamRequest) -> None:
        self.inner.prewarm(request)

    def clean(self, text: str, client_key: str | None = None) -> str:
        return self.inner.clean(text, client_key)

    def key_refused(self, client_key: str | None = None) -> str:
        return self.inner.key_refused(client_key)

    def account(self, client_key: str | None = None) -> str:
        return self.inner.account(client_key)

    async def models(self) -> list[ReportedModel]:
        return await self.inner.models()

    async def close(self) -> None:
        await self.inner.close()


FAILURES: Final = (OSError,)
"""The exceptions of requests and of reading their answers."""


class HttpResponse(Protocol):
    """An answer whose head was received."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """With names in lower case."""
        ...

    @property
    def content(self) -> Content: ...

    def close(self) -> None: ...


class HttpClient(Protocol):
    """Makes the requests of one upstream."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        data: bytes | Upload = b"",
        session: str = "",
    ) -> HttpResponse:
        """Send a request; returns when the head of the answer was received. Redirects are not followed.
        Requests of different `session`s share nothing that the server keeps for a connection.
        Raises OSError; TimeoutError if the head takes too long; and what reading an `Upload` raises."""
        ...

    def prewarm(
        self, url: str, *, headers: Mapping[str, str], session: str = "", conversation: str = ""
    ) -> None:
        """Begin to open a connection for a streamed request with these arguments, where requests go over
        WebSockets, none is free for it and the limits allow one. `conversation` is what the request calls its
        conversation. Nothing waits for the connection, and a failure changes no more than which way the
        request goes."""
        ...

    async def close(self) -> None: ...


class SocketCounts:
    """Counts what becomes of the requests to an upstream that has WebSockets."""

    def __init__(self) -> None:
        self.observe: Callable[[str], None] = _ignore
        """Is called with the way of each request: `continued`, as the difference to the last one, `whole`, or
        `http` if it goes over HTTP instead."""
        self.observe_prewarmed: Callable[[str], None] = _ignore
        """Is called with what becomes of each connection that is to be opened ahead: `used` by a request,
        `unused` when it ends without one, `refused` by the upstream, or `limited` if it is not opened."""
        self.open = 0
        """Open connections."""


def _ignore(_label: str) -> None:
    return None


HttpClientFactory = Callable[[str, Timeouts], HttpClient]
"""Makes the client of an upstream from its name and timeouts."""
