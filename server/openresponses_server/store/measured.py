"""Stores and event logs whose calls are measured: their duration and failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

from openresponses_server.errors import Outage
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.logs.base import EventLog

P = ParamSpec("P")
T = TypeVar("T")
Called = Callable[[str, str, float, str | None], None]
"""Called with the part, the name of the call, its seconds, and the code of its failure or None."""

_OF_STORE: Final = (
    "acquire",
    "chain",
    "checkpoint",
    "claim_orphans",
    "claim_waiting",
    "delete",
    "finish",
    "get",
    "input_items",
    "items",
    "keyed",
    "missing",
    "put",
    "renew",
    "size",
    "standing",
    "stock",
    "sweep",
    "use_once",
    "waiting",
)
_USAGE: Final = "usage"
_OF_USAGE: Final = ("add_usage", "remove_usage", "usage_of")
_CONVERSATIONS: Final = "conversations"
_OF_CONVERSATIONS: Final = (
    "add",
    "count",
    "create",
    "delete",
    "get",
    "item",
    "items",
    "page",
    "remove",
    "size",
    "update",
)
# without `append` and `appender`, for which every token waits
_OF_LOG: Final = ("check", "open", "close", "discard")
_TIMEOUT: Final = "timeout"


class _Measured:
    """Has all attributes of `inner`. Calls with these names are measured, under the names with this
    prefix."""

    def __init__(
        self, part: str, inner: Any, names: tuple[str, ...], called: Called, prefix: str = ""
    ) -> None:
        self._inner = inner
        for name in names:
            setattr(self, name, _timed(part, f"{prefix}{name}", getattr(inner, name), called))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def measured_store(store: ResponseStore, called: Called) -> ResponseStore:
    """Return the store with its calls timed: `called` is called after each."""
    measured = _Measured("store", store, _OF_STORE, called)
    setattr(measured, _USAGE, _Measured("store", store.usage, _OF_USAGE, called))
    conversations = _Measured("store", store.conversations, _OF_CONVERSATIONS, called, "conversation_")
    setattr(measured, _CONVERSATIONS, conversations)
    return cast(ResponseStore, measured)


def measured_log(log: EventLog, called: Called) -> EventLog:
    """Return the log with its calls timed. A log in memory is returned unchanged, since it neither fails nor
    waits."""
    return log if not log.shared else cast(EventLog, _Measured("log", log, _OF_LOG, called))


def _timed(
    part: str, name: str, call: Callable[P, Awaitable[T]], called: Called
) -> Callable[P, Awaitable[T]]:
    @wraps(call)
    async def timed(*args: P.args, **named: P.kwargs) -> T:
        started = time.perf_counter()
        failure: str | None = None
        try:
            return await call(*args, **named)
        except Outage as error:
            failure = error.code
            raise
        except asyncio.CancelledError:  # the caller stopped waiting
            failure = _TIMEOUT
            raise
        finally:
            called(part, name, time.perf_counter() - started, failure)

    return timed
