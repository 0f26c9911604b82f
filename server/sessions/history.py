"""What came before a request: the chain that `previous_response_id` points to, as input items."""

from __future__ import annotations

from bridge.protocol.codec import decode_request, encode
from bridge.protocol.items import Item
from bridge.protocol.request import CreateResponse, InputItem, MessageParam

from server.errors import HttpError
from server.sessions.base import ResponseStore, StoredResponse


def own_input(request: CreateResponse) -> list[InputItem]:
    """The request's own input as items."""
    if isinstance(request.input, str):
        return [MessageParam("user", request.input)]
    return list(request.input or ())


async def with_history(store: ResponseStore, request: CreateResponse) -> list[InputItem]:
    """The whole conversation: each turn's input, then its output, then the request's own input
    (specification, `previous_response_id`). Instructions of earlier turns are not carried over.

    Raises HttpError `previous_response_not_found` when a link is missing (field case 39).
    """
    turns: list[StoredResponse] = []
    link = request.previous_response_id
    while link is not None:
        turn = await store.get(link)
        if turn is None:
            raise not_found(link)
        turns.append(turn)
        link = turn.response.previous_response_id
    items: list[InputItem] = []
    for turn in reversed(turns):
        items += turn.input
        items += as_input(turn.response.output)
    return items + own_input(request)


def as_input(output: list[Item]) -> list[InputItem]:
    """Outputs are valid inputs (specification, "Items"): here they become such."""
    if not output:
        return []
    items = decode_request(encode({"input": output})).input
    assert isinstance(items, list)
    return items


def not_found(response_id: str) -> HttpError:
    """The chain's link is not there."""
    return HttpError(
        400,
        f"Previous response with id '{response_id[:80]}' not found.",
        code="previous_response_not_found",
        param="previous_response_id",
    )
