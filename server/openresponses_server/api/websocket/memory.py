"""The memory of a connection: its latest response, stored or not."""

from __future__ import annotations

from collections.abc import Iterable

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError
from openresponses_server.limits.memory import Available, Reservation
from openresponses_server.store.base import ChainError, ResponseStore, StoredTurn, TooLarge, UpstreamResponse
from openresponses_server.store.history import (
    Continued,
    Conversation,
    history_of,
    items_of_conversation,
    own_input,
    resolved,
    with_usable_upstream,
)


class ConnectionMemory:
    """The latest response with everything before it, so that a turn with `store: false` can be continued on
    the same connection. A stored response is looked up again, because it may have been deleted. The memory is
    limited by `available` and the owner's budget: a larger conversation is evicted, and can be continued only
    if it is stored."""

    def __init__(self, available: Available, owner: str) -> None:
        self._available = available
        self._owner = owner
        self._reservation = Reservation(available.budget, owner)
        self._clear()

    def _clear(self) -> None:
        self._id: str | None = None
        self._latest = Conversation()
        self._unstored = Conversation()
        """The part of the latest conversation that is not stored."""
        self._reservation.release()

    def close(self) -> None:
        """Release the memory when the connection has ended."""
        self._clear()

    def is_latest(self, response_id: str | None) -> bool:
        """Return True if this is the latest response."""
        return response_id is not None and response_id == self._id

    def fork(self, others: Iterable[ConnectionMemory], response_id: str | None) -> None:
        """Continue a response that is the latest of another lane, which keeps it too."""
        other = next((each for each in others if each is not self and each.is_latest(response_id)), None)
        if other is None or self.is_latest(response_id):
            return
        self._clear()
        if self._reserve(other._latest.size):
            self._id, self._latest, self._unstored = other._id, other._latest, other._unstored

    def remember(
        self,
        request: CreateResponse,
        response: Response,
        before: Conversation,
        upstream: UpstreamResponse | None = None,
    ) -> None:
        """Remember the latest response with its request and the conversation before it. `upstream` is the
        response as the upstream stores it."""
        if request.conversation is not None:  # the conversation has what is to be remembered
            self._clear()
            return
        if request.previous_response_id is None or request.previous_response_id != self._id:
            self._clear()
        turns = [
            StoredTurn(response, own_input(request), upstream if response.status == "completed" else None)
        ]
        size = len(encode(response)) + sum(len(encode(item)) for item in turns[0].input)
        if not self._reserve(before.size + size):
            self._clear()
            return
        self._id, self._latest = response.id, before.with_turns(turns, size)
        if request.store is False:
            self._unstored = self._unstored.with_turns(turns, size)

    def _reserve(self, size: int) -> bool:
        """Reserve this number of bytes. Returns whether that was possible."""
        if size > self._available.conversation:
            return False
        self._reservation.release()
        try:
            self._reservation.grow(size)
        except HttpError:
            return False
        return True

    def evict(self, response_id: str | None) -> None:
        """Evict this response, because a turn that continued it has failed."""
        if response_id is not None and response_id == self._id:
            self._clear()

    async def resolve(self, store: ResponseStore, request: CreateResponse) -> Continued:
        """Return the request and the conversation before it. What it refers to may be remembered or stored.

        Raises HttpError `previous_response_not_found`, `conversation_not_found` and `item_not_found`, 429
        when too much is in memory, and TooLarge, also when a turn that is not stored would make the
        conversation too large to be remembered.
        """
        reservation = Reservation(self._available.budget, self._owner)
        before = await self._load_history(store, request, reservation)
        if request.store is False and before.items:
            size = before.size + sum(len(encode(item)) for item in own_input(request))
            if size > self._available.conversation:
                raise TooLarge(TooLarge.CONVERSATION, size, self._available.conversation)
        named = self._unstored.named
        return Continued(
            await resolved(store, request, self._owner, before, self._available, named), before, reservation
        )

    async def _load_history(
        self, store: ResponseStore, request: CreateResponse, reservation: Reservation
    ) -> Conversation:
        """Return the conversation from memory, or from the store if the request is stored too."""
        previous_id = request.previous_response_id
        if request.conversation is not None:
            return await items_of_conversation(store, request, self._owner, self._available, reservation)
        if previous_id is None:
            return Conversation()
        if previous_id == self._id:
            unstored = set(self._unstored.responses)
            stored = [each for each in self._latest.responses if each not in unstored]
            if stored and (gone := await store.missing(stored[-1:], self._owner, before=stored[:-1])):
                raise _not_found(next(each for each in reversed(self._latest.responses) if each in gone))
            return await with_usable_upstream(store, self._latest, self._owner)
        if request.store is False:
            raise _not_found(
                previous_id,
                " A response that is not stored can be continued on its own connection only, and only while "
                "it is the latest there and not too large to be remembered.",
            )
        return await history_of(store, previous_id, self._owner, self._available, reservation)


def _not_found(response_id: str, why: str = "") -> ChainError:
    return ChainError(ChainError.MISSING, f"Previous response with id '{response_id[:80]}' not found.{why}")
