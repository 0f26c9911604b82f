"""What came before a request: the chain that `previous_response_id` points to."""

from __future__ import annotations

from bridge.protocol.input_items import InputItem, MessageParam
from bridge.protocol.items import Item
from bridge.protocol.request import CreateResponse
from server.sessions.base import ResponseStore


def own_input(request: CreateResponse) -> list[InputItem]:
    """The request's own input as items."""
    if isinstance(request.input, str):
        return [MessageParam("user", request.input)]
    return list(request.input or ())


async def history_of(
    store: ResponseStore, request: CreateResponse, owner: str = ""
) -> list[InputItem | Item]:
    """The turns before, oldest first: each one's input, then its output (specification,
    `previous_response_id`). Their instructions are not carried over (field case 37).

    Raises HttpError `previous_response_not_found` when a link is missing or another owner's (field case
    39).
    """
    if request.previous_response_id is None:
        return []
    turns = await store.chain(request.previous_response_id, owner)
    return [item for turn in turns for item in (*turn.input, *turn.response.output)]
