"""`GET /v1/usage`: what the key's own responses spent."""

from __future__ import annotations

import datetime

from starlette.requests import Request
from starlette.responses import JSONResponse

from openresponses_bridge.dialects.base import invalid
from openresponses_server.requests.service import service_of


async def usage(request: Request) -> JSONResponse:
    """Sums, rows by day (UTC) and model, and agents; `?since=2026-01-31` leaves out the days before."""
    since = request.query_params.get("since", "")
    if since and not _is_day(since):
        raise invalid("since", f"it is a day as 2026-01-31, not {since[:40]!r}")
    return JSONResponse(await service_of(request).usage.shown(request.state.owner, since))


def _is_day(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
