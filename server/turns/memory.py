"""What a connection remembers: its latest response, whether it is stored or not."""

from __future__ import annotations

from bridge.protocol.input_items import InputItem
from bridge.protocol.items import Item
from bridge.protocol.request import CreateResponse
from server.sessions.base import ResponseStore
from server.sessions.errors import ChainError
from server.sessions.history import history_of

Items = list[InputItem | Item]


class ConnectionMemory:
    """The latest response with all that led to it, so that a turn with `store: false` can be continued
    on the same connection."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._items: Items = []

    def keep(self, response_id: str, items: Items) -> None:
        """`items` are the whole conversation up to and with this response."""
        self._id, self._items = response_id, items

    def evict(self, response_id: str | None) -> None:
        """Forget this response, since a turn that continued it has failed."""
        if response_id is not None and response_id == self._id:
            self._id, self._items = None, []

    async def history(self, store: ResponseStore, request: CreateResponse, owner: str) -> Items:
        """What came before a request: remembered, else out of the store when the request is stored too.

        Raises HttpError `previous_response_not_found`.
        """
        wanted = request.previous_response_id
        if wanted is not None and wanted == self._id:
            return self._items
        if wanted is not None and request.store is False:
            raise ChainError(
                ChainError.MISSING,
                f"Previous response with id '{wanted[:80]}' not found. A response that is not stored can be "
                "continued on its own connection only, and only while it is the latest there.",
            )
        return await history_of(store, request, owner)
