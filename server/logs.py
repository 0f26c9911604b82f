"""Structured logs on stderr: for people on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import structlog
import structlog.tracebacks

# Where an error came from, never the values of variables: they hold keys and what people wrote.
_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def configure_logs() -> None:
    """Set up structlog for this process. Content and keys are never logged by us in the first place."""
    shown: list[Any] = [_TRACEBACKS, structlog.processors.JSONRenderer()]
    if sys.stderr.isatty():
        shown = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *shown,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
