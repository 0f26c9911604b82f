"""What a connection remembers: its latest response, whether it is stored or not."""

from __future__ import annotations

from bridge.protocol.request import CreateResponse
from bridge.protocol.response import Response
from server.sessions.base import ResponseStore, Turn
from server.sessions.errors import ChainError
from server.sessions.history import Conversation, history_of, nothing_said, own_input
from server.sessions.references import Continued, resolved


class ConnectionMemory:
    """The latest response with all that led to it, so that a turn with `store: false` can be continued on the
    same connection. What is stored has to be in the store still: it may have been deleted."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._id: str | None = None
        self._latest = nothing_said()
        self._unstored = nothing_said()
        """Of the latest, what no store has."""

    def keep(self, request: CreateResponse, response: Response, before: Conversation) -> None:
        """The response is the latest now: this request was answered by it, after what was said before."""
        if request.previous_response_id is None or request.previous_response_id != self._id:
            self._forget()
        turns = [Turn(response, own_input(request))]
        self._id, self._latest = response.id, before.with_turns(turns)
        if request.store is False:
            self._unstored = self._unstored.with_turns(turns)

    def evict(self, response_id: str | None) -> None:
        """Forget this response, since a turn that continued it has failed."""
        if response_id is not None and response_id == self._id:
            self._forget()

    async def continued(self, store: ResponseStore, request: CreateResponse, owner: str) -> Continued:
        """The request and what came before it. What it refers to may be remembered or stored.

        Raises HttpError `previous_response_not_found` and `item_not_found`.
        """
        before = await self._before(store, request, owner)
        return Continued(await resolved(store, request, owner, before, self._unstored.named), before)

    async def _before(self, store: ResponseStore, request: CreateResponse, owner: str) -> Conversation:
        """Remembered, else out of the store when the request is stored too."""
        wanted = request.previous_response_id
        if wanted is not None and wanted == self._id:
            stored = set(self._latest.responses).difference(self._unstored.responses)
            if stored and (gone := await store.missing(stored, owner)):
                raise _missing(next(each for each in reversed(self._latest.responses) if each in gone))
            return self._latest
        if wanted is not None and request.store is False:
            raise _missing(
                wanted,
                " A response that is not stored can be continued on its own connection only, and only while "
                "it is the latest there.",
            )
        return await history_of(store, request, owner)


def _missing(response_id: str, why: str = "") -> ChainError:
    return ChainError(ChainError.MISSING, f"Previous response with id '{response_id[:80]}' not found.{why}")
