"""Builds a service from its settings, and runs its background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from openresponses_server.hosted.base import HostedProvider
from openresponses_server.hosted.mcp.approvals import UseOnce
from openresponses_server.http.auth import NOBODY, Keys, Operators
from openresponses_server.http.managed_keys import KeyBook
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.memory import available_for
from openresponses_server.limits.owners import OwnerLimits
from openresponses_server.limits.quotas import Quotas
from openresponses_server.observation.metrics import Metrics
from openresponses_server.observation.trace_folder import Traces
from openresponses_server.observation.tracing import is_installed
from openresponses_server.requests.background import cancel_on_signal, claim, run_stored
from openresponses_server.requests.prompts import read_prompts
from openresponses_server.requests.service import Service
from openresponses_server.runs.metering import Meters
from openresponses_server.runs.schema_workers import SchemaJudge
from openresponses_server.runs.support import RunSupport
from openresponses_server.settings import Settings, SettingsError, seconds_of
from openresponses_server.settings.data_folder import ServerSealer
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.keys import KeyKeeper
from openresponses_server.store.measured import measured_store
from openresponses_server.store.readiness import StoreMonitor
from openresponses_server.store.stores import serving_store
from openresponses_server.store.usage import UsageBook
from openresponses_server.store.usage_keeper import UsageKeeper
from openresponses_server.tasks import end_tasks
from openresponses_server.upstreams.catalog import is_pattern
from openresponses_server.upstreams.choice import Routes
from openresponses_server.upstreams.listing import Listing
from openresponses_server.upstreams.prices import Prices
from openresponses_server.upstreams.routes import RouteTable
from openresponses_server.upstreams.routing import build_router
from openresponses_server.upstreams.targets import secrets_of

if TYPE_CHECKING:
    from openresponses_server.http.tokens import Tokens


def compose(settings: Settings) -> Service:
    """Build the service. Raises SettingsError for settings that can't be used."""
    sealer = ServerSealer(settings.sealing_key_env)
    owners = OwnerLimits()
    keys = client_keys(settings, owners)
    gate = Gate(settings.limits, owners)
    available = available_for(settings.limits)
    router = build_router(settings, sealer)
    filed = router.catalog.filed_prices
    prices = Prices(settings.prices, filed) if settings.prices or filed else None
    metrics = Metrics(gate, named_models(settings))
    circuits = {each.name: each.settings.circuit for each in router.configured()}
    routes = RouteTable(Routes(settings.balance, circuits), list(circuits), moved=metrics.moved)
    metrics.routes = routes.counts
    store = measured_store(serving_store(settings), metrics.called)
    runs = RunSupport(settings, store, metrics)
    book = UsageBook(any_key=any(each.pass_through for each in settings.upstreams))
    traces = None if settings.trace.folder is None else Traces(settings.trace, secrets_of(settings))
    spans = None
    if is_installed():
        from openresponses_server.observation.spans import Spans

        spans = Spans()
    hosted = hosted_providers(settings, sealer, store.use_once)
    commands = None
    if settings.web_search is not None:
        from openresponses_server.hosted.commands import WebCommands
        from openresponses_server.hosted.web import WebSearch

        search = next(each for each in hosted if isinstance(each, WebSearch))
        commands = WebCommands(search, settings.tools)
    prompts = read_prompts(settings.prompts)
    return Service(
        settings=settings,
        router=router,
        routes=routes,
        listing=Listing(router, settings.discovery),
        store=store,
        runs=runs,
        keeper=runs.keeper,
        judge=SchemaJudge(settings.limits.schema_seconds),
        meters=Meters(book, settings.tokenizers),
        usage=UsageKeeper(book, store.usage, seconds_of(settings.usage_retention)),
        prices=prices,
        sealer=sealer,
        keys=keys,
        key_keeper=key_keeper(keys, store),
        operators=Operators(settings.operator_keys, keys),
        gate=gate,
        quotas=Quotas(
            settings,
            store.stock,
            gate,
            store=store.name,
            refused=metrics.refused,
            failed=metrics.limits_failed,
            owners=owners,
            prices=prices,
        ),
        available=available,
        store_monitor=StoreMonitor(store, runs.event_log),
        metrics=metrics,
        traces=traces,
        spans=spans,
        hosted=hosted,
        commands=commands,
        prompts=prompts,
    )


