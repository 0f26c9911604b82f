"""All models that can be asked for by name: those of the settings, and those that upstreams list."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from server.errors import UpstreamError
from server.settings import Capabilities
from server.upstreams.base import Upstream
from server.upstreams.catalog import capabilities_of
from server.upstreams.routing import Router

_FRESH_SECONDS: Final = 60.0
_log = structlog.get_logger(__name__)


class Listing:
    """Asks each upstream at most once a minute. One that does not answer is left out; its models can be
    asked for all the same."""

    def __init__(
        self,
        router: Router,
        configured: Mapping[str, Capabilities],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._router = router
        self._configured = configured
        self._clock = clock
        self._lock = asyncio.Lock()
        self._listed: dict[str, str] = {}
        self._listed_at: float | None = None

    async def models(self) -> list[dict[str, Any]]:
        """Each model as an object of `/v1/models`, with what is known of its capabilities."""
        async with self._lock:
            if self._listed_at is None or self._clock() - self._listed_at > _FRESH_SECONDS:
                self._listed = await self._ask_all()
                self._listed_at = self._clock()
        named = dict(self._router.names())
        return [self.model(name, owner) for name, owner in {**named, **self._listed}.items()]

    def model(self, name: str, owner: str) -> dict[str, Any]:
        """One model as an object of `/v1/models`."""
        known = capabilities_of(self._router.outgoing(name), self._configured)
        details = {
            "context_window": known.context_window,
            "max_output_tokens": known.max_output_tokens,
            "capabilities": {
                what: able
                for what in ("tools", "images", "reasoning")
                if (able := getattr(known, what)) is not None
            },
        }
        head = {"id": name, "object": "model", "created": 0, "owned_by": owner}
        return head | {what: value for what, value in details.items() if value}

    async def _ask_all(self) -> dict[str, str]:
        upstreams = list(self._router.upstreams())
        answers = await asyncio.gather(*map(_ask, upstreams))
        listed: dict[str, str] = {}
        for upstream, models in zip(upstreams, answers, strict=True):
            for model in models:
                if self._router.serves(upstream, model):
                    listed.setdefault(model, upstream.name)
        return listed


async def _ask(upstream: Upstream) -> list[str]:
    try:
        return await upstream.models()
    except UpstreamError as error:
        _log.warning("models.not_listed", upstream=upstream.name, status=error.http_status, code=error.code)
        return []
