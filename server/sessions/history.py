"""What came before a request: the chain that `previous_response_id` points to."""

from __future__ import annotations

from bridge.protocol.input_items import InputItem, MessageParam
from bridge.protocol.items import Item
from bridge.protocol.request import CreateResponse
from server.errors import HttpError
from server.sessions.base import ResponseStore, StoredResponse


def own_input(request: CreateResponse) -> list[InputItem]:
    """The request's own input as items."""
    if isinstance(request.input, str):
        return [MessageParam("user", request.input)]
    return list(request.input or ())


async def history_of(store: ResponseStore, request: CreateResponse) -> list[InputItem | Item]:
    """The turns before, oldest first: each one's input, then its output (specification,
    `previous_response_id`). Their instructions are not carried over (field case 37).

    Raises HttpError `previous_response_not_found` when a link is missing (field case 39).
    """
    turns: list[StoredResponse] = []
    link = request.previous_response_id
    while link is not None:
        turn = await store.get(link)
        if turn is None:
            raise _not_found(link)
        turns.append(turn)
        link = turn.response.previous_response_id
    return [item for turn in reversed(turns) for item in (*turn.input, *turn.response.output)]


def _not_found(response_id: str) -> HttpError:
    return HttpError(
        400,
        f"Previous response with id '{response_id[:80]}' not found.",
        code="previous_response_not_found",
        param="previous_response_id",
    )
