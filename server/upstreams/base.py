"""The one interface behind which every model stands, and what can go wrong there."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from msgspec import Struct

LOSSES_HEADER: Final = "openresponses-losses"
"""The header of an answer that says what of its request the model behind it could not be asked."""

UNNAMED: Final = "upstream"
"""The name of one that the settings give none."""


def called(name: str) -> str:
    """How messages speak of an upstream: `upstream` and its name, which one without a name doesn't have."""
    return UNNAMED if name == UNNAMED else f"upstream {name}"


class UpstreamRequest(Struct, frozen=True):
    """What goes out: `path` below the upstream's address, `body` in its dialect, which asks for a
    stream. `request_id` is passed on for the logs at both ends. `client_key` is what our client showed,
    for upstreams that it is passed through to."""

    path: str
    body: bytes
    request_id: str
    client_key: str | None = None


class UpstreamReply(Protocol):
    """An accepted request: its status was good and it is an event stream. `losses` is what it says was lost
    of the request on its own way to a model (header `openresponses-losses`), as it came."""

    losses: str

    async def read(self) -> bytes:
        """Whatever has arrived, at least one byte; b"" at the end.

        Raises UpstreamError when the stream is cut or idle for too long.
        """
        ...


class Upstream(Protocol):
    """Where a model is reached."""

    @property
    def name(self) -> str:
        """What it is called, in lists and errors."""
        ...

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        """Send the request; leaving the context early aborts it at the upstream.

        Raises UpstreamError when the upstream can't be reached, refuses, or answers something else.
        """
        ...

    def clean(self, text: str, client_key: str | None = None) -> str:
        """The upstream's text, without the keys that a request with this client's key carries."""
        ...

    async def models(self) -> list[str]:
        """The names of the models that it says it has. Raises UpstreamError when it does not say."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...
