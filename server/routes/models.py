"""`GET /v1/models[/{id}]`: what can be asked for by name."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from server.service import service_of
from server.upstreams.routing import unknown_model


async def list_models(request: Request) -> JSONResponse:
    """All models that are known by name; an upstream that takes every name may serve more."""
    models = service_of(request).router.models()
    return JSONResponse({"object": "list", "data": [_model(name, owner) for name, owner in models]})


async def get_model(request: Request) -> JSONResponse:
    """One of them. 404 `model_not_found` for another name."""
    wanted = request.path_params["model"]
    for name, owner in service_of(request).router.models():
        if name == wanted:
            return JSONResponse(_model(name, owner))
    raise unknown_model(wanted)


def _model(name: str, owner: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}
