"""Law S8: bytes that bodies and conversations take in memory, of all keys and of each one.

A turn of a hundred bytes may stand for a conversation of megabytes, which is in memory, and once more as the
body that goes out, for as long as its response is made. A compressed body of a few kilobytes may stand for
megabytes too, and is in memory from the first of its bytes that come.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from msgspec import Struct

from openresponses_server.errors import HttpError
from openresponses_server.settings import Limits

_WITHOUT_KEY: Final = ""  # the owner of everything where no keys are asked for


class Budget:
    """At most `total` bytes at once, of each key at most `per_key`. An owner that holds nothing yet may hold
    any number, so that no limit shuts out what another one admits."""

    def __init__(self, total: int, per_key: int) -> None:
        self._total = total
        self._per_key = per_key
        self._held: dict[str, int] = {}
        self.bytes = 0
        """How many there are of all keys."""

    def of(self, owner: str) -> int:
        """How many this owner holds."""
        return self._held.get(owner, 0)

    def hold(self, owner: str, *, accepted: bool = False) -> Hold:
        """What one turn of this owner will hold; nothing yet. One that was `accepted` before is not refused
        now."""
        return Hold(self, owner, accepted)

    def check(self, owner: str, size: int, own: int = 0) -> None:
        """Raises HttpError 429 that names the limit when this owner may not hold so many more. `own` is the
        size of what grows by them, which alone may be of any size."""
        if self.bytes > own and self.bytes + size > self._total:
            raise _refusal(
                f"Bodies and conversations of {self._total} bytes are in memory, and no more may be"
            )
        if owner != _WITHOUT_KEY and (mine := self.of(owner)) > own and mine + size > self._per_key:
            most = self._per_key
            raise _refusal(f"One API key may have bodies and conversations of {most} bytes in memory at once")

    def take(self, owner: str, size: int) -> None:
        """So many more."""
        if size:
            self.bytes += size
            self._held[owner] = self._held.get(owner, 0) + size

    def give_back(self, owner: str, size: int) -> None:
        """So many less."""
        if size:
            self.bytes -= size
            left = self._held.pop(owner) - size
            if left:
                self._held[owner] = left


class Hold:
    """The bytes of one turn, or of one body. They are given back when it is released, or forgotten."""

    def __init__(self, budget: Budget, owner: str, accepted: bool) -> None:
        self._budget = budget
        self._owner = owner
        self._accepted = accepted
        self._size = 0

    def grow(self, size: int) -> None:
        """So many more. Raises HttpError 429."""
        if not self._accepted:
            self._budget.check(self._owner, size)
        self._budget.take(self._owner, size)
        self._size += size

    def resize(self, size: int) -> None:
        """It is so many now, of a body that comes or goes. Raises HttpError 429, and is what it was."""
        more = size - self._size
        if more > 0:
            self._budget.check(self._owner, more, self._size)
            self._budget.take(self._owner, more)
        else:
            self._budget.give_back(self._owner, -more)
        self._size = size

    def release(self) -> None:
        """Nothing of it is in memory any more."""
        size, self._size = self._size, 0
        if size:
            self._budget.give_back(self._owner, size)

    def __del__(self) -> None:
        if self._size:
            self.release()


RECEIVED: Final[ContextVar[Hold | None]] = ContextVar("received", default=None)
"""What holds the body of the request that is served, or the message of the turn. It is released when what
goes out is held instead, at the latest when the request has been answered."""

OF_SOCKET: Final = "received"
"""Where the state of a WebSocket has the Hold of what is received on it."""


def hand_over() -> None:
    """What was received is held as something else from here on, or not any more."""
    if (received := RECEIVED.get()) is not None:
        received.release()


class Room(Struct, frozen=True):
    """What there is room for: bytes of one conversation, bytes of what one request refers to, and the budget
    of all."""

    conversation: int
    references: int
    budget: Budget


def room_for(limits: Limits) -> Room:
    """By the settings."""
    budget = Budget(limits.loaded_bytes, limits.loaded_bytes_per_key)
    return Room(limits.conversation_bytes, limits.reference_bytes, budget)


def _refusal(what: str) -> HttpError:
    return HttpError(429, f"{what}; try again.", code="too_much_in_memory", headers={"retry-after": "1"})
