"""Structured logs on stderr: for people on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import MutableMapping
from io import StringIO
from typing import Any, Final, TextIO

import msgspec
import structlog
import structlog.tracebacks

from bridge.printing import printable

# Where an error came from, never the values of variables: they hold keys and what people wrote.
_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
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


def _as_json(line: Any, **_options: Any) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=repr).decode()
    except UnicodeEncodeError:  # half of a surrogate pair, in a traceback
        return json.dumps(line, default=repr)


def configure_logs(file: TextIO | None = None) -> None:
    """Set up structlog for this process, to stderr or to a file. Content and keys are never logged at all."""
    file = file or sys.stderr
    shown: list[Any] = [_TRACEBACKS, structlog.processors.JSONRenderer(_as_json)]
    if file.isatty():
        shown = [structlog.dev.ConsoleRenderer(exception_formatter=_traceback)]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _only_printable,
            *shown,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=file),
        cache_logger_on_first_use=True,
    )
