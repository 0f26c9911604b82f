"""The interface of everything that responses come from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Final, Protocol

from msgspec import Struct

from openresponses_server.http.flow import Source
from openresponses_server.upstreams.catalog import ReportedModel

LOSSES_HEADER: Final = "openresponses-losses"
"""The header of an answer that lists what its request lost on the way to the model."""

DRAIN_SECONDS: Final = 0.2
"""How long to wait for the bytes after a stream's end."""

CONVERSATION_HEADER: Final = "openresponses-conversation"
"""The header of a request with the client's name for its conversation, for upstreams that keep
conversations."""
_LONGEST_CONVERSATION: Final = 200  # characters

UNNAMED: Final = "upstream"
"""The name of an upstream that has none in the settings."""


def called(name: str) -> str:
    """The upstream in messages: `upstream` and its name, if it has one."""
    return UNNAMED if name == UNNAMED else f"upstream {name}"


def conversation_of(headers: Mapping[str, str]) -> str:
    """The client's name for its conversation; empty if it gives none."""
    if CONVERSATION_HEADER not in headers:
        return ""
    return headers[CONVERSATION_HEADER][:_LONGEST_CONVERSATION]


class UpstreamRequest(Struct, frozen=True):
    """A request to an upstream."""

    path: str
    """Below the upstream's address."""
    body: bytes
    """JSON in the upstream's dialect."""
    request_id: str
    """For the logs at both ends."""
    client_key: str | None = None
    """The key that the client showed, for an upstream with `pass_through`."""
    stream: bool = True
    """The body asks for a stream, not for a whole answer."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Sent beside the upstream's own; the values of a header that both have are joined by a comma."""
    owner: str = ""
    conversation: str = ""
    """The client's name for its conversation, or "": for upstreams that keep conversations."""


class UpstreamReply(Source, Protocol):
    """The answer to an accepted request: its status was good and it is an event stream. It ends with an
    UpstreamError when it is cut or silent for too long."""

    losses: str
    """What the upstream says was lost of the request on its own way to a model (header
    `openresponses-losses`), as it came."""
    whole: bool
    """It is one frame, which ends with the answer."""


class Upstream(Protocol):
    """Something that answers requests with responses of a model."""

    @property
    def name(self) -> str:
        """Its name in lists and errors."""
        ...

    @property
    def address(self) -> str:
        """Its address for the operator, without keys, passwords or anything that a client wrote."""
        ...

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        """Send the request; leaving the context early aborts it at the upstream.

        Raises UpstreamError when the upstream can't be reached, refuses, or answers something else.
        """
        ...

    def clean(self, text: str, client_key: str | None = None) -> str:
        """The upstream's text, without the keys that a request with this client's key carries."""
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
    """An `Upstream` around another one, `inner`: it is that one but for what a subclass does otherwise."""

    def __init__(self, inner: Upstream) -> None:
        self.inner = inner
        self.name, self.address = inner.name, inner.address

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        return self.inner.open(request)

    def clean(self, text: str, client_key: str | None = None) -> str:
        return self.inner.clean(text, client_key)

    def account(self, client_key: str | None = None) -> str:
        return self.inner.account(client_key)

    async def models(self) -> list[ReportedModel]:
        return await self.inner.models()

    async def close(self) -> None:
        await self.inner.close()
