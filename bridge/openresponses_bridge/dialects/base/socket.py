"""How a dialect is spoken over a WebSocket, which it has for several requests in order: what of a request is
sent, and what a received message means for it. The connection is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct


class SocketRequest(Struct, frozen=True):
    """A request as it would be sent over HTTP, read for a WebSocket."""

    fields: Mapping[str, Any]
    """Its fields, without the input and without those that a WebSocket does not have."""
    input: Sequence[Any]
    """The items of its input, each as JSON."""
    digests: Sequence[bytes] | None
    """A digest of what each item says; None if the request can't continue another and can't be continued."""
    conversation: str = ""
    """What the request calls its conversation, or "": a new connection for each is not needed then."""


class Meaning(Enum):
    """What a received message means for the request that was sent last."""

    SKIPPED = auto()
    """Nothing: it belongs to the connection."""
    EVENT = auto()
    """A part of the answer."""
    LAST = auto()
    """The last part of the answer."""
    REFUSED = auto()
    """The request is refused, before any part of an answer."""
    NOT_CONTINUED = auto()
    """The request is refused because what it continues is not known; sent whole it may be accepted."""
    EXPIRED = auto()
    """The request is refused because of the connection; on another one it may be accepted."""


class SocketRefusal(Struct, frozen=True):
    """A refusal, as an answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    """With names in lower case."""
    body: bytes
    """JSON."""


class SocketSession(Protocol):
    """What one connection knows. It has one request at a time."""

    refusal: SocketRefusal | None
    """That of the last request, if its meaning was a refusal."""

    def known(self, request: SocketRequest) -> int:
        """The number of items at the beginning of the request's input that the connection has already; 0 if
        the request does not continue the last answer."""
        ...

    def message(self, request: SocketRequest, known: int) -> bytes:
        """The message for this request, without the `known` first items of its input."""
        ...

    def read(self, message: bytes) -> Meaning:
        """Read a received message."""
        ...


class SocketFraming(Struct, frozen=True):
    """The entry of a dialect's endpoint for WebSockets, at the same address as its requests."""

    read: Callable[[bytes], SocketRequest | None]
    """Reads the body of a request; None if it can't be sent over a WebSocket."""
    session: Callable[[], SocketSession]
    """Makes that of a new connection."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Sent with the handshake."""
