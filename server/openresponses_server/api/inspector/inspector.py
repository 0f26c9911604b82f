"""`GET /inspector`: the page that shows streams, to which `/` leads a browser. It contains nothing of anyone:
what it shows it asks for with its user's key (`routes/inspection.py`)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from openresponses_server.api.inspector import HEADERS, INDEX, ROOT, files
from openresponses_server.errors import HttpError


async def page(_request: Request) -> Response:
    """The page is below its own folder, so that its files have relative names."""
    return RedirectResponse(f"{ROOT}/{INDEX}", 307, HEADERS)


async def home(request: Request) -> Response:
    """A browser is led to the page; for everybody else there is nothing here."""
    headers = {**HEADERS, "vary": "accept"}
    if _wants_html(request):
        return RedirectResponse(f"{ROOT}/{INDEX}", 307, headers)
    raise HttpError(404, "Not Found: GET /", headers={"vary": "accept"})


def _wants_html(request: Request) -> bool:
    kinds = (kind.partition(";")[0].strip() for kind in request.headers.get("accept", "").split(","))
    return any(kind.lower() == "text/html" for kind in kinds)


async def file(request: Request) -> Response:
    """One file of the page; 304 for one that the browser has."""
    found = files().get(request.path_params["file"])
    if found is None:
        raise HttpError(404, f"Not Found: GET {request.url.path[:200]}")
    headers = {**HEADERS, "etag": found.tag}
    if found.tag in request.headers.get("if-none-match", "").split(", "):
        return Response(status_code=304, headers=headers)
    return Response(found.data, headers=headers, media_type=found.kind)
