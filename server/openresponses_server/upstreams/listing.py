"""All models that requests can name: those of the settings, and those that upstreams list."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

import structlog
from msgspec import Struct

from openresponses_bridge.dialects.base import LEVELS, accepted_efforts
from openresponses_bridge.models.information import EnrichedModelData
from openresponses_bridge.protocol.codec import encode
from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.base import Upstream
from openresponses_server.upstreams.catalog import ReportedModel
from openresponses_server.upstreams.prices import Prices
from openresponses_server.upstreams.routing.models import Router
from openresponses_server.upstreams.targets import Target

# Models as Codex CLI describes them to itself (its `ModelInfo`), so that it offers the tools that fit.
#
# Codex asks for them as `models` in the answer to `GET /v1/models?client_version=…`, and reads the same from
# a file (`model_catalog_json`). Its versions need different fields: all fields that any version needs are
# there.

MOST_MODELS: Final = 500
"""The number of described models: each has its own instructions."""
_INSTRUCTIONS: Final = "codex_instructions.md"
_TOOL_OUTPUT: Final = 10_000  # tokens of a command's output that the model gets
_USABLE_PERCENT: Final = 95  # of the context window, before Codex compacts
_FULL_PERCENT: Final = 90  # of it, when Codex summarises the conversation
_EFFORTS: Final = {
    "low": "Quick answers with little reasoning",
    "medium": "Reasoning as the task needs it",
    "high": "More reasoning for hard tasks",
}


def codex_model(model: EnrichedModelData, priority: int) -> dict[str, Any]:
    """A model as an entry of Codex's catalogue; a lower `priority` puts it higher in the list.

    Patches are a tool with free text, which the bridge turns into a function for models that have only
    functions. MCP servers' tools are offered with the others, not behind a search, for which models have to
    be trained. A model without tool calls can be requested by name, but is not shown in the list.
    """
    window = model.context_window
    efforts = _EFFORTS if model.reasoning else {}
    return {
        "slug": model.id,
        "display_name": model.name,
        "description": f"{model.id}, served by {model.upstream}",
        "default_reasoning_level": "medium" if efforts else None,
        "supported_reasoning_levels": [
            {"effort": effort, "description": what} for effort, what in efforts.items()
        ],
        "shell_type": "unified_exec",
        "visibility": "list" if model.tools else "hide",
        "supported_in_api": True,
        "priority": priority,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": _instructions(),
        "supports_reasoning_summaries": bool(efforts),
        "default_reasoning_summary": "auto" if efforts else "none",
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",
        "web_search_tool_type": "text",
        "truncation_policy": {"mode": "tokens", "limit": _TOOL_OUTPUT},
        "supports_parallel_tool_calls": True,
        "supports_image_detail_original": False,
        "context_window": window,
        "max_context_window": window,
        "auto_compact_token_limit": min(window * _FULL_PERCENT // 100, model.max_input_tokens),
        "effective_context_window_percent": _USABLE_PERCENT,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"] if model.images else ["text"],
        "supports_search_tool": False,
    }


@cache
def _instructions() -> str:
    return resources.files(__package__).joinpath(_INSTRUCTIONS).read_text("utf-8")


FRESH_SECONDS: Final = 60.0
_SOONEST: Final = 1.0  # the shortest time in seconds between two discoveries
_AT_ONCE: Final = 20  # models that are described before others have the event loop: some milliseconds
_log = structlog.get_logger(__name__)


class Listing:
    """Asks all upstreams for their models: one discovery at a time, repeated when the answers are `fresh`
    seconds old or a client asks for it.

    Keeps the last list of an upstream that does not answer; its models can still be requested. `version`
    rises with each discovery that changed something; `on_change` calls with it.
    """

    def __init__(
        self,
        router: Router,
        fresh: float = FRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        prices: Prices | None = None,
    ) -> None:
        self._router = router
        self._prices = prices
        self._fresh = fresh
        self._clock = clock
        self._lock = asyncio.Lock()
        self._listed_at: float | None = None
        self._discoveries = 0
        self._listed: list[dict[str, Any]] = []
        self._shown: list[EnrichedModelData] = []
        self._callbacks: list[Callable[[int], None]] = []
        self.version = 0

    async def models(self, *, refresh: bool = False) -> list[dict[str, Any]]:
        """Each model as an object of `/v1/models`, with its known capabilities. `refresh` asks the upstreams
        now."""
        await self._discover(refresh)
        return list(self._listed)

    async def enriched(self, *, refresh: bool = False) -> list[EnrichedModelData]:
        """Return the models with their limits and abilities filled in, for VS Code."""
        await self._discover(refresh)
        return list(self._shown)

    async def for_codex(self) -> list[dict[str, Any]]:
        """Return the models as Codex describes them, the first `MOST_MODELS` of them."""
        shown = (await self.enriched())[:MOST_MODELS]
        return [codex_model(model, priority) for priority, model in enumerate(shown)]

    def on_change(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Register a callback for the new `version` when the list changes; returns the function that
        unregisters it."""
        self._callbacks.append(callback)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    def _as_object(self, name: str, owner: str) -> dict[str, Any]:
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
        target = self._router.resolve(name)
        model = target.model
        known = self._router.catalog.capabilities(owner, model)
        names = [model, *(each.model for each in target.fallbacks)]
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
            efforts=_efforts(target, known.efforts),
            pricing="" if self._prices is None else self._prices.label(name, names),
        )

    def _named(self) -> Iterator[tuple[str, str]]:
        """Yield (model, name of its upstream), each once, those of the settings first."""
        names = dict(self._router.names())
        yield from names.items()
        for upstream in self._router.upstreams():
            for model in self._router.catalog.listed(upstream.name):
                if model not in names and self._router.serves(upstream, model):
                    names[model] = upstream.name
                    yield model, upstream.name

    async def _discover(self, refresh: bool) -> None:
        seen = self._discoveries
        async with self._lock:
            # use the result of a discovery that ended during the wait
            if self._discoveries > seen or not self._is_due(refresh):
                return
            upstreams = list(self._router.upstreams())
            answers = await asyncio.gather(*map(_ask, upstreams))
            for upstream, models in zip(upstreams, answers, strict=True):
                if models is not None:
                    self._router.catalog.report(upstream.name, models)
            listed, shown = list[dict[str, Any]](), list[EnrichedModelData]()
            for name, owner in self._named():
                if len(shown) % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                listed.append(self._as_object(name, owner))
                shown.append(self._enriched(name, owner))
            self._listed_at = self._clock()
            self._discoveries += 1
            self._listed = listed
            if shown != self._shown or not self.version:
                self._shown = shown
                self.version += 1
                self._notify()

    def _is_due(self, refresh: bool) -> bool:
        if self._listed_at is None:
            return True
        return self._clock() - self._listed_at > (_SOONEST if refresh else self._fresh)

    def _notify(self) -> None:
        for callback in list(self._callbacks):
            try:
                callback(self.version)
            except Exception:
                _log.exception("models.callback_failed")


