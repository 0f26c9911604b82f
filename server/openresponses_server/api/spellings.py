"""The paths that other servers and their clients use, and the paths that they stand for here.

Azure's clients name a deployment, which is a model here, or put `/openai` before the path; some join an
address and a path with two slashes; some of Gemini's clients leave out the version.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.types import Scope

from openresponses_server.requests.bodies import DEPLOYMENT

FOREIGN: Final = ("/openai/", "/models/")
"""The beginnings of such paths, apart from those with two slashes."""
_API: Final = ("/v1/", "/v1beta/", "/vscode/", *FOREIGN)
_SLASHES: Final = re.compile(r"/{2,}")
_DEPLOYMENT: Final = re.compile(r"/openai/deployments/([^/]{1,1024})/(.+)", re.DOTALL)
_GEMINI_CALL: Final = re.compile(r"/models/[^:]+:[A-Za-z]{1,64}", re.DOTALL)
_MODELS: Final = "models/"  # before a model's name, which may have two slashes of its own


def respell(scope: Scope) -> None:
    """Replace the request's path by the one that it stands for here."""
    head, slash, name = scope["path"].partition(_MODELS)
    path = _SLASHES.sub("/", head) + slash + name
    if not path.startswith(_API):
        return  # the page's paths are exact: an address such as `//host` is not served
    if deployed := _DEPLOYMENT.fullmatch(path):
        scope[DEPLOYMENT], path = deployed[1], f"/v1/{deployed[2]}"
    elif path.startswith("/openai/v1/"):
        path = path.removeprefix("/openai")
    elif path.startswith("/openai/"):
        path = f"/v1{path.removeprefix('/openai')}"
    elif _GEMINI_CALL.fullmatch(path):
        path = f"/v1beta{path}"
    scope["path"] = path
