"""The models, in the form of each client's API; and `GET /v1/usage`."""

from __future__ import annotations

import datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.dialects.table import Found, surface_at
from openresponses_bridge.models.information import EnrichedModelData
from openresponses_server.api.parameters import flag_of
from openresponses_server.http.access import may_use
from openresponses_server.http.headers import fields_of
from openresponses_server.requests.service import service_of
from openresponses_server.surfaces.endpoint import head_of
from openresponses_server.upstreams.routing.models import unknown_model

_CODEX: Final = "client_version"


async def list_models(request: Request) -> JSONResponse:
    """All known models that the key may use, in the form of the client's API; an upstream that accepts every
    name may serve more. `?refresh=true` lists the upstreams' models again. In OpenAI's form Codex, which
    sends its `client_version`, also gets `models` in its format."""
    match = _found(request)
    if match.surface.models is not None:
        head = head_of(match, request, service_of(request))
        return JSONResponse(match.surface.models.page(await _enriched(request), head))
    listed: dict[str, Any] = {"object": "list", "data": await _listed(request)}
    if _CODEX in request.query_params:
        shown = await service_of(request).listing.for_codex()
        listed["models"] = [model for model in shown if may_use(model["slug"])]
    return JSONResponse(listed)


async def get_model(request: Request) -> JSONResponse:
    """One model. 404 `model_not_found` for an unknown name."""
    name, match = request.path_params["model"], _found(request)
    if match.surface.models is not None:
        meant = match.surface.models.named(name, head_of(match, request, service_of(request)))
        for known in await _enriched(request):
            if known.id == meant:
                return JSONResponse(match.surface.models.model(known, name))
        raise unknown_model(name)
    for model in await _listed(request):
        if model["id"] == name:
            return JSONResponse(model)
    raise unknown_model(name)


def _found(request: Request) -> Found:
    return surface_at(request.scope["path"], fields_of(request.scope))


async def _enriched(request: Request) -> list[EnrichedModelData]:
    models = await service_of(request).listing.enriched(refresh=flag_of(request.query_params, "refresh"))
    return [model for model in models if may_use(model.id)]


async def _listed(request: Request) -> list[dict[str, Any]]:
    models = await service_of(request).listing.models(refresh=flag_of(request.query_params, "refresh"))
    return [model for model in models if may_use(model["id"])]


# `GET /v1/usage`: the usage of the key's own responses.


async def usage(request: Request) -> JSONResponse:
    """Sums, rows by day (UTC) and model, and agents; `?since=2026-01-31` omits earlier days."""
    since = request.query_params.get("since", "")
    if since and not _is_day(since):
        raise invalid("since", f"it must be a day such as 2026-01-31, not {since[:40]!r}")
    return JSONResponse(await service_of(request).usage.report(request.state.owner, since))


def _is_day(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
