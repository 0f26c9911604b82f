"""`/inspector/v1/`: lists of stored responses, the requests that they are of, and what fills a context."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.api.stored import unknown_response
from openresponses_server.limits.requests import check_conversation, check_request
from openresponses_server.off_loop import on_thread
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.outgoing import opened
from openresponses_server.requests.service import service_of
from openresponses_server.store.listing import ListedPage, Wanted, conversation_of, page_of
from openresponses_server.store.references import continued

_ASKED: Final = (
    "model",
    "previous_response_id",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "temperature",
    "top_p",
    "max_output_tokens",
    "max_tool_calls",
    "truncation",
    "metadata",
    "store",
    "background",
)
"""What a response repeats of its request."""
_LONGEST: Final = 200  # characters of a filter
_MOST: Final = 100
_USUAL: Final = 50
_LABEL: Final = 120  # characters


async def listed(request: Request) -> Response:
    """The key's own responses, the newest first: `status`, `model`, `search`, `since` and `until` (in Unix
    seconds) narrow them, `after` goes on; `conversation` lists the turns up to that response instead."""
    service, owner, asked = service_of(request), request.state.owner, request.query_params
    for name, value in asked.items():
        if len(value) > _LONGEST:
            raise invalid(name[:40], f"it has at most {_LONGEST} characters")
    listing = service.store.listing
    if asked.get("conversation"):
        page = ListedPage(await conversation_of(listing, owner, asked["conversation"], _MOST), None)
    else:
        wanted = Wanted(
            status=asked.get("status", ""),
            model=asked.get("model", ""),
            search=asked.get("search", ""),
            since=_time(asked.get("since"), "since"),
            until=_time(asked.get("until"), "until"),
        )
        limit = _limit(asked.get("limit", str(_USUAL)))
        page = await page_of(listing, owner, wanted, asked.get("after") or None, limit)
    body = {"object": "list", "data": page.rows, "next": page.next}
    return Response(encode(body), media_type="application/json")


async def request_of(request: Request) -> Response:
    """The request that a stored response is of, as far as the response and its input say it."""
    response_id = request.path_params["id"]
    record = await service_of(request).store.get(response_id, request.state.owner)
    if record is None:
        raise unknown_response(response_id)
    shown = {name: getattr(record.response, name) for name in _ASKED}
    given = {
        name: value for name, value in shown.items() if value is not UNSET and value not in (None, [], {})
    }
    return Response(encode({**given, "input": record.input}), media_type="application/json")


async def context(request: Request) -> Response:
    """What a request would put into the context, piece by piece, in bytes of JSON and in tokens, which are
    estimated as for `/v1/responses/input_tokens`."""
    service = service_of(request)
    asked = await read_json(request, service, decode_request)
    target = service.router.target_of(asked.model, request.state.owner)
    check_request(asked, service.settings.limits)
    asked, before, hold = await continued(service.store, asked, request.state.owner, service.room)
    check_conversation(asked, len(before.items), service.settings.limits)
    earlier, own = opened(target, asked, before.items, {})

    counter = service.meters.counter(request.state.owner)

    def measure() -> list[dict[str, Any]]:
        entries = _around(asked, counter.request, target.model)
        for items, place in ((earlier, "earlier"), (own, "")):
            for item in items:
                entries.append(_entry(place, item, counter.item(item, target.model)))
        return entries

    try:
        entries = await on_thread(measure)
    finally:
        hold.release()
    totals = {name: sum(entry[name] for entry in entries) for name in ("bytes", "tokens")}
    return Response(
        encode({"object": "context", **totals, "entries": entries}), media_type="application/json"
    )


def _around(asked: CreateResponse, count: Any, model: str) -> list[dict[str, Any]]:
    """Instructions and tools."""
    nothing = CreateResponse()
    frame = count(nothing, [], model)
    entries = []
    if asked.instructions:
        tokens = count(replace(nothing, instructions=asked.instructions), [], model) - frame
        entries.append(_named("", "instructions", asked.instructions, asked.instructions, tokens))
    for tool in asked.tools or ():
        tokens = count(replace(nothing, tools=[tool]), [], model) - frame
        entries.append(_named("", "tool", str(getattr(tool, "name", None) or tool.type), tool, tokens))
    return entries


def _entry(place: str, item: Any, tokens: int) -> dict[str, Any]:
    kind = str(getattr(item, "type", "") or "item")
    text = (
        getattr(item, "name", None) or getattr(item, "content", None) or getattr(item, "output", None) or ""
    )
    if isinstance(text, list):
        text = next((part.text for part in text if isinstance(getattr(part, "text", None), str)), "")
    role = getattr(item, "role", None)
    return _named(place, f"{kind} · {role}" if isinstance(role, str) else kind, str(text), item, tokens)


def _named(place: str, kind: str, label: str, value: Any, tokens: int) -> dict[str, Any]:
    shown = label[:_LABEL].encode("utf-8", "replace").decode()
    return {
        "from": place,
        "kind": kind,
        "label": shown,
        "bytes": len(encode(value)),
        "tokens": max(tokens, 0),
    }


def _limit(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= _MOST:
        return int(text)
    raise invalid("limit", f"it is a number from 1 to {_MOST}, not {text[:40]!r}")


def _time(text: str | None, name: str) -> float | None:
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        return float(text)
    raise invalid(name, f"it is a time in Unix seconds, not {text[:40]!r}")
