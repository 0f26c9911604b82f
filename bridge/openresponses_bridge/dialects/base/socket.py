"""The use of a WebSocket, which some dialects have for several requests in order: which parts of a request
are sent, and what a received message means for it. The connection is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct


class SocketRequest(Struct, frozen=True):
    """A request for HTTP, read in order to send it over a WebSocket."""

    fields: Mapping[str, Any]
    """The fields of the request, without its input and without those that a WebSocket does not have."""
    input: Sequence[Any]
    """The items of the request's input, each as JSON."""
    digests: Sequence[bytes] | None
    """A digest of each item; None if the request can't continue another and can't be continued."""
    conversation: str = ""
    """The request's name for its conversation, or "". Differently named conversations share no connection."""


class Meaning(Enum):
    """What a received message means for the request that was sent last."""

    SKIPPED = auto()
    """It belongs to the connection and means nothing for the request."""
    EVENT = auto()
    """A part of the answer."""
    LAST = auto()
    """The last part of the answer."""
    REFUSED = auto()
    """The request is refused, before any part of an answer."""
    NOT_CONTINUED = auto()
    """The request is refused because the answer that it continues is not known; sent in full it may be
    accepted."""
    EXPIRED = auto()
    """The request is refused because of the connection; on another connection it may be accepted."""


class SocketRefusal(Struct, frozen=True):
    """A refusal, in the form of an answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    """The headers, with names in lower case."""
    body: bytes
    """The body, as JSON."""


class SocketSession(Protocol):
    """The state of one connection, which has one request at a time."""

    refusal: SocketRefusal | None
    """The refusal of the last request, if it was refused."""

    def known(self, request: SocketRequest) -> int:
        """Return the number of items at the beginning of the request's input that the connection already has;
        0 if the request does not continue the last answer."""
        ...

    def message(self, request: SocketRequest, known: int) -> bytes:
        """Return the message for this request, without the `known` first items of its input."""
        ...

    def read(self, message: bytes) -> Meaning:
        """Read a received message. Returns what it means."""
        ...


class SocketFraming(Struct, frozen=True):
    """The entry of a dialect's endpoint for WebSockets, at the same address as its requests."""

    read: Callable[[bytes], SocketRequest | None]
    """Reads the body of a request; None if it can't be sent over a WebSocket."""
    session: Callable[[], SocketSession]
    """Makes the state of a new connection."""
    headers: Mapping[str, str] = MappingProxyType({})
    """The headers of the handshake."""
