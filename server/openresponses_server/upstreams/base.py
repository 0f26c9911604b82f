"""The one interface behind which every model stands, and what can go wrong there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Final, Protocol

from msgspec import Struct

from openresponses_server.upstreams.catalog import ReportedModel

LOSSES_HEADER: Final = "openresponses-losses"
"""The header of an answer that says what of its request the model behind it could not be asked."""

DRAIN_SECONDS: Final = 0.2
"""How long what follows a stream's end is waited for."""

CONVERSATION_HEADER: Final = "openresponses-conversation"
"""The header of a request by which a client names its conversation, for upstreams that keep some."""
_LONGEST_CONVERSATION: Final = 200  # characters

UNNAMED: Final = "upstream"
"""The name of one that the settings give none."""


def called(name: str) -> str:
    """How messages speak of an upstream: `upstream` and its name, which one without a name doesn't have."""
    return UNNAMED if name == UNNAMED else f"upstream {name}"


def conversation_of(headers: Mapping[str, str]) -> str:
    """What a client calls its conversation; empty when it does not say."""
    if CONVERSATION_HEADER not in headers:
        return ""
    return headers[CONVERSATION_HEADER][:_LONGEST_CONVERSATION]


class UpstreamRequest(Struct, frozen=True):
    """What goes out: `path` below the upstream's address, `body` in its dialect, which asks for a
    stream, or without `stream` for a whole answer.

    `request_id` is passed on for the logs at both ends. `client_key` is what our client showed,
    for upstreams that it is passed through to. `headers` go out beside the upstream's own; one that both have
    holds both, with a comma between. `owner` is whose request it is, `conversation` what the client calls its
    conversation, if anything: for upstreams that keep conversations themselves."""

    path: str
    body: bytes
    request_id: str
    client_key: str | None = None
    stream: bool = True
    headers: Mapping[str, str] = MappingProxyType({})
    owner: str = ""
    conversation: str = ""


Resume = Callable[[bool], None]
"""Called with whether more may come."""

Take = Callable[[bytes, Resume], bool | None]
"""Gets what comes, in the event loop's own callback; whether more may come to it, or None when it says that
later. When it wants no more, the rest is for the next read."""


class UpstreamReply(Protocol):
    """An accepted request: its status was good and it is an event stream. `losses` is what it says was lost
    of the request on its own way to a model (header `openresponses-losses`), as it came."""

    losses: str

    async def read(self, take: Take | None = None) -> bytes:
        """Whatever has arrived, at least one byte; b"" at the end. While it waits it may give what comes to
        `take` instead, and then returns b"" when that wants no more.

        Raises UpstreamError when the stream is cut or idle for too long.
        """
        ...


class Upstream(Protocol):
    """Where a model is reached."""

    @property
    def name(self) -> str:
        """What it is called, in lists and errors."""
        ...

    @property
    def address(self) -> str:
        """Where it is, for its operator: without keys, passwords and what a client wrote."""
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
        """A digest of its address and of the credentials that a request with this client's key carries: what
        it keeps can be found again under the same ones only."""
        ...

    async def models(self) -> list[ReportedModel]:
        """The models that it says it has, and what it says of them. Raises UpstreamError when it does not
        say."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...
