"""Configures logs as production does, so that tests see the same lines."""

import os
from functools import cache
from typing import TextIO

import structlog

from openresponses_server.observation.logs import configure_logs


def log_as_in_production(file: TextIO | None = None) -> None:
    """Log to this file, or to nowhere. Loggers are not cached, so that the next test can choose again."""
    configure_logs(_nowhere() if file is None else file)
    structlog.configure(cache_logger_on_first_use=False)


@cache
def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")
