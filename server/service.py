"""What the endpoints share: the settings, the router and the store of this application."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from server.sessions.base import ResponseStore
from server.settings import Settings
from server.upstreams.routing import Router


@dataclass(frozen=True, slots=True)
class Service:
    """One per application."""

    settings: Settings
    router: Router
    store: ResponseStore


def service_of(request: Request) -> Service:
    """The service of the application that this request came to."""
    service: Service = request.app.state.service
    return service
