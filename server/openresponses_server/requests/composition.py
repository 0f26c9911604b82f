"""Builds a service from its settings, and runs its background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from openresponses_server.hosted.base import HostedProvider
from openresponses_server.hosted.mcp.approvals import UseOnce
from openresponses_server.http.auth import NOBODY, Keys, Operators
from openresponses_server.http.managed_keys import KeyBook
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.memory import available_for
from openresponses_server.limits.owners import OwnerLimits
from openresponses_server.limits.quotas import Quotas
from openresponses_server.observation.contents import Contents
from openresponses_server.observation.metrics import Metrics
from openresponses_server.observation.trace_folder import Traces
from openresponses_server.observation.tracing import ResponseSpans, is_installed
from openresponses_server.requests.background import cancel_on_signal, claim, run_stored
from openresponses_server.requests.prompts import read_prompts
from openresponses_server.requests.service import Service
from openresponses_server.runs.metering import Meters
from openresponses_server.runs.schema_workers import SchemaJudge
from openresponses_server.runs.support import RunSupport
from openresponses_server.settings import Settings, SettingsError, seconds_of
from openresponses_server.settings.data_folder import ServerSealer
from openresponses_server.settings.files import Mistakes
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.keys import KeyKeeper
from openresponses_server.store.measured import measured_store
from openresponses_server.store.readiness import StoreMonitor
from openresponses_server.store.stores import open_event_log, serving_store
from openresponses_server.store.usage import UsageBook
from openresponses_server.store.usage_keeper import UsageKeeper
from openresponses_server.tasks import end_tasks
from openresponses_server.upstreams.catalog import is_pattern
from openresponses_server.upstreams.listing import Listing
from openresponses_server.upstreams.prices import Prices
from openresponses_server.upstreams.routing.models import Router, build_router
from openresponses_server.upstreams.routing.routes import RouteTable
from openresponses_server.upstreams.routing.states import Routes
from openresponses_server.upstreams.targets import secrets_of

if TYPE_CHECKING:
    from openresponses_server.hosted.commands import WebCommands
    from openresponses_server.http.tokens import Tokens
    from openresponses_server.observation.measurements import Measurements


def compose(settings: Settings) -> Service:
    """Build the service. Raises SettingsError for settings that can't be used."""
    sealer = ServerSealer(settings.sealing_key_env)
    owners = OwnerLimits()
    gate = Gate(settings.limits, owners)
    available = available_for(settings.limits)
    measured = _measurements(settings)
    mistakes = Mistakes()
    with mistakes.kept():
        keys = client_keys(settings, owners)
    with mistakes.kept():
        hosted = hosted_providers(settings, sealer, lambda *given: store.use_once(*given))
    with mistakes.kept():
        router = build_router(settings, sealer, measured=measured)
    with mistakes.kept():
        unmeasured = serving_store(settings)
    with mistakes.kept():
        prompts = read_prompts(settings.prompts)
    with mistakes.kept():
        open_event_log(settings.event_log, Path())
    mistakes.check()
    filed = router.catalog.filed_prices
    prices = Prices(settings.prices, filed) if settings.prices or filed else None
    metrics = Metrics(gate, named_models(settings))
    store = measured_store(unmeasured, metrics.called)
    runs = RunSupport(settings, store, metrics)
    book = UsageBook(any_key=any(each.pass_through for each in settings.upstreams))
    traces = None if settings.trace.folder is None else Traces(settings.trace, secrets_of(settings))
    return Service(
        settings=settings,
        router=router,
        routes=_route_table(settings, router, metrics),
        listing=Listing(router, settings.discovery, prices=prices),
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
        quotas=_quotas(settings, gate, store, metrics, owners, prices),
        available=available,
        store_monitor=StoreMonitor(store, runs.event_log),
        metrics=metrics,
        traces=traces,
        spans=_spans(router, measured),
        contents=Contents(secrets_of(settings)) if settings.span_content and is_installed() else None,
        hosted=hosted,
        commands=_web_commands(settings, hosted),
        prompts=prompts,
    )


