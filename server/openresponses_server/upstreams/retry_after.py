"""`retry-after` as an upstream gives it: seconds or a date (RFC 9110, 10.2.3), or something else."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_MOST_DIGITS: Final = 9
LONGEST: Final = 366 * 24 * 3600
"""Seconds. A longer wait is of no use, and too much for the timers of some clients."""
_LONGEST_DATE: Final = 64  # characters


def seconds_of(header: str | None) -> float | None:
    """How long to wait, at most `LONGEST`; None for what is neither seconds nor a date."""
    text = (header or "").strip()
    if not text.isascii():
        return None
    if text.isdigit():
        return float(LONGEST) if len(text) > _MOST_DIGITS else float(min(int(text), LONGEST))
    try:
        moment = parsedate_to_datetime(text[:_LONGEST_DATE])
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return min(max((zoned - datetime.now(UTC)).total_seconds(), 0.0), float(LONGEST))
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def passed_on(header: str | None) -> str | None:
    """What a client may be sent of it: the header as it is where it says when, `LONGEST` where that is too
    long, None where it says something else."""
    wait = seconds_of(header)
    if header is None or wait is None:
        return None
    text = header.strip()
    if wait == LONGEST:
        return str(LONGEST)
    return text if text.isprintable() and len(text) <= _LONGEST_DATE else None