def hosted_providers(settings: Settings, sealer: ServerSealer, use_once: UseOnce) -> list[HostedProvider]:
    """What runs the tools that the server runs itself. Raises SettingsError."""
    found: list[HostedProvider] = []
    if settings.web_search is not None:
        from openresponses_server.hosted.web import WebSearch

        found.append(WebSearch(settings.web_search))
    if settings.functions:
        from openresponses_server.hosted.functions import ModuleFunctions

        found += map(ModuleFunctions, settings.functions)
    if settings.mcp_servers or settings.mcp_hosts or settings.mcp_private_hosts:
        from openresponses_server.hosted.mcp.provider import McpServers

        found.append(McpServers(settings, partial(sealer.derived_keys, "approvals of calls"), use_once))
    return found


def named_models(settings: Settings) -> set[str]:
    """The upstream names of the models in the settings."""
    named = (name for each in settings.upstreams for name in (each.model, *each.models))
    return {name for name in named if name is not None and not is_pattern(name)}


def client_keys(settings: Settings, owners: OwnerLimits) -> Keys:
    """The API keys that clients may authenticate with."""
    return Keys(
        settings.api_keys,
        tokens=accepted_tokens(settings, owners),
        pass_through=any(each.pass_through for each in settings.upstreams),
        managed=KeyBook(owners) if settings.managed_keys else None,
    )


def accepted_tokens(settings: Settings, owners: OwnerLimits) -> Tokens | None:
    """The tokens of the settings' identity providers. Raises SettingsError without the library for them."""
    if not settings.oidc:
        return None
    try:
        from openresponses_server.http.tokens import Tokens
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{error.name} is not installed (pip install 'openresponses-bridge[oidc]')", "$.oidc"
        ) from error
    return Tokens(settings.oidc, owners)


def key_keeper(keys: Keys, store: ResponseStore) -> KeyKeeper | None:
    """What keeps the managed keys as they are in the store. Raises SettingsError for a store in memory."""
    if keys.managed is None:
        return None
    if store.keys is None:
        raise SettingsError(
            "keys are managed in a store of all processes: set `store` to sqlite: or postgresql+psycopg://…",
            "$.managed_keys",
        )
    return KeyKeeper(keys.managed, store.keys)


@asynccontextmanager
async def service_lifespan(service: Service) -> AsyncIterator[None]:
    """The service's background tasks run inside this context; its connections are closed on the way out."""
    gate = service.gate
    try:
        async with (
            nullcontext() if service.key_keeper is None else service.key_keeper.going(),
            nullcontext() if service.keys.tokens is None else service.keys.tokens.going(),
            service.usage.going(),  # outermost: the last runs still report their usage
            service.quotas.going(),
            _shared_routes(service),
            service.runs.lifespan(
                gate,
                partial(run_stored, service),
                partial(claim, service),
                partial(cancel_on_signal, service),
            ),
            service.store_monitor.going(),
        ):
            waiting = None if service.runs.queue is None else partial(_count_waiting, service)
            keeping = [asyncio.create_task(service.metrics.keep(waiting))]
            if service.traces is not None:
                keeping.append(asyncio.create_task(service.traces.keep()))
            try:
                yield
            finally:
                await end_tasks(keeping)
    finally:
        service.judge.close()
        for provider in service.hosted:
            await provider.close()
        await service.store.close()
        await service.router.close()


@asynccontextmanager
async def _shared_routes(service: Service) -> AsyncIterator[None]:
    """Share what is known of the routes with the other workers, if there is something to share and a way."""
    url = service.settings.event_log
    if not url.startswith("redis") or not service.router.has_alternatives:
        yield
        return
    from openresponses_server.upstreams.redis_routes import RedisRoutes

    async with RedisRoutes(url, service.routes, service.metrics.limits_failed).going():
        yield


async def _count_waiting(service: Service) -> int:
    """The number of queued background responses that any worker may claim."""
    total, _ = await service.store.waiting(NOBODY, service.settings.limits.background)
    return total