def _route_table(settings: Settings, router: Router, metrics: Metrics) -> RouteTable:
    """The routes of the configured upstreams; the metrics show their states and their WebSockets."""
    circuits = {each.name: each.settings.circuit for each in router.configured()}
    routes = RouteTable(Routes(settings.balance, circuits), list(circuits), moved=metrics.moved)
    metrics.routes = routes.counts
    for each in router.configured():
        if each.sockets is not None:
            metrics.add_sockets(each.name, each.sockets)
    return routes


def _quotas(
    settings: Settings,
    gate: Gate,
    store: ResponseStore,
    metrics: Metrics,
    owners: OwnerLimits,
    prices: Prices | None,
) -> Quotas:
    return Quotas(
        settings,
        store.stock,
        gate,
        store=store.name,
        refused=metrics.refused,
        failed=metrics.limits_failed,
        owners=owners,
        prices=prices,
    )


def _measurements(settings: Settings) -> Measurements | None:
    if not is_installed():
        return None
    from openresponses_server.observation.measurements import measurements

    return measurements(named_models(settings))


def _spans(router: Router, measured: Measurements | None) -> ResponseSpans | None:
    if not is_installed():
        return None
    from openresponses_server.observation.spans import Spans
    from openresponses_server.upstreams.spans import known_of

    return Spans({each.name: known_of(each.upstream) for each in router.configured()}, measured)


def _web_commands(settings: Settings, hosted: Sequence[HostedProvider]) -> WebCommands | None:
    if settings.web_search is None:
        return None
    from openresponses_server.hosted.commands import WebCommands
    from openresponses_server.hosted.web import WebSearch

    search = next(each for each in hosted if isinstance(each, WebSearch))
    return WebCommands(search, settings.tools)


def hosted_providers(settings: Settings, sealer: ServerSealer, use_once: UseOnce) -> list[HostedProvider]:
    """Return the providers of the tools that the server runs. Raises SettingsError."""
    providers: list[HostedProvider] = []
    mistakes = Mistakes()
    if settings.web_search is not None:
        from openresponses_server.hosted.web import WebSearch

        with mistakes.kept():
            providers.append(WebSearch(settings.web_search))
    for each in settings.functions:
        from openresponses_server.hosted.functions import ModuleFunctions

        with mistakes.kept():
            providers.append(ModuleFunctions(each))
    if settings.mcp_servers or settings.mcp_hosts or settings.mcp_private_hosts:
        from openresponses_server.hosted.mcp.provider import McpServers

        with mistakes.kept():
            providers.append(
                McpServers(settings, partial(sealer.derived_keys, "approvals of calls"), use_once)
            )
    mistakes.check()
    return providers


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
            f"{error.name} is not installed (pip install 'openresponses-server[oidc]')", "$.oidc"
        ) from error
    return Tokens(settings.oidc, owners)


def key_keeper(keys: Keys, store: ResponseStore) -> KeyKeeper | None:
    """Return the keeper that reads the managed keys from the store. Raises SettingsError for a store in
    memory."""
    if keys.managed is None:
        return None
    if store.keys is None:
        raise SettingsError(
            "managed keys need a store that all processes share: set `store` to sqlite: or postgresql+psycopg://…",
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
    """Share the states of the routes with the other workers, if there are several and a Redis to do it."""
    url = service.settings.redis
    if url is None or not service.router.has_alternatives:
        yield
        return
    from openresponses_server.upstreams.routing.shared import RedisRoutes

    async with RedisRoutes(url, service.routes, service.metrics.limits_failed).going():
        yield


async def _count_waiting(service: Service) -> int:
    """The number of queued background responses that any worker may claim."""
    total, _ = await service.store.waiting(NOBODY, service.settings.limits.background)
    return total
