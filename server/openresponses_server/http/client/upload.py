"""The body of a request that goes on as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct


class Upload(Struct, frozen=True):
    """A body of any type: `whole`, which can be sent any number of times, or what `read` returns, once."""

    content_type: str
    whole: bytes | None = None
    read: Callable[[], Awaitable[bytes]] | None = None
    """Returns the next piece, b"" at the end. Its exceptions abort the request."""
    length: int | None = None
    """The bytes that `read` returns in all; None: they are sent in chunks."""

    @property
    def can_be_repeated(self) -> bool:
        """True if the body can be sent again."""
        return self.whole is not None
