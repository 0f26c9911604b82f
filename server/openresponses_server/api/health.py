"""Whether the process lives, whether it takes requests, and what it counts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from openresponses_server.errors import shutting_down
from openresponses_server.requests.service import service_of

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def live(_request: Request) -> JSONResponse:
    """`GET /healthz`: this process runs."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> JSONResponse:
    """`GET /readyz`: it takes requests and its store takes what is written; else 503 with the reason, known
    from the last look at them. An event log that can't be reached is reported, and does not make it unready:
    what is stored can be read without it."""
    service = service_of(request)
    gate, watch = service.gate, service.watch
    if gate.leaving:
        raise shutting_down()
    await watch.seen()
    if watch.store_outage is not None:
        raise watch.store_outage
    state = {
        "status": "ready",
        "running": gate.running,
        "waiting": gate.waiting.count,
        "readers": gate.readers.count,
    }
    if watch.log_outage is not None:
        state["event_log"] = watch.log_outage.message
    return JSONResponse(state)


async def metrics(request: Request) -> Response:
    """`GET /metrics`, for Prometheus and for operators alone: it counts what all clients did. Of all
    workers of this host that count together."""
    service = service_of(request)
    service.operators.check(request)
    return Response(service.metrics.text(), media_type=_METRICS_TYPE)
