"""A chat request → a response that is ready to be made, going on from a stored one where it can.

A stateful marker names a stored response. It is used when that response is the owner's, has ended and is
the answer to just the chat that comes before the marker; then only what follows is input of the new
response. Any other marker counts as none, and the whole chat is the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.vscode import ChatRequest, conversation_digest, decode_chat, from_vscode
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.budget import Hold
from openresponses_server.errors import HttpError
from openresponses_server.off_loop import off_loop
from openresponses_server.requests.prepare import Prepared, prepare
from openresponses_server.requests.service import Service
from openresponses_server.store.errors import StoreError
from openresponses_server.store.history import Conversation, history_of

_PLACE: Final = "messages"
_log = structlog.get_logger(__name__)


class Rest(NamedTuple):
    """What of a chat comes after its last marker, as a request, and the digest of what comes before."""

    request: CreateResponse
    losses: Diagnostics
    before: str


class AskedChat(NamedTuple):
    """A chat, and the request for the whole of it. `rest` is there when there is a marker and something
    after it."""

    chat: ChatRequest
    request: CreateResponse
    losses: Diagnostics
    rest: Rest | None


def read_chat(body: bytes) -> AskedChat:
    """The body of a chat request. Raises InvalidRequestError with `param`."""
    chat = decode_chat(body)
    marked, marked_losses = from_vscode(chat, use_markers=True)
    if marked.previous_response_id is None:
        return AskedChat(chat, marked, marked_losses, None)
    request, losses = from_vscode(chat)
    if not marked.input:
        return AskedChat(chat, request, losses, None)
    whole = request.input if isinstance(request.input, list) else []
    before = conversation_digest(whole[: len(whole) - len(marked.input)])
    return AskedChat(chat, request, losses, Rest(marked, marked_losses, before))


async def prepare_chat(
    service: Service, asked: AskedChat, headers: Mapping[str, str], request_id: str, owner: str
) -> Prepared:
    """The chat as a request that may be run. It is stored unless it asks not to be or the store is out.

    Raises as `prepare` does.
    """
    request = asked.request
    if not await _stores(service, request):
        request = replace(request, store=False)
    elif asked.rest is not None and (found := await _before(service, asked.rest, owner)) is not None:
        # what can't be continued after all is asked for as a whole, and refused as that
        with suppress(InvalidRequestError):
            return await prepare(
                service,
                asked.rest.request,
                headers,
                request_id,
                owner=owner,
                losses=asked.rest.losses,
                history=found[0].items,
                upstream=found[0].upstream,
                hold=found[1],
                place=_PLACE,
            )
    return await prepare(
        service, request, headers, request_id, owner=owner, losses=asked.losses, place=_PLACE
    )


async def _stores(service: Service, request: CreateResponse) -> bool:
    """Whether the response is kept. A chat does not depend on it, as the Responses API does."""
    if request.store is False:
        return False
    try:
        await service.runs.check_store()
    except StoreError as error:
        _log.warning("vscode.not_stored", code=error.code)
        return False
    return True


async def _before(service: Service, rest: Rest, owner: str) -> tuple[Conversation, Hold] | None:
    """The turns up to the marker; None where it is not to be trusted."""
    hold = service.room.budget.hold(owner)
    try:
        before = await history_of(service.store, rest.request, owner, service.room, hold)
        if await off_loop(before.size, lambda: conversation_digest(before.items)) == rest.before:
            return before, hold
        why = "another_conversation"
    except HttpError as error:
        why = error.code
    hold.release()
    _log.info("vscode.marker_unused", code=why)
    return None
