"""The service around `openresponses_bridge`, and what a backend of one's own imports.

The names below are loaded when they are first used: a bare import loads nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from openresponses_bridge.errors import HttpError
    from openresponses_server.backend import endpoint
    from openresponses_server.client import OpenResponsesClient, OpenResponsesError

_HOMES: Final = {
    "HttpError": "openresponses_bridge.errors",
    "OpenResponsesClient": "openresponses_server.client",
    "OpenResponsesError": "openresponses_server.client",
    "endpoint": "openresponses_server.backend",
}

__all__ = ["HttpError", "OpenResponsesClient", "OpenResponsesError", "endpoint"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
