"""Warnings of asyncio's debug mode that a callback took long, which on a busy machine any may."""

import logging
import re

_OF_ONE_PROCESS = "Executing %"
_LINE = re.compile(rb"^Executing <.*> took \d+\.\d+ seconds\r?\n", re.MULTILINE)


def log_no_durations() -> None:
    """Nothing of this process logs them."""
    logging.getLogger("asyncio").addFilter(_is_no_duration)


def without_durations(said: bytes) -> bytes:
    """What another process has said, less those lines."""
    return _LINE.sub(b"", said)


def _is_no_duration(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_OF_ONE_PROCESS)
