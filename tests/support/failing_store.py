"""A store that fails when a test tells it to."""

import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from openresponses_server.runs import support
from openresponses_server.store.base import ConversationStore, ResponseStore, StoreError, no_answer
from openresponses_server.store.listing import ListingStore
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.store.usage import UsageStore


class FailingStore:
    """A store in memory. Calls named in `down` raise; calls named in `mute` are executed and then raise, as
    if the answers were lost. `calls` has the names of all calls except those that ask for the time."""

    is_loaded = True

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.down: set[str] = set()
        self.mute: set[str] = set()
        self.calls: list[str] = []
        self.kept = MemoryStore(clock=clock)
        self.name = self.kept.name

    @property
    def usage(self) -> UsageStore:
        """The store's sums of usage, whose calls fail and are recorded like the others."""
        return cast(UsageStore, self)

    @property
    def listing(self) -> ListingStore:
        """The store's lists, whose calls fail and are recorded like the others."""
        return cast(ListingStore, self)

    @property
    def keys(self) -> None:
        """None: a store in memory keeps no keys."""

    @property
    def folder(self) -> None:
        """None: a store in memory has no folder."""

    @property
    def conversations(self) -> ConversationStore:
        """The store's conversations, whose calls do not fail."""
        return self.kept.conversations

    def __getattr__(self, name: str) -> Callable[..., Any]:
        parts: dict[str, Any] = {"heads": self.kept.listing}
        store = self.kept.usage if "usage" in name else parts.get(name, self.kept)
        method: Callable[..., Any] = getattr(store, name)
        if name in ("frames", "export"):
            return method

        async def call(*arguments: Any, **named: Any) -> Any:
            if name != "now":
                self.calls.append(name)
            if name in self.down:
                raise StoreError(StoreError.UNAVAILABLE, "The session store can't be reached.")
            done = await method(*arguments, **named)
            if name in self.mute:
                raise no_answer()
            return done

        return call


def as_store(store: FailingStore) -> ResponseStore:
    """Return the store as a `ResponseStore`: it has all the methods of one."""
    return store


def store_ends_within(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set how many seconds later runs keep trying to store their end, instead of the store's own limit."""

    transformer: Any = ResponseSessionPersistenceTransformer

    def impatient(*given: Any) -> Any:
        *others, times, options = given
        return transformer(*others, replace(times, timeout=seconds, certainty=0.0, settling=0.0), options)

    patch.setattr(support, "ResponseSessionPersistenceTransformer", impatient)
