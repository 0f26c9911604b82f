"""Whether the process lives and whether it takes requests."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse


async def live(_request: Request) -> JSONResponse:
    """`GET /healthz`: this process runs."""
    return JSONResponse({"status": "ok"})


async def ready(_request: Request) -> JSONResponse:
    """`GET /readyz`: it has started and takes requests."""
    return JSONResponse({"status": "ready"})
