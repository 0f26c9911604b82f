"""Structured logs on stderr: for people on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure_logs() -> None:
    """Set up structlog for this process. Content and keys are never logged by us in the first place."""
    terminal = sys.stderr.isatty()
    shown: list[Any] = (
        [structlog.dev.ConsoleRenderer()]
        if terminal
        else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    )
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
