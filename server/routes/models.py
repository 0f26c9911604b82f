"""`GET /v1/models[/{id}]`: what can be asked for by name."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from server.service import service_of
from server.upstreams.routing import unknown_model


async def list_models(request: Request) -> JSONResponse:
    """All models that are known by name; an upstream that takes every name may serve more."""
    return JSONResponse({"object": "list", "data": await service_of(request).listing.models()})


async def get_model(request: Request) -> JSONResponse:
    """One of them. 404 `model_not_found` for another name."""
    wanted = request.path_params["model"]
    for model in await service_of(request).listing.models():
        if model["id"] == wanted:
            return JSONResponse(model)
    raise unknown_model(wanted)
