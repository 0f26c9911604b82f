"""Law S8: limits the memory of bodies and conversations, of all keys together and of each key.

A request of a hundred bytes may continue a conversation of megabytes, which is in memory twice while its
response is made: once read from the store, once as the body that goes to the upstream. A compressed body of a
few kilobytes may be megabytes too, and is counted from its first byte.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from msgspec import Struct

from openresponses_server.errors import HttpError
from openresponses_server.limits.owners import WITHOUT_KEY
from openresponses_server.settings import Limits


class MemoryBudget:
    """The limit of reserved bytes: at most `total` at once, of each key at most `per_key`. An owner
    that has reserved nothing may reserve any number, so that this limit never refuses what the limit for one
    body or conversation allows."""

    def __init__(self, total: int, per_key: int) -> None:
        self._total = total
        self._per_key = per_key
        self._reserved: dict[str, int] = {}
        self.bytes = 0
        """Bytes that all keys have reserved."""

    def of(self, owner: str) -> int:
        """Return how many bytes this owner has reserved."""
        return self._reserved.get(owner, 0)

    def acquire(self, owner: str, size: int, own: int = 0, *, accepted: bool = False) -> None:
        """Count this many more bytes for a reservation that already has `own`; an owner's only reservation
        may have any size. Raises HttpError 429 that names the limit if this owner may not reserve them,
        except for a request that was `accepted` before."""
        if not accepted and self.bytes > own and self.bytes + size > self._total:
            raise _refusal(
                f"Bodies and conversations in memory have reached the limit of {self._total} bytes"
            )
        mine = self.of(owner) if owner != WITHOUT_KEY and not accepted else 0
        if mine > own and mine + size > self._per_key:
            most = self._per_key
            raise _refusal(f"One API key may have bodies and conversations of {most} bytes in memory at once")
        if size:
            self.bytes += size
            self._reserved[owner] = self._reserved.get(owner, 0) + size

    def release(self, owner: str, size: int) -> None:
        """Count this many bytes less."""
        if size:
            self.bytes -= size
            left = self._reserved.pop(owner) - size
            if left:
                self._reserved[owner] = left


class Reservation(Struct, eq=False):
    """The bytes reserved for one request or one body, until they are released or this is
    garbage-collected."""

    budget: MemoryBudget
    owner: str
    accepted: bool = False
    """The request was accepted before: `grow` raises nothing."""
    size: int = 0
    """Bytes."""

    def grow(self, size: int) -> None:
        """Reserve this many more bytes. Raises HttpError 429."""
        self.budget.acquire(self.owner, size, accepted=self.accepted)
        self.size += size

    def resize(self, size: int) -> None:
        """Change the reservation to this many bytes, more or fewer than before. If this raises HttpError 429,
        nothing has changed."""
        more = size - self.size
        if more > 0:
            self.budget.acquire(self.owner, more, self.size)
        else:
            self.budget.release(self.owner, -more)
        self.size = size

    def release(self) -> None:
        """Release all bytes."""
        size, self.size = self.size, 0
        if size:
            self.budget.release(self.owner, size)

    def __del__(self) -> None:
        if self.size:
            self.release()


RECEIVED: Final[ContextVar[Reservation | None]] = ContextVar("received", default=None)
"""The reservation for the body of the current request, or for the WebSocket message. It is released when the
outgoing request has its own, at the latest when the request has been answered."""

SOCKET_RESERVATION: Final = "received"
"""The name in a WebSocket's state for the reservation of what is received on it."""


def release_received() -> None:
    """Release the reservation of what was received: another reservation covers it, or it is no longer
    needed."""
    if (received := RECEIVED.get()) is not None:
        received.release()


class Available(Struct, frozen=True):
    """The memory that requests may use."""

    conversation: int
    """Bytes of one conversation."""
    references: int
    """Bytes of the items that one request refers to."""
    budget: MemoryBudget
    """Shared by all requests."""


def available_for(limits: Limits) -> Available:
    """The memory that the settings allow for requests."""
    budget = MemoryBudget(limits.loaded_bytes, limits.loaded_bytes_per_key)
    return Available(limits.conversation_bytes, limits.reference_bytes, budget)


def _refusal(what: str) -> HttpError:
    return HttpError(429, f"{what}; try again.", code="too_much_in_memory", headers={"retry-after": "1"})
