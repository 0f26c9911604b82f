"""Whether the process lives, whether it takes requests, and what it counts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.service import service_of

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NO_ID = "resp_0"  # no response has it; asking for it shows whether the store answers


async def live(_request: Request) -> JSONResponse:
    """`GET /healthz`: this process runs."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> JSONResponse:
    """`GET /readyz`: it takes requests and its store answers; else 503 with the reason."""
    service = service_of(request)
    service.gate.check_open()
    await service.store.get(_NO_ID)
    return JSONResponse({"status": "ready", "running": service.gate.running})


async def metrics(request: Request) -> Response:
    """`GET /metrics`, for Prometheus; of this process alone, where there are several."""
    return Response(service_of(request).metrics.text(), media_type=_METRICS_TYPE)
