"""`POST /v1/responses/compact` and `/v1/responses/input_tokens`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response as HttpResponse
from starlette.types import ASGIApp

from openresponses_bridge.diagnostics import loss_header
from openresponses_bridge.dialects.base import KEEP_ALIVE, TRIGGER
from openresponses_bridge.protocol.codec import decode_compact_request, decode_request, encode, item_from
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_bridge.protocol.items import Item, Message
from openresponses_bridge.protocol.request import CompactRequest, CreateResponse
from openresponses_bridge.protocol.response import CompactResource, Response
from openresponses_bridge.protocol.unknown import UnknownItem, enc_hook
from openresponses_bridge.protocol.usage import Usage
from openresponses_server.errors import HttpError
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.requests import check_conversation, check_request
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.outgoing import (
    open_sealed_items,
    reported_losses,
    unknown_fields,
)
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import Received
from openresponses_server.requests.prompts import expanded, unknown_prompt
from openresponses_server.requests.service import service_of, target_of
from openresponses_server.store.history import continued, own_input
from openresponses_server.surfaces.responder import KeepAlive, WholeResponder
from openresponses_server.tasks import on_thread

KEPT_TOKENS: Final = 20_000
"""The number of tokens of users' messages that are kept verbatim, the newest first."""
CountTokens = Callable[[Any], int]
"""Counts the tokens of an item."""
_INSTRUCTION_ROLES: Final = frozenset({"system", "developer"})


class CompactionForm:
    """The form of a response that compacts `items`: the answer of `/v1/responses/compact`."""

    single_reasoning_form = False

    def __init__(self, items: Sequence[Any], tokens: CountTokens) -> None:
        self._items = items
        self._tokens = tokens

    def whole(self, response: Response) -> bytes | None:
        """Return the answer. Raises HttpError if the summary is incomplete."""
        if response.incomplete_details is not None:
            why = f"The summary was cut off ({response.incomplete_details.reason})."
            raise HttpError(502, why, code="compaction_incomplete")
        return encode(compact_resource(response, self._items, self._tokens))


def compact_resource(response: Response, items: Sequence[Any], tokens: CountTokens) -> CompactResource:
    """Return the window after `response`, which contains the compaction of `items`: the users' newest
    messages unchanged and, as clients expect, the compaction last. System and developer messages are kept
    too, since a model does not follow instructions that it finds in a summary."""
    return CompactResource(
        id=response.id,
        object="response.compaction",
        output=[*_kept_messages(items, tokens), *response.output],
        created_at=response.created_at,
        usage=response.usage or _estimated(items, response.output, tokens),
    )


def _kept_messages(items: Sequence[Any], tokens: CountTokens) -> list[Item]:
    left = KEPT_TOKENS
    messages: list[Item] = []
    for item in reversed(items):
        if not isinstance(item, MessageParam | Message):
            continue
        if item.role == "user" and left >= 0:  # once one did not fit, older ones need not be measured
            left -= tokens(item)
        if item.role in _INSTRUCTION_ROLES or (item.role == "user" and left >= 0):
            messages.append(_message(item))
    return messages[::-1]


def _message(item: MessageParam | Message) -> Item:
    raw: dict[str, Any] = msgspec.to_builtins(item, enc_hook=enc_hook)
    content = raw["content"]
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    fields = {
        "type": "message",
        "id": raw.get("id") or f"msg_{secrets.token_hex(16)}",
        "status": "completed",
        "role": item.role,
        "content": parts,
    }
    return item_from(fields)


def _estimated(items: Sequence[Any], output: Sequence[Item], tokens: CountTokens) -> Usage:
    return Usage.of(sum(map(tokens, items)), sum(map(tokens, output)))


async def compact(request: Request) -> ASGIApp:
    """The input window that a new chain begins with (schema CompactResource). The conversation is that of
    `previous_response_id`, then `input`. Nothing is stored."""
    service = service_of(request)
    body = await read_json(request, service, decode_compact_request)
    check_request(CreateResponse(input=body.input, beyond=body.beyond), service.settings.limits)
    owner = request.state.owner
    continuation = await continued(service.store, _compaction_request(body), owner, service.available)
    items = [*continuation.before.items, *own_input(continuation.request)[:-1]]
    if not items:
        raise HttpError(400, "There is nothing to compact.", code="missing_required_parameter", param="input")
    received = Received(
        continuation.request,
        fields_of(request.scope),
        request.state.request_id,
        owner,
        continued=continuation,
    )
    prepared = await prepare(received, service)
    run, headers = RunAssembly(prepared, service).run(), prepared.answer_headers
    form = CompactionForm(items, partial(service.meters.counter(owner).item, model=prepared.target.model))
    keep_alive = KeepAlive(service.settings.keep_alive, KEEP_ALIVE)
    return WholeResponder([run], headers, keep_alive, lambda: form)


def _compaction_request(body: CompactRequest) -> CreateResponse:
    """Return the request for the response that contains the compaction."""
    own = own_input(CreateResponse(input=body.input))
    return CreateResponse(
        model=body.model,
        input=[*own, UnknownItem({"type": TRIGGER})],
        previous_response_id=body.previous_response_id,
        instructions=body.instructions,
        prompt_cache_key=body.prompt_cache_key,
        store=False,
        beyond=body.beyond,
    )


async def input_tokens(request: Request) -> HttpResponse:
    """Estimate the tokens of a request's input, with sealed summaries counted by their text. Real counts come
    with each response; see `openresponses_bridge.models.tokens` for the basis of this estimate."""
    service = service_of(request)
    payload = await read_json(request, service, decode_request)
    lead: Sequence[Any] = ()
    if payload.prompt is not None:
        expansion = expanded(service.prompts, payload, service.settings.max_body_bytes)
        if expansion is None:
            raise unknown_prompt(payload)  # an upstream may have it, but its tokens can't be counted here
        payload, lead = expansion
    target = target_of(service, payload.model, request.state.owner)
    check_request(payload, service.settings.limits)
    payload, before, reservation = await continued(
        service.store, payload, request.state.owner, service.available
    )
    check_conversation(payload, len(before.items), service.settings.limits)
    earlier, own = open_sealed_items(target, before.items, own_input(payload), {})
    others = CreateResponse(instructions=payload.instructions, tools=payload.tools)
    counter = service.meters.counter(request.state.owner)
    tokens = await on_thread(lambda: counter.request(others, [*lead, *earlier, *own], target.model))
    reservation.release()
    body = {"object": "response.input_tokens", "input_tokens": tokens}
    headers = loss_header(reported_losses(unknown_fields(payload)))
    return HttpResponse(encode(body), headers=headers, media_type="application/json")
