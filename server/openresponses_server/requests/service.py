"""The state that an application's endpoints share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from openresponses_bridge.seal import Sealer
from openresponses_server.hosted.base import HostedProvider
from openresponses_server.http.access import ACCESS, check_access, check_known, refused
from openresponses_server.http.auth import NO_KEY, NOBODY, Keys, Operators
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.memory import Available
from openresponses_server.limits.quotas import Quotas
from openresponses_server.observation.contents import Contents
from openresponses_server.observation.metrics import Metrics
from openresponses_server.observation.trace_folder import Traces
from openresponses_server.observation.tracing import ResponseSpans
from openresponses_server.requests.prompts import Prompt
from openresponses_server.requests.refused_fields import FieldRefusals
from openresponses_server.runs.keeper import Keeper
from openresponses_server.runs.metering import Meters
from openresponses_server.runs.run import ActiveRuns
from openresponses_server.runs.schema_workers import SchemaJudge
from openresponses_server.runs.support import RunSupport
from openresponses_server.settings import Settings
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.keys import KeyKeeper
from openresponses_server.store.readiness import StoreMonitor
from openresponses_server.store.usage_keeper import UsageKeeper
from openresponses_server.upstreams.listing import Listing, ListVersions
from openresponses_server.upstreams.prices import Prices
from openresponses_server.upstreams.refusals import ImageRefusals, LearnedLimits
from openresponses_server.upstreams.routing.models import Router
from openresponses_server.upstreams.routing.routes import RouteTable
from openresponses_server.upstreams.targets import Target

if TYPE_CHECKING:
    from openresponses_server.hosted.commands import WebCommands


@dataclass(frozen=True, slots=True)
class Service:
    """One per application."""

    settings: Settings
    router: Router
    routes: RouteTable
    listing: Listing
    store: ResponseStore
    sealer: Sealer
    keys: Keys
    operators: Operators
    gate: Gate
    quotas: Quotas
    available: Available
    metrics: Metrics
    runs: RunSupport
    keeper: Keeper
    judge: SchemaJudge
    store_monitor: StoreMonitor
    meters: Meters
    usage: UsageKeeper
    prices: Prices | None = None
    """What models cost; None: no price is known."""
    key_keeper: KeyKeeper | None = None
    """What reads the managed keys; None: none are accepted."""
    traces: Traces | None = None
    spans: ResponseSpans | None = None
    contents: Contents | None = None
    running: ActiveRuns = field(default_factory=ActiveRuns)
    lists: ListVersions = field(default_factory=ListVersions)
    image_refusals: ImageRefusals = field(default_factory=ImageRefusals)
    field_refusals: FieldRefusals = field(default_factory=FieldRefusals)
    learned_limits: LearnedLimits = field(default_factory=LearnedLimits)
    hosted: Sequence[HostedProvider] = ()
    """What runs the tools that the server runs itself."""
    commands: WebCommands | None = None
    """What searches for clients that do so themselves."""
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    """The prompts of the operator's by their ids."""


def target_of(service: Service, model: str | None, owner: str) -> Target:
    """Return the target of a request of this owner for this model. Raises HttpError 401 and 403 for a key
    that is not for it, whether there is such a model or not, and what `Router.target_of` raises."""
    check_access(model or service.settings.default_model or "")
    target = service.router.target_of(model, owner)
    if (access := ACCESS.get()) is None or access.is_known:
        return target
    checking = [each for each in (target, *target.fallbacks) if each.checks_key_of(owner)]
    if not checking:
        if owner == NOBODY and target.passes_key:
            raise refused(NO_KEY)
        check_known("use a model whose upstream is not sent the client's key")
    return checking[0]._replace(fallbacks=tuple(checking[1:]))


def service_of(request: Request) -> Service:
    """The service of the application that this request came to."""
    service: Service = request.scope["app"].state.service
    return service
