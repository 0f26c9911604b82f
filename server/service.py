"""What the endpoints share: the settings, the router and the store of this application."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from bridge.seal import Sealer
from server.auth import Operators
from server.budget import Room
from server.gate import Gate
from server.metrics import Metrics
from server.quotas.quotas import Quotas
from server.readiness import Watch
from server.runs.active import ActiveRuns
from server.runs.metering import Meters
from server.runs.support import RunSupport
from server.schemas.workers import SchemaJudge
from server.sessions.base import ResponseStore
from server.settings import Settings
from server.upstreams.listing import Listing
from server.upstreams.routing import Router
from server.upstreams.versions import ListVersions
from server.usage_keeping import UsageKeeper

if TYPE_CHECKING:
    from server.telemetry.responses import Spans
    from server.traces.folder import Traces


@dataclass(frozen=True, slots=True)
class Service:
    """One per application."""

    settings: Settings
    router: Router
    listing: Listing
    store: ResponseStore
    sealer: Sealer
    operators: Operators
    gate: Gate
    quotas: Quotas
    room: Room
    metrics: Metrics
    runs: RunSupport
    judge: SchemaJudge
    watch: Watch
    meters: Meters
    usage: UsageKeeper
    traces: Traces | None = None
    spans: Spans | None = None
    running: ActiveRuns = field(default_factory=ActiveRuns)
    lists: ListVersions = field(default_factory=ListVersions)


def service_of(request: Request) -> Service:
    """The service of the application that this request came to."""
    service: Service = request.scope["app"].state.service
    return service
