"""`GET /v1/models[/{id}]`: the models, in OpenAI's format and for Anthropic's and Google's clients in theirs;
and `GET /v1/usage`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from openresponses_bridge.dialects import gemini
from openresponses_bridge.dialects.anthropic_messages import (
    for_claude_code,
    from_claude_code,
    model_body,
    model_page,
)
from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.models.information import EnrichedModelData
from openresponses_server.api.parameters import flag_of
from openresponses_server.errors import is_anthropic_client, is_google_client
from openresponses_server.http.access import may_use
from openresponses_server.requests.service import service_of
from openresponses_server.upstreams.routing import Router, unknown_model

_CODEX: Final = "client_version"
# its own requests, and those of the SDK within it
_CLAUDE_CODE: Final = re.compile(r"claude-(code|cli)/")


async def list_models(request: Request) -> JSONResponse:
    """All known models that the key is for; an upstream that accepts every name may serve more.
    `?refresh=true` lists the upstreams' models again. Codex, which sends its `client_version`, also gets
    `models` in its format; Anthropic's clients get a page, Claude Code with names that it shows, Google's
    clients one of theirs."""
    if is_google_client(request.headers):
        return await google_models(request)
    if is_anthropic_client(request.headers):
        models = await _enriched(request)
        if is_claude_code(request.headers):
            models = [for_claude_code(model) for model in models]
        return JSONResponse(model_page(models, request.query_params))
    listed: dict[str, Any] = {"object": "list", "data": await _listed(request)}
    if _CODEX in request.query_params:
        shown = await service_of(request).listing.for_codex()
        listed["models"] = [model for model in shown if may_use(model["slug"])]
    return JSONResponse(listed)


async def get_model(request: Request) -> JSONResponse:
    """One model. 404 `model_not_found` for an unknown name."""
    wanted = request.path_params["model"]
    if is_google_client(request.headers):
        return await google_model(request)
    if is_anthropic_client(request.headers):
        service = service_of(request)
        meant = model_meant(wanted, request.headers, service.router)
        for known in await _enriched(request):
            if known.id == meant:
                return JSONResponse({**model_body(known), "id": wanted})
        raise unknown_model(wanted)
    for model in await _listed(request):
        if model["id"] == wanted:
            return JSONResponse(model)
    raise unknown_model(wanted)


async def google_models(request: Request) -> JSONResponse:
    """A page of all known models, in Google's format."""
    return JSONResponse(gemini.model_page(await _enriched(request), request.query_params))


async def google_model(request: Request) -> JSONResponse:
    """One model in Google's format. 404 for an unknown name."""
    wanted = request.path_params["model"]
    for known in await _enriched(request):
        if known.id == wanted:
            return JSONResponse(gemini.model_body(known))
    raise unknown_model(wanted)


def is_claude_code(headers: Mapping[str, str]) -> bool:
    """Whether these headers are Claude Code's."""
    return _CLAUDE_CODE.match(headers.get("user-agent", "")) is not None


def model_meant(model: str, headers: Mapping[str, str], router: Router) -> str:
    """The model that this client means: of Claude Code's names those that it was shown stand for others,
    unless the settings have a model of that name."""
    if not is_claude_code(headers) or router.is_named(model):
        return model
    return from_claude_code(model)


async def _enriched(request: Request) -> list[EnrichedModelData]:
    found = await service_of(request).listing.enriched(refresh=flag_of(request.query_params, "refresh"))
    return [model for model in found if may_use(model.id)]


async def _listed(request: Request) -> list[dict[str, Any]]:
    found = await service_of(request).listing.models(refresh=flag_of(request.query_params, "refresh"))
    return [model for model in found if may_use(model["id"])]


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
