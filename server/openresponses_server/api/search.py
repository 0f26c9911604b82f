"""`/v1/alpha/search`: the searches that Codex runs itself with its feature `standalone_web_search`, and has
its model's server answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from openresponses_bridge.diagnostics import loss_header
from openresponses_bridge.protocol.codec import decode_search_request, encode
from openresponses_server.errors import HttpError, shutting_down
from openresponses_server.http.access import check_known
from openresponses_server.limits.gate import Gate
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.outgoing import reported_losses, unknown_fields
from openresponses_server.requests.service import service_of

T = TypeVar("T")


async def search(request: Request) -> ASGIApp:
    """Run the commands of a search and return their results as text for a model. The request counts as one of
    its key's requests, and as a response in progress; each command is a call of the key's budget.

    404 `web_search_not_configured` without a provider, 403 if nobody has checked the key.
    """
    service, owner = service_of(request), request.state.owner
    check_known("search")
    body = await read_json(request, service, decode_search_request)
    if (commands := service.commands) is None:
        what = "No search is configured here ([web_search] in the settings)."
        raise HttpError(404, what, code="web_search_not_configured")
    headers = await service.quotas.accept(owner)
    spend = partial(service.quotas.spend_call, owner)
    losses = loss_header(reported_losses(unknown_fields(body)))
    return CommandsResponse(partial(commands.run, body, spend), service.gate, owner, headers | losses)


class CommandsResponse:
    """Runs the commands in a slot of their owner, until the client disconnects or the server is cut off, and
    sends their results."""

    def __init__(
        self,
        run: Callable[[], Coroutine[Any, Any, dict[str, Any]]],
        gate: Gate,
        owner: str,
        headers: dict[str, str],
    ) -> None:
        self._run = run
        self._gate = gate
        self._owner = owner
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate = self._gate
        try:
            async with gate.slots(self._owner, 1), asyncio.timeout(None) as deadline:
                gate.deadlines.add(deadline)
                try:
                    result = await _while_connected(self._run(), receive)
                finally:
                    gate.deadlines.discard(deadline)
        except TimeoutError:
            raise shutting_down() from None
        answer = Response(encode(result), headers=self._headers, media_type="application/json")
        await answer(scope, receive, send)


async def _while_connected(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return the result of the work. Raises ClientDisconnect, and cancels the work, when the client
    disconnects before."""
    working = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for each in (working, gone):
            each.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
