"""All models that can be asked for by name: those of the settings, and those that upstreams list."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import structlog

from openresponses_bridge.models.information import EnrichedModelData
from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.base import Upstream
from openresponses_server.upstreams.codex_models import MOST_MODELS, codex_model
from openresponses_server.upstreams.reported import ReportedModel
from openresponses_server.upstreams.routing import Router

FRESH_SECONDS: Final = 60.0
_SOONEST: Final = 1.0  # seconds from one discovery to the next, whoever wants one
_log = structlog.get_logger(__name__)


class Listing:
    """Asks all upstreams for their models, once at a time and again when the answers are `fresh` seconds old
    or somebody wants it. What one that does not answer has listed before stands; its models can be asked for
    all the same.

    `version` rises with each discovery by which something has changed; `on_change` calls with it.
    """

    def __init__(
        self,
        router: Router,
        fresh: float = FRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._router = router
        self._fresh = fresh
        self._clock = clock
        self._lock = asyncio.Lock()
        self._listed_at: float | None = None
        self._discoveries = 0
        self._shown: list[EnrichedModelData] = []
        self._callbacks: list[Callable[[int], None]] = []
        self.version = 0

    async def models(self, *, refresh: bool = False) -> list[dict[str, Any]]:
        """Each model as an object of `/v1/models`, with what is known of its capabilities. `refresh` asks the
        upstreams now."""
        await self._discover(refresh)
        return [self.model(name, owner) for name, owner in self._named()]

    async def enriched(self, *, refresh: bool = False) -> list[EnrichedModelData]:
        """The same models with their limits and abilities filled in, for VS Code."""
        await self._discover(refresh)
        return list(self._shown)

    async def for_codex(self) -> list[dict[str, Any]]:
        """The same models as Codex describes them, the first `MOST_MODELS` of them."""
        shown = (await self.enriched())[:MOST_MODELS]
        return [codex_model(model, priority) for priority, model in enumerate(shown)]

    def on_change(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Have it called with the new `version` when the list has changed; returns what ends that."""
        self._callbacks.append(callback)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    def model(self, name: str, owner: str) -> dict[str, Any]:
        """One model as an object of `/v1/models`."""
        known = self._router.catalog.capabilities(owner, self._router.outgoing(name))
        details = {
            "context_window": known.context_window,
            "max_input_tokens": known.max_input_tokens,
            "max_output_tokens": known.max_output_tokens,
            "capabilities": {
                what: able
                for what in ("tools", "streaming_tool_calls", "images", "reasoning")
                if (able := getattr(known, what)) is not None
            },
        }
        head = {"id": name, "object": "model", "created": 0, "owned_by": owner}
        return head | {what: value for what, value in details.items() if value}

    def _enriched(self, name: str, owner: str) -> EnrichedModelData:
        model = self._router.outgoing(name)
        known = self._router.catalog.capabilities(owner, model)
        reported = self._router.catalog.listed(owner).get(model)
        return EnrichedModelData.of(
            name,
            owner,
            model=model,
            title=reported.title if reported is not None and name == model else "",
            context_window=known.context_window,
            max_input_tokens=known.max_input_tokens,
            max_output_tokens=known.max_output_tokens,
            tools=known.tools,
            images=known.images,
            reasoning=known.reasoning,
        )

    def _named(self) -> Iterator[tuple[str, str]]:
        """(model, name of its upstream), what the settings name first, each once."""
        found = dict(self._router.names())
        for upstream in self._router.upstreams():
            for model in self._router.catalog.listed(upstream.name):
                if self._router.serves(upstream, model):
                    found.setdefault(model, upstream.name)
        return iter(found.items())

    async def _discover(self, wanted: bool) -> None:
        seen = self._discoveries
        async with self._lock:
            # a discovery that ended while this one waited is as good as its own
            if self._discoveries > seen or not self._is_due(wanted):
                return
            upstreams = list(self._router.upstreams())
            answers = await asyncio.gather(*map(_ask, upstreams))
            for upstream, models in zip(upstreams, answers, strict=True):
                if models is not None:
                    self._router.catalog.report(upstream.name, models)
            self._listed_at = self._clock()
            self._discoveries += 1
            shown = [self._enriched(name, owner) for name, owner in self._named()]
            if shown != self._shown or not self.version:
                self._shown = shown
                self.version += 1
                self._notify()

    def _is_due(self, wanted: bool) -> bool:
        if self._listed_at is None:
            return True
        return self._clock() - self._listed_at > (_SOONEST if wanted else self._fresh)

    def _notify(self) -> None:
        for callback in list(self._callbacks):
            try:
                callback(self.version)
            except Exception:
                _log.exception("models.callback_failed")


def first_choice(models: Iterable[Mapping[str, Any]]) -> str | None:
    """Of models as `/v1/models` lists them, the first that calls tools, else the first; None when there are
    none."""
    listed = {name: each for each in models if isinstance(name := each.get("id"), str)}
    able = (name for name, each in listed.items() if _calls_tools(each.get("capabilities")))
    return next(able, None) or next(iter(listed), None)


def _calls_tools(capabilities: Any) -> bool:
    return isinstance(capabilities, Mapping) and bool(capabilities.get("tools"))


async def _ask(upstream: Upstream) -> list[ReportedModel] | None:
    """None when it does not say."""
    try:
        return await upstream.models()
    except UpstreamError as error:
        said = {"said": error.said} if error.said else {}
        _log.warning(
            "models.not_listed",
            upstream=upstream.name,
            status=error.http_status,
            code=error.code,
            cause=error.cause,
            **said,
        )
        return None
