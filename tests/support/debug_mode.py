"""Drops the warnings of asyncio's debug mode about slow callbacks: on a busy machine any callback may be
slow."""

import logging
import re
from typing import Any, AnyStr

_OF_ONE_PROCESS = "Executing %"
_LINE = r"^Executing <.*> took \d+\.\d+ seconds\r?\n"
_LINES: dict[type, Any] = {
    str: re.compile(_LINE, re.MULTILINE),
    bytes: re.compile(_LINE.encode(), re.MULTILINE),
}


def log_no_durations() -> None:
    """Keep these warnings of this process out of its logs."""
    logging.getLogger("asyncio").addFilter(_is_no_duration)


def without_durations(said: AnyStr) -> AnyStr:
    """Return the output of another process without these warnings."""
    output: AnyStr = _LINES[type(said)].sub(said[:0], said)
    return output


def _is_no_duration(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_OF_ONE_PROCESS)
