"""The server's connections below ASGI: uvicorn's protocols with limits on size, time and number.

What happens before a request is known, and so before authentication, is decided here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from openresponses_server.http.connection import HttpConnection
from openresponses_server.http.registry import ConnectionRegistry
from openresponses_server.settings import Settings


def http_protocol(settings: Settings) -> Any:
    """What uvicorn's `Config(http=…)` takes. It can be pickled, so that worker processes get one each."""
    return partial(HttpConnection, ConnectionRegistry(settings))
