"""`/vscode/v1/models` and `/vscode/v1/tokens`, in addition to the chat: for VS Code's language-model
interface."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse

from openresponses_bridge.dialects.vscode.request import read_token_request, token_count
from openresponses_bridge.protocol.codec import encode
from openresponses_server.api.parameters import flag_of
from openresponses_server.http.access import may_use
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.service import service_of, target_of
from openresponses_server.tasks import off_loop


async def models(request: Request) -> JSONResponse:
    """The models as LanguageModelChatInformation, with the limits that this key's requests have met, and the
    changes since the version `since`. `?refresh=true` lists the upstreams' models again."""
    service = service_of(request)
    enriched = await service.listing.enriched(refresh=flag_of(request.query_params, "refresh"))
    limits, owner = service.learned_limits, request.state.owner
    listed = [limits.of(owner, model).information() for model in enriched if may_use(model.id)]
    version = service.lists.record(listed)
    since = request.query_params.get("since")
    changes = None if since is None else service.lists.changes(since, version)
    delta = None if changes is None else msgspec.structs.asdict(changes)
    return JSONResponse({"version": version, "models": listed, "changes": delta})


async def tokens(request: Request) -> JSONResponse:
    """Estimate the tokens of a text or message for a model."""
    service = service_of(request)
    body = await read_json(request, service, read_token_request)
    model = target_of(service, body.model, request.state.owner).model
    size = len(body.content) if isinstance(body.content, str) else len(encode(body.content))
    counter = service.meters.counter(request.state.owner)
    return JSONResponse({"tokens": await off_loop(size, lambda: token_count(body.content, counter, model))})
