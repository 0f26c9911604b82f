"""A store by its URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from server.sessions.base import ResponseStore
from server.sessions.memory import MemoryStore
from server.settings import Settings, SettingsError

_STORES: Final[dict[str, Callable[[Settings], ResponseStore]]] = {
    "memory": lambda settings: MemoryStore(settings.stored_responses),
}
_EVENT_LOGS: Final = frozenset({"memory"})


def build_store(settings: Settings) -> ResponseStore:
    """The store these settings name. Raises SettingsError for a scheme there is none for."""
    scheme = settings.store.partition(":")[0]
    if scheme not in _STORES:
        raise SettingsError(f"store {scheme}: is none of: {', '.join(_STORES)}")
    log_scheme = settings.event_log.partition(":")[0]
    if log_scheme not in _EVENT_LOGS:
        raise SettingsError(f"event log {log_scheme}: is none of: {', '.join(_EVENT_LOGS)}")
    return _STORES[scheme](settings)
