"""Structured logs on stderr: readable lines on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from io import StringIO
from typing import Any, Final, TextIO

import msgspec
import structlog
import structlog.tracebacks

from openresponses_bridge.text import allows_colours, is_printable, printable
from openresponses_server.settings import LogLevel

# Tracebacks without the values of variables, which contain keys and users' texts.
_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)

_ENCODER: Final = msgspec.json.Encoder(enc_hook=repr)
_LEVELS: Final = {"warn": "warning", "exception": "error"}  # methods with names other than their levels


def _only_printable(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = printable(value)
        elif isinstance(value, list):
            line[name] = [printable(each) if isinstance(each, str) else each for each in value]
    return line


def _traceback(out: TextIO, exception: Any) -> None:
    """Format a traceback for a terminal. An exception may quote foreign text, so its lines are marked."""
    lines = StringIO()
    structlog.dev.plain_traceback(lines, exception)
    out.writelines(f"  {printable(line)}\n" for line in lines.getvalue().split("\n"))


def _as_json(line: Any) -> str:
    try:
        return _ENCODER.encode(line).decode()
    except UnicodeEncodeError:  # half of a surrogate pair in a traceback
        return json.dumps(msgspec.to_builtins(line, enc_hook=repr))


def _json_line(logger: Any, method: str, line: MutableMapping[str, Any]) -> str:
    """Return a whole line for a file, made in one step, because every request writes two."""
    line["level"] = _LEVELS.get(method, method)
    # `isoformat` looks up `utcoffset` by a new string each time, of which Python keeps hundreds
    line["timestamp"] = datetime.now(UTC)
    if "exc_info" not in line and (text := _plain(line)) is not None:
        return text
    line = _only_printable(logger, method, line)
    return _as_json(_TRACEBACKS(logger, method, line))


def _plain(line: MutableMapping[str, Any]) -> str | None:
    """Return a line whose characters are all printable, as most lines are; else None."""
    try:
        text = _ENCODER.encode(line).decode()
    except UnicodeEncodeError:
        return None
    # in JSON, a backslash is before every ASCII character that is not printable
    is_plain = text.isprintable() if text.isascii() else is_printable(text)
    return text if "\\" not in text and is_plain else None


class _RequestLogger(structlog.make_filtering_bound_logger(logging.INFO)):  # type: ignore[misc]
    """Writes the two lines of each request without structlog's processors."""

    def info(self, event: str, *args: Any, **fields: Any) -> Any:
        if args or self._context or "exc_info" in fields or self._processors[0] is not _json_line:
            return super().info(event, *args, **fields)
        line = {**fields, "event": event, "level": "info", "timestamp": datetime.now(UTC)}
        text = _plain(line)
        return super().info(event, **fields) if text is None else self._logger.info(text)


_DebugLogger: Final = structlog.make_filtering_bound_logger(logging.DEBUG)


def configure_logs(file: TextIO | None = None, level: LogLevel = "info") -> None:
    """Set up structlog for this process, to stderr or to a file. Content and keys are never logged."""
    file = file or sys.stderr
    processors: list[Any] = [_json_line]
    if file.isatty():
        processors = [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _only_printable,
            structlog.dev.ConsoleRenderer(
                colors=allows_colours(os.environ, is_terminal=True), exception_formatter=_traceback
            ),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=_RequestLogger if level == "info" else _DebugLogger,
        logger_factory=structlog.WriteLoggerFactory(file=file),
        cache_logger_on_first_use=True,
    )
