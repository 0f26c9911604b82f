"""Structured logs on stderr: for people on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from io import StringIO
from typing import Any, Final, TextIO

import structlog
import structlog.tracebacks

# Where an error came from, never the values of variables: they hold keys and what people wrote.
_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def printable(text: str) -> str:
    """The text with escapes for what does not print: an upstream's text could else end a line, or move the
    cursor of the reader's terminal."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text
    )


def _only_printable(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = printable(value)
        elif isinstance(value, list):
            line[name] = [printable(each) if isinstance(each, str) else each for each in value]
    return line


def _traceback(out: TextIO, exception: Any) -> None:
    """On a terminal: an exception may quote what came from outside, so its lines look like no others."""
    lines = StringIO()
    structlog.dev.plain_traceback(lines, exception)
    out.writelines(f"  {printable(line)}\n" for line in lines.getvalue().split("\n"))


def configure_logs() -> None:
    """Set up structlog for this process. Content and keys are never logged at all."""
    shown: list[Any] = [_TRACEBACKS, structlog.processors.JSONRenderer()]
    if sys.stderr.isatty():
        shown = [structlog.dev.ConsoleRenderer(exception_formatter=_traceback)]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _only_printable,
            *shown,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
