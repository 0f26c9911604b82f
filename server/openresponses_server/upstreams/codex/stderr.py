"""What a process writes to its standard error, as log lines: bounded, and without its secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

_LONGEST: Final = 500  # characters of a line that are logged
_PER_WINDOW: Final = 20  # lines
_WINDOW: Final = 10.0  # seconds
_READ: Final = 16 * 1024
_log = structlog.get_logger(__name__)


async def log_stderr(stream: asyncio.StreamReader, name: str, clean: Callable[[str], str]) -> None:
    """Read it to its end, so that the process never waits for it. Of a window only so many lines are logged,
    and then how many were left out."""
    loop = asyncio.get_running_loop()
    begun, lines, rest = loop.time(), 0, b""
    while data := await stream.read(_READ):
        *whole, rest = (rest + data).split(b"\n")
        rest = rest[:_LONGEST]
        for line in whole:
            now = loop.time()
            if now - begun > _WINDOW:
                if lines > _PER_WINDOW:
                    _log.info("codex.stderr_left_out", upstream=name, lines=lines - _PER_WINDOW)
                begun, lines = now, 0
            lines += 1
            if lines <= _PER_WINDOW and line.strip():
                # cleaned before it is cut: half a secret would not be found
                text = clean(line[: 4 * _LONGEST].decode("utf-8", "replace"))[:_LONGEST]
                _log.info("codex.stderr", upstream=name, line=text)
