"""Which upstream serves a model, and under which name it knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from server.errors import HttpError
from server.settings import Settings, SettingsError, UpstreamSettings, api_key
from server.upstreams.base import Upstream
from server.upstreams.demo.upstream import MODELS as DEMO_MODELS
from server.upstreams.demo.upstream import DemoUpstream
from server.upstreams.dialects import CHAT, DIALECTS, Dialect
from server.upstreams.http import HttpUpstream


class Target(NamedTuple):
    """Where a request goes: `model` is the name that goes out."""

    upstream: Upstream
    dialect: Dialect
    model: str


class _Route(NamedTuple):
    upstream: Upstream
    dialect: Dialect
    names: Sequence[str]
    outgoing: str | None
    takes_any: bool


class Router:
    """The routes, first match first: named models before upstreams that take every name."""

    def __init__(self, routes: Sequence[_Route]) -> None:
        self._routes = routes

    def resolve(self, model: str | None) -> Target:
        """Raises HttpError 400 when no model is named and none is the obvious one, 404 when the named one
        is not served."""
        wanted = model if model is not None else self._only_model()
        named = (route for route in self._routes if wanted in route.names)
        open_to_all = (route for route in self._routes if route.takes_any)
        route = next(named, None) or next(open_to_all, None)
        if route is None:
            raise unknown_model(wanted)
        return Target(route.upstream, route.dialect, route.outgoing or wanted)

    def models(self) -> list[tuple[str, str]]:
        """(model, name of its upstream) for all that are known by name."""
        return [(name, route.upstream.name) for route in self._routes for name in route.names]

    async def close(self) -> None:
        for route in self._routes:
            await route.upstream.close()

    def _only_model(self) -> str:
        outgoing = [route.outgoing for route in self._routes if route.outgoing is not None]
        if len(outgoing) == 1 and len(self._routes) == 1:
            return outgoing[0]
        raise HttpError(400, "The request names no model.", code="missing_required_parameter", param="model")


def build_router(settings: Settings) -> Router:
    """The routes of these settings. Raises SettingsError for an upstream that can't be used."""
    if not settings.upstreams:
        return Router([_Route(DemoUpstream(), CHAT, DEMO_MODELS, None, False)])
    return Router([_route(upstream, settings) for upstream in settings.upstreams])


def unknown_model(model: str) -> HttpError:
    """No upstream serves it (specification, "Errors")."""
    return HttpError(
        404,
        f"The model '{model[:80]}' does not exist.",
        code="model_not_found",
        error_type="invalid_request_error",
        param="model",
    )


def _route(upstream: UpstreamSettings, settings: Settings) -> _Route:
    dialect = DIALECTS.get(upstream.dialect)
    if dialect is None:
        known = ", ".join(DIALECTS)
        raise SettingsError(f"upstream {upstream.name}: dialect {upstream.dialect!r} is none of: {known}")
    try:
        client = HttpUpstream(upstream.name, upstream.url, settings.timeouts, api_key(upstream))
    except ValueError as error:
        raise SettingsError(f"upstream {upstream.name}: {error}") from error
    names = upstream.models or [name for name in (upstream.model,) if name is not None]
    return _Route(client, dialect, names, upstream.model, takes_any=not upstream.models)
