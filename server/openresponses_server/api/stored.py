"""`GET /v1/responses/{id}/input_items` and `POST /v1/responses/{id}/cancel`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.unknown import enc_hook
from openresponses_server.errors import HttpError
from openresponses_server.requests.cancelling import cancel_response
from openresponses_server.requests.service import Service, service_of
from openresponses_server.store.base import ListedItem, Order

_MOST: Final = 100
_ORDERS: Final = ("asc", "desc")
# a message's text as a part, by who said it
_PARTS: Final = {"assistant": "output_text"}


def counted(service: Service, owner: str, answer: Callable[[], Awaitable[ASGIApp]]) -> ASGIApp:
    """What `answer` gives, made and sent while its client counts as a reader of this owner's: to its end,
    however that comes. Raises HttpError 429 when there are as many readers as may be."""

    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        async with service.gate.readers.shared(owner):
            await (await answer())(scope, receive, send)

    return read


async def input_items(request: Request) -> ASGIApp:
    """A page of what the request of a response brought in: `limit` (1 to 100, 20), `order` (`asc` or
    `desc`, which is the default), `after` and `before` (ids of items)."""
    return counted(service_of(request), request.state.owner, partial(_page, request))


async def _page(request: Request) -> Response:
    asked = request.query_params
    response_id = request.path_params["id"]
    page = await service_of(request).store.input_items(
        response_id,
        request.state.owner,
        after=asked.get("after"),
        before=asked.get("before"),
        limit=_limit(asked.get("limit", "20")),
        order=_order(asked.get("order", "desc")),
    )
    if page is None:
        raise unknown_response(response_id)
    data = [_listed(listed) for listed in page.items]
    shown = {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": page.has_more,
    }
    return Response(encode(shown), media_type="application/json")


async def cancel(request: Request) -> Response:
    """End a response that is being made: it becomes incomplete with the output so far, and its client gets
    that end. One that is cancelled already is answered as it is; one that has ended otherwise is refused."""
    response = await cancel_response(service_of(request), request.path_params["id"], request.state.owner)
    if response is None:
        raise unknown_response(request.path_params["id"])
    return Response(encode(response), media_type="application/json")


def unknown_response(response_id: str) -> HttpError:
    """The id is unknown or belongs to another owner (law S7)."""
    return HttpError(404, f"Response with id '{response_id[:80]}' not found.", code="response_not_found")


def _limit(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= _MOST:
        return int(text)
    raise _wrong("limit", f"a number from 1 to {_MOST}", text)


def _order(text: str) -> Order:
    if text not in _ORDERS:
        raise _wrong("order", " or ".join(_ORDERS), text)
    return cast(Order, text)


def _wrong(param: str, wanted: str, got: str) -> InvalidRequestError:
    what = f"{param} is {wanted}, not {got[:40]!r}"
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=param)


def _listed(listed: ListedItem) -> dict[str, Any]:
    """The item with its id and, for a message, its content as parts."""
    raw: dict[str, Any] = {**msgspec.to_builtins(listed.item, enc_hook=enc_hook), "id": listed.id}
    if raw.get("type") == "message":
        if isinstance(raw["content"], str):
            kind = _PARTS.get(raw["role"], "input_text")
            raw["content"] = [{"type": kind, "text": raw["content"]}]
        for part in raw["content"]:
            if part.get("type") == "output_text":
                part.setdefault("annotations", [])
        raw["status"] = raw.get("status") or "completed"
    return raw