def first_choice(models: Iterable[Mapping[str, Any]]) -> str | None:
    """The first model of a `/v1/models` list that supports tools, else the first; None if there are none."""
    listed = {name: each for each in models if isinstance(name := each.get("id"), str)}
    able = (name for name, each in listed.items() if _calls_tools(each.get("capabilities")))
    return next(able, None) or next(iter(listed), None)


def _calls_tools(capabilities: Any) -> bool:
    return isinstance(capabilities, Mapping) and bool(capabilities.get("tools"))


async def _ask(upstream: Upstream) -> list[ReportedModel] | None:
    """Ask the upstream for its list; None if the list does not say."""
    try:
        return await upstream.models()
    except UpstreamError as error:
        details = {"said": error.said} if error.said else {}
        _log.warning(
            "models.not_listed",
            upstream=upstream.name,
            status=error.http_status,
            code=error.code,
            cause=error.cause,
            **details,
        )
        return None


def _efforts(target: Target, of_model: Sequence[str] | None) -> tuple[str, ...] | None:
    """The levels that requests for a model may ask for, the least first; None if nothing is known."""
    of_server = getattr(target.options, "efforts", None)  # some dialects have this option
    if of_server is None and of_model is None:
        return None
    accepted = accepted_efforts(of_server, of_model)
    return tuple(level for level in LEVELS if level in accepted)


_KEPT: Final = 16  # remembered versions


class Changes(Struct, frozen=True):
    """The ids of models that were added, removed or changed since that version."""

    since: str
    added: list[str]
    removed: list[str]
    changed: list[str]


class ListVersions:
    """The latest versions of a list of models, to compute changes since a client last read it. A version is a
    digest of the list, so every worker computes the same one; a worker knows the changes only between
    versions that it has seen."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, dict[str, str]] = OrderedDict()

    def record(self, models: Iterable[dict[str, Any]]) -> str:
        """The version of this list: objects with an `id`."""
        listed = {model["id"]: _digest(encode(model)) for model in models}
        version = _digest(encode(list(listed.items())))
        self._seen[version] = listed
        self._seen.move_to_end(version)
        while len(self._seen) > _KEPT:
            self._seen.popitem(last=False)
        return version

    def changes(self, since: str, version: str) -> Changes | None:
        """The changes between two versions; None if one of them is unknown (any more)."""
        before, now = self._seen.get(since), self._seen.get(version)
        if before is None or now is None:
            return None
        return Changes(
            since,
            [name for name in now if name not in before],
            [name for name in before if name not in now],
            [name for name in now if name in before and before[name] != now[name]],
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
