"""Health checks, metrics and the states of routes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from openresponses_server.errors import Outage, shutting_down
from openresponses_server.requests.service import service_of

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def live(_request: Request) -> JSONResponse:
    """`GET /healthz`: this process runs."""
    return JSONResponse({"status": "ok"})


async def hello(_request: Request) -> Response:
    """`HEAD /api/hello`: what Claude Code requests to open a connection before it needs one."""
    return Response()


async def ready(request: Request) -> JSONResponse:
    """`GET /readyz`: requests are accepted and the store can be written to; else 503 with the reason, as of
    the last check. An unreachable event log and the number of routes that are not used are reported, but do
    not make the server unready."""
    service = service_of(request)
    gate, monitor = service.gate, service.store_monitor
    if gate.leaving:
        raise shutting_down()
    await monitor.seen()
    if (cause := monitor.store_outage) is not None:
        raise Outage(cause.code, cause.message)
    state = {
        "status": "ready",
        "running": gate.running,
        "waiting": gate.waiting.count,
        "readers": gate.readers.count,
    }
    if monitor.log_outage is not None:
        state["event_log"] = monitor.log_outage.message
    if outs := service.routes.outs():
        state["routes_out"] = len(outs)
    return JSONResponse(state)


async def routes(request: Request) -> JSONResponse:
    """`GET /v1/routes`: the state of each route. For operators only, because they cover all clients."""
    service = service_of(request)
    service.operators.check(request)
    return JSONResponse({"object": "list", "data": service.routes.listed(service.router.configured())})


async def metrics(request: Request) -> Response:
    """`GET /metrics`: metrics for Prometheus, of all workers of this host that count together. For operators
    only, because they cover all clients."""
    service = service_of(request)
    service.operators.check(request)
    return Response(service.metrics.text(), media_type=_METRICS_TYPE)
