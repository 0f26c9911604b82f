"""The trace of the request that is being answered, in the context of the task that answers it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from openresponses_server.observation.traces import Trace

REQUEST: Final[ContextVar[Trace | None]] = ContextVar("traced_request", default=None)
"""Set by whoever takes a request that is traced."""
