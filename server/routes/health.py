"""Whether the process lives, whether it takes requests, and what it counts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.event_logs.base import LogError
from server.readiness import check_log, check_store
from server.service import service_of

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def live(_request: Request) -> JSONResponse:
    """`GET /healthz`: this process runs."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> JSONResponse:
    """`GET /readyz`: it takes requests and its store answers; else 503 with the reason. An event log that
    can't be reached is reported, and does not make it unready: what is stored can be read without it."""
    service = service_of(request)
    service.gate.check_open()
    await check_store(service.store)
    gate = service.gate
    state = {
        "status": "ready",
        "running": gate.running,
        "waiting": gate.waiting.count,
        "readers": gate.readers.count,
    }
    try:
        await check_log(service.runs.event_log)
    except LogError as error:
        state["event_log"] = error.message
    return JSONResponse(state)


async def metrics(request: Request) -> Response:
    """`GET /metrics`, for Prometheus and for operators alone: it counts what all clients did. Of this process
    alone, where there are several."""
    service = service_of(request)
    service.operators.check(request)
    return Response(service.metrics.text(), media_type=_METRICS_TYPE)
