"""Which route a request begins with: the one with the prompt cache of its session, while that can be used."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from openresponses_bridge.protocol.request import conversation_of
from openresponses_server.requests.client_traits import session_key
from openresponses_server.requests.prepared import Placed, Received
from openresponses_server.requests.service import Service
from openresponses_server.store.base import UpstreamResponse
from openresponses_server.store.records import can_be_id
from openresponses_server.upstreams.routing.routes import RouteChoice, session_name
from openresponses_server.upstreams.routing.states import Route
from openresponses_server.upstreams.targets import Target

_RESPONSE = "response"


def upstream_response(target: Target, response_id: str | None, key: str | None) -> UpstreamResponse | None:
    """The response that this upstream stores under this id for this key; None when it does not store
    responses or the id can't be one."""
    if response_id is None or not can_be_id(response_id) or not target.traits.keeps_responses:
        return None
    return UpstreamResponse(target.upstream.account(key), target.model, response_id)


async def choose_route(request: Placed, service: Service) -> Placed:
    """Choose which of the request's routes is asked first: the first one, where nothing else can decide."""
    primary = request.target
    if not primary.has_equals and not service.routes.routes.conditions:
        return request
    targets = (primary, *primary.fallbacks)
    chosen = RouteChoice(service.routes, targets)
    if primary.has_equals:
        chosen.session = named_session(request)
        chosen.preferred = await _preferred(request, service, targets)
    first = chosen.peek() or primary
    target = primary
    if first is not primary:
        others = tuple(each for each in targets if each is not first)
        target = first._replace(fallbacks=others, has_equals=primary.has_equals)
    # choices choose for themselves
    return replace(request, target=target, chosen=chosen if request.choices == 1 else None)


def remember_route(request: Placed, service: Service, response_id: str, route: Route) -> None:
    """Remember that this route answers the request: what continues its response goes there, too."""
    if request.chosen is not None and not request.chosen.session:
        service.routes.remember(session_name(request.owner, _RESPONSE, response_id), route)


def named_session(request: Received) -> str:
    """Return the name of the session that the request says it belongs to; "" if it says none. Two owners
    never have the same."""
    body, owner = request.body, request.owner
    if body.conversation is not None:
        return session_name(owner, "conversation", conversation_of(body) or "")
    if body.prompt_cache_key:
        return session_name(owner, "cache", body.prompt_cache_key)
    key = session_key(owner, body.user, request.headers)
    if key is not None:
        return session_name(owner, "session", key)
    return session_name(owner, "name", request.client.conversation) if request.client.conversation else ""


def session_of(request: Placed) -> str:
    """Return the name of the request's session: the one that it says, else that of the first response of the
    chain that it continues, else that of its own response."""
    return session_within(request, request.before.responses, request.response_id)


def session_within(request: Received, chain: Sequence[str], response_id: str) -> str:
    """Return the name of the session of a request that continues the last response of `chain`, and whose
    response has this id."""
    first = chain[0] if chain else response_id
    return named_session(request) or session_name(request.owner, "chain", first)


async def _preferred(request: Placed, service: Service, targets: Sequence[Target]) -> Route | None:
    before = request.upstream_response
    if before is not None:
        for each in targets:
            if before == upstream_response(each, before.id, request.client.key):
                return each.candidate.route
    previous = request.body.previous_response_id
    if previous is None:
        return None
    return await service.routes.recall(session_name(request.owner, _RESPONSE, previous))
