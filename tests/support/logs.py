"""Configures logs as production does, so that tests see the same lines."""

from io import TextIOBase
from typing import Final, TextIO, cast

import structlog

from openresponses_server.observation.logs import configure_logs


class _Nowhere(TextIOBase):
    """A file that keeps nothing, and that nobody has to close."""

    def write(self, text: str, /) -> int:
        return len(text)


_NOWHERE: Final = cast(TextIO, _Nowhere())


def log_as_in_production(file: TextIO | None = None) -> None:
    """Log to this file, or to nowhere. Loggers are not cached, so that the next test can choose again."""
    configure_logs(_NOWHERE if file is None else file)
    structlog.configure(cache_logger_on_first_use=False)
