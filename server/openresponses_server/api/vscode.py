"""`/vscode/v1/`: any model for VS Code's language-model interface."""

from __future__ import annotations

from functools import partial

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.dialects.vscode.tokens import count, read_counted
from openresponses_bridge.protocol.codec import encode
from openresponses_server.api.chat import prepare_chat, read_chat
from openresponses_server.api.models import wants_refresh
from openresponses_server.api.vscode_answers import FAILURES, PartsAnswer, PartsForm
from openresponses_server.http.headers import fields_of
from openresponses_server.off_loop import off_loop
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.service import service_of

_LONGEST = 200  # characters of a line, in which an unknown event names its type
_log = structlog.get_logger(__name__)


async def models(request: Request) -> JSONResponse:
    """The models as LanguageModelChatInformation, and what changed since the version that `since` names.
    `?refresh=true` asks the upstreams now."""
    service = service_of(request)
    enriched = await service.listing.enriched(refresh=wants_refresh(request))
    listed = [model.information() for model in enriched]
    version = service.lists.note(listed)
    since = request.query_params.get("since")
    changes = None if since is None else service.lists.changes(since, version)
    found = None if changes is None else msgspec.structs.asdict(changes)
    return JSONResponse({"version": version, "models": listed, "changes": found})


async def chat(request: Request) -> ASGIApp:
    """Parts as JSON lines. With `errors=line` a failure is the last of them; leaving cancels the response."""
    service = service_of(request)
    failures = request.query_params.get("errors", "text")
    if failures not in FAILURES:
        raise invalid("errors", f"expected one of: {', '.join(FAILURES)}")
    asked = await read_json(request, service, read_chat)
    state = request.state
    prepared = await prepare_chat(service, asked, fields_of(request.scope), state.request_id, state.owner)
    traced = service.settings.log_level == "debug"
    trace = partial(_trace, state.request_id) if traced else None
    form = PartsForm(asked.chat, failures, service.sealer, trace)
    return PartsAnswer(prepared.run(), prepared.headers, service.settings.keep_alive, form)


def _trace(request_id: str, line: str) -> None:
    _log.debug("vscode.event", request_id=request_id, event_and_parts=line[:_LONGEST])


async def tokens(request: Request) -> JSONResponse:
    """About how many tokens a text or message is for a model."""
    service = service_of(request)
    asked = await read_json(request, service, read_counted)
    model = service.router.resolve(asked.model).model
    size = len(asked.content) if isinstance(asked.content, str) else len(encode(asked.content))
    counter = service.meters.counter(request.state.owner)
    return JSONResponse({"tokens": await off_loop(size, lambda: count(asked.content, counter, model))})
