"""What a connection remembers: its latest response, whether it is stored or not."""

from __future__ import annotations

from bridge.protocol.request import CreateResponse
from server.sessions.base import ResponseStore
from server.sessions.errors import ChainError
from server.sessions.history import Conversation, history_of, nothing_said
from server.sessions.references import Continued, resolved


class ConnectionMemory:
    """The latest response with all that led to it, so that a turn with `store: false` can be continued
    on the same connection."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._latest = nothing_said()

    def keep(self, response_id: str, conversation: Conversation) -> None:
        """All that was said up to and with this response."""
        self._id, self._latest = response_id, conversation

    def evict(self, response_id: str | None) -> None:
        """Forget this response, since a turn that continued it has failed."""
        if response_id is not None and response_id == self._id:
            self._id, self._latest = None, nothing_said()

    async def continued(self, store: ResponseStore, request: CreateResponse, owner: str) -> Continued:
        """The request and what came before it. What it refers to may be remembered or stored.

        Raises HttpError `previous_response_not_found` and `item_not_found`.
        """
        before = await self._before(store, request, owner)
        return Continued(await resolved(store, request, owner, before, self._latest.named), before)

    async def _before(self, store: ResponseStore, request: CreateResponse, owner: str) -> Conversation:
        """Remembered, else out of the store when the request is stored too."""
        wanted = request.previous_response_id
        if wanted is not None and wanted == self._id:
            return self._latest
        if wanted is not None and request.store is False:
            raise ChainError(
                ChainError.MISSING,
                f"Previous response with id '{wanted[:80]}' not found. A response that is not stored can be "
                "continued on its own connection only, and only while it is the latest there.",
            )
        return await history_of(store, request, owner)
