"""`/v1/conversations`: conversations and their items, as OpenAI has them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Raw
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from openresponses_bridge.protocol.codec import (
    decode_conversation_items,
    decode_create_conversation,
    decode_update_conversation,
    encode,
)
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.secrets import items_without_secrets
from openresponses_bridge.random_ids import random_id
from openresponses_server.api.parameters import limit_of, order_of
from openresponses_server.api.responses import input_item, page_shown
from openresponses_server.errors import HttpError
from openresponses_server.limits.requests import check_request
from openresponses_server.requests.admission import check_references
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.service import Service, service_of
from openresponses_server.settings import Limits
from openresponses_server.store.base import ConversationSize, ListedItem, StoredConversation
from openresponses_server.store.conversations import full, named, rows_of, total_size, unknown_conversation
from openresponses_server.store.history import Conversation, own_input, resolved
from openresponses_server.surfaces.stored import count_reader


async def create(request: Request) -> Response:
    """A new conversation with the given items."""
    service, owner = service_of(request), request.state.owner
    body = await read_json(request, service, decode_create_conversation)
    items = await _items_of(service, owner, body.items or [])
    limits = service.settings.limits
    size, most = total_size(rows_of(items)), _most(limits)
    if size.items > most.items or size.bytes > most.bytes:
        raise full(size, most)
    if await service.store.conversations.count(owner, limits.conversations_per_key) >= (
        limits.conversations_per_key
    ):
        raise HttpError(
            429,
            f"One API key may have {limits.conversations_per_key} conversations "
            "(limits.conversations_per_key): delete some.",
            code="too_many_conversations",
            headers={"retry-after": "60", "x-should-retry": "false"},
        )
    metadata = encode(body.metadata or {})
    service.quotas.store(owner, lambda: size.bytes + len(metadata))
    now = time.time()
    conversation = StoredConversation(random_id("conv"), owner, now, service.runs.expires_at(now), metadata)
    await service.store.conversations.create(conversation, items)
    return _json(_shown(conversation))


class ConversationEndpoint(HTTPEndpoint):
    """`/v1/conversations/{id}`. 404 `conversation_not_found` if there is none."""

    async def get(self, request: Request) -> Response:
        """The conversation without its items."""
        return _json(_shown(await _conversation(request)))

    async def post(self, request: Request) -> Response:
        """Replace the metadata."""
        service, conversation_id = service_of(request), request.path_params["id"]
        body = await read_json(request, service, decode_update_conversation)
        metadata = encode(body.metadata or {})
        service.quotas.store(request.state.owner, lambda: len(metadata))
        changed = await service.store.conversations.update(
            conversation_id, request.state.owner, metadata, service.runs.expires_at(time.time())
        )
        if changed is None:
            raise unknown_conversation(conversation_id)
        return _json(_shown(changed))

    async def delete(self, request: Request) -> Response:
        """Delete the conversation with its items. Responses that run in it end without it."""
        service, conversation_id = service_of(request), request.path_params["id"]
        if not await service.store.conversations.delete(conversation_id, request.state.owner):
            raise unknown_conversation(conversation_id)
        return _json({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


class ItemsEndpoint(HTTPEndpoint):
    """`/v1/conversations/{id}/items`. 404 `conversation_not_found` if there is no such conversation."""

    async def get(self, request: Request) -> ASGIApp:
        """A page of the items: `limit` (1 to 100, default 20), `order` (`asc` or `desc`, the default),
        `after` (id of an item). `include` changes nothing: items are shown whole."""
        return count_reader(service_of(request), request.state.owner, partial(_page, request))

    async def post(self, request: Request) -> Response:
        """Append items, all or none."""
        service, owner = service_of(request), request.state.owner
        conversation_id = request.path_params["id"]
        body = await read_json(request, service, decode_conversation_items)
        await _conversation(request)
        items = await _items_of(service, owner, body.items)
        service.quotas.store(owner, lambda: total_size(rows_of(items)).bytes)
        most, until = _most(service.settings.limits), service.runs.expires_at(time.time())
        if not await service.store.conversations.add(conversation_id, owner, items, most, until):
            raise unknown_conversation(conversation_id)
        return _json(page_shown([input_item(each) for each in items], has_more=False))


class ItemEndpoint(HTTPEndpoint):
    """`/v1/conversations/{id}/items/{item_id}`. 404 `conversation_not_found` or `item_not_found`."""

    async def get(self, request: Request) -> ASGIApp:
        """One item."""
        return count_reader(service_of(request), request.state.owner, partial(_item, request))

    async def delete(self, request: Request) -> Response:
        """Delete one item; the answer is its conversation."""
        service = service_of(request)
        left = await service.store.conversations.remove(
            request.path_params["id"],
            request.path_params["item_id"],
            request.state.owner,
            service.runs.expires_at(time.time()),
        )
        if left is None:
            raise await _unknown_item(request)
        return _json(_shown(left))


async def _page(request: Request) -> Response:
    query, conversation_id = request.query_params, request.path_params["id"]
    page = await service_of(request).store.conversations.page(
        conversation_id,
        request.state.owner,
        after=query.get("after"),
        limit=limit_of(query),
        order=order_of(query),
    )
    if page is None:
        raise unknown_conversation(conversation_id)
    return _json(page_shown([input_item(listed) for listed in page.items], has_more=page.has_more))


async def _item(request: Request) -> Response:
    item = await service_of(request).store.conversations.item(
        request.path_params["id"], request.path_params["item_id"], request.state.owner
    )
    if item is None:
        raise await _unknown_item(request)
    return _json(input_item(item))


async def _unknown_item(request: Request) -> HttpError:
    """Return the error that names the unknown conversation or item."""
    await _conversation(request)
    what = f"The conversation has no item with the id '{request.path_params['item_id'][:80]}'."
    return HttpError(404, what, code="item_not_found")


async def _conversation(request: Request) -> StoredConversation:
    conversation_id = request.path_params["id"]
    conversation = await service_of(request).store.conversations.get(conversation_id, request.state.owner)
    if conversation is None:
        raise unknown_conversation(conversation_id)
    return conversation


async def _items_of(service: Service, owner: str, items: list[InputItem]) -> Sequence[ListedItem]:
    """Return the items as they are stored: references are replaced by their items, and secrets of tools are
    left out. Raises HttpError and InvalidRequestError with the path of what is refused."""
    limits = service.settings.limits
    request = CreateResponse(input=items)
    check_request(request, limits, param=_ITEMS)
    try:
        whole = await resolved(service.store, request, owner, Conversation(), service.available)
        check_references(request, whole, limits)
    except HttpError as error:
        if error.param is not None:
            error.param = error.param.replace("input", _ITEMS, 1)
        raise
    return named(items_without_secrets(own_input(whole)))


_ITEMS = "items"


def _most(limits: Limits) -> ConversationSize:
    return ConversationSize(limits.items, limits.conversation_bytes)


def _shown(conversation: StoredConversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": Raw(conversation.metadata),
    }


def _json(value: Any) -> Response:
    return Response(encode(value), media_type="application/json")
