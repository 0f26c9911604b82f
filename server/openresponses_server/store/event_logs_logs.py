"""An event log by its URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from openresponses_server.settings import SettingsError
from openresponses_server.settings.files import about
from openresponses_server.settings.suggestions import did_you_mean
from openresponses_server.store.logs.base import EventLog
from openresponses_server.store.logs.memory import MemoryLog


def open_event_log(address: str) -> EventLog:
    """`memory:`, `redis://host/0` or `rediss://…`. Nothing is connected yet.

    Raises SettingsError when the log is unknown or its driver is not installed.
    """
    scheme = address.partition(":")[0]
    build = _BUILDERS.get(scheme)
    if build is None:
        known = f"{', '.join(_BUILDERS)}{did_you_mean(scheme, _BUILDERS)}"
        raise SettingsError(f"event log {scheme}: is not one of: {known}", "$.event_log")
    with about("$.event_log"):
        return build(address)


def _redis(address: str) -> EventLog:
    try:
        from openresponses_server.store.logs.redis import RedisLog
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"event log redis: {error.name} is not installed (pip install 'openresponses-bridge[redis]')"
        ) from error
    try:
        database = urlsplit(address).path.strip("/")
        if database and not database.isdecimal():  # the client would take database 0
            raise ValueError(f"the path is the number of a database, not {database!r}")
        return RedisLog(address)
    except ValueError as error:
        raise SettingsError(f"event log {address.partition(':')[0]}: {error}") from error


_BUILDERS: Final[dict[str, Callable[[str], EventLog]]] = {
    "memory": lambda _address: MemoryLog(),
    "redis": _redis,
    "rediss": _redis,
}
