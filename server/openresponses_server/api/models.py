"""`GET /v1/models[/{id}]`: the models, in OpenAI's format and for Anthropic's clients in theirs; and `GET
/v1/usage`."""

from __future__ import annotations

import datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from openresponses_bridge.dialects.anthropic_messages import model_body, model_page
from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.models.information import EnrichedModelData
from openresponses_server.errors import is_anthropic_client
from openresponses_server.requests.service import service_of
from openresponses_server.upstreams.routing import unknown_model

_CODEX: Final = "client_version"
_SWITCH: Final = {"true": True, "1": True, "false": False, "0": False}


async def list_models(request: Request) -> JSONResponse:
    """All known models; an upstream that accepts every name may serve more. `?refresh=true` lists the
    upstreams' models again. Codex, which sends its `client_version`, also gets `models` in its format;
    Anthropic's clients get a page."""
    if is_anthropic_client(request.headers):
        return JSONResponse(model_page(await _enriched(request), request.query_params))
    listed: dict[str, Any] = {"object": "list", "data": await _listed(request)}
    if _CODEX in request.query_params:
        listed["models"] = await service_of(request).listing.for_codex()
    return JSONResponse(listed)


async def get_model(request: Request) -> JSONResponse:
    """One model. 404 `model_not_found` for an unknown name."""
    wanted = request.path_params["model"]
    if is_anthropic_client(request.headers):
        for known in await _enriched(request):
            if known.id == wanted:
                return JSONResponse(model_body(known))
        raise unknown_model(wanted)
    for model in await _listed(request):
        if model["id"] == wanted:
            return JSONResponse(model)
    raise unknown_model(wanted)


async def _enriched(request: Request) -> list[EnrichedModelData]:
    return await service_of(request).listing.enriched(refresh=wants_refresh(request))


async def _listed(request: Request) -> list[dict[str, Any]]:
    return await service_of(request).listing.models(refresh=wants_refresh(request))


def wants_refresh(request: Request) -> bool:
    """Whether the upstreams' models must be listed again. Raises InvalidRequestError."""
    wanted = request.query_params.get("refresh", "false")
    if wanted not in _SWITCH:
        raise invalid("refresh", f"it is true or false, not {wanted[:40]!r}")
    return _SWITCH[wanted]


# `GET /v1/usage`: the usage of the key's own responses.


async def usage(request: Request) -> JSONResponse:
    """Sums, rows by day (UTC) and model, and agents; `?since=2026-01-31` omits earlier days."""
    since = request.query_params.get("since", "")
    if since and not _is_day(since):
        raise invalid("since", f"it is a day as 2026-01-31, not {since[:40]!r}")
    return JSONResponse(await service_of(request).usage.report(request.state.owner, since))


def _is_day(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
