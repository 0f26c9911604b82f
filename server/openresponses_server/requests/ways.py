"""The ways in which upstreams may be asked one request: with what is new alone, with the whole history, with
a shortened one, and the same at the upstreams that are asked when the first is down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import History
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.off_loop import on_thread
from openresponses_server.requests.betas import with_betas
from openresponses_server.requests.client_traits import ClientTraits
from openresponses_server.requests.losses import losses_of
from openresponses_server.requests.outgoing import Asked, ask
from openresponses_server.requests.truncation import Shortener, may_be_shortened
from openresponses_server.upstreams.attempts import Attempt
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.targets import Target


class Ways(Struct, frozen=True):
    """Those of one request. `client` is what its headers say, `asked` what its first upstream is asked; `new`
    what it is asked instead where it keeps the response `after` which the request comes; `owner` is whose it
    is."""

    request: CreateResponse
    history: History
    identities: ToolIdentityMap
    request_id: str
    client: ClientTraits
    losses: Diagnostics | None
    shortener: Shortener
    asked: Asked
    new: Asked | None
    after: str | None
    owner: str

    def all(self, target: Target) -> list[Callable[[], Awaitable[Attempt]]]:
        """At this target and its fallbacks, in order."""
        return [partial(self._first, target), *(partial(self._fallback, each) for each in target.fallbacks)]

    async def _first(self, target: Target) -> Attempt:
        if self.after is None or self.new is None:
            return self._attempt(target, self.asked)
        whole = partial(self._whole, target)
        return replace(self._attempt(target, self.new), after=self.after, whole=whole, shorter=None)

    async def _whole(self, target: Target) -> Attempt:
        return self._attempt(target, self.asked)

    async def _fallback(self, other: Target) -> Attempt:
        return self._attempt(other, await self._ask(other, self.shortener))

    async def _shorter(self, target: Target) -> Attempt | None:
        asked = await self._ask(target, replace(self.shortener, harder=True))
        if asked.outgoing.body == self.asked.outgoing.body:  # there is nothing that may go
            return None
        return replace(self._attempt(target, asked), shorter=None)

    async def _ask(self, target: Target, shortener: Shortener) -> Asked:
        asking = partial(ask, target, self.request, self.history, self.identities, shortener=shortener)
        return await on_thread(asking) if may_be_shortened(self.request, self.history) else asking()

    def _attempt(self, target: Target, asked: Asked) -> Attempt:
        path, body = target.dialect.path, asked.outgoing.body
        headers = with_betas(self.request, target, self.client.betas, asked.outgoing.diagnostics)
        sent = UpstreamRequest(
            path,
            body,
            self.request_id,
            self.client.key,
            asked.stream,
            headers,
            self.owner,
            self.client.conversation,
        )
        losses = losses_of(self.losses, asked.outgoing.diagnostics)
        if target.shared is not None or not may_be_shortened(self.request, self.history):
            return Attempt(target, sent, losses)
        return Attempt(target, sent, losses, shorter=partial(self._shorter, target))
