"""The entries of a log's stream in Redis.

The id of an entry is made of the number of its last event, so that Redis finds a reader's position and an
append that is made again is recognised. The first entry says that the log was opened, the last that it is
closed, or that it was discarded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.logs.base import CHUNK_BYTES

Entry = tuple[bytes, dict[bytes, bytes]]
"""Its id and its fields, as Redis answers."""

OPENED: Final = b"0-1"
CLOSED: Final = b"18446744073709551615-0"
"""Above every event: nothing can follow it."""

_GONE: Final = b"g"
MARK: Final[dict[Any, Any]] = {b"m": b""}
DISCARD_MARK: Final[dict[Any, Any]] = {_GONE: b""}

_FIRST: Final = b"f"
_DATA: Final = b"d"
_HIGHEST: Final = 2**63


def entry_id(sequence: int) -> bytes:
    """Of the entry whose last event has this number. One above it, since 0-0 can't be the id of an entry."""
    return b"%d-0" % (min(sequence, _HIGHEST) + 1)


def place_after(sequence: int) -> bytes:
    """Where what follows this event is read from; from the beginning below 0."""
    return OPENED if sequence < 0 else entry_id(sequence)


def last_number(entry: bytes) -> int:
    """The number of the last event in the entry with this id; below 0 for the first mark."""
    return int(entry.partition(b"-")[0]) - 1


def fields_of(frames: Frames) -> dict[Any, Any]:
    """What an entry holds of these."""
    return {_FIRST: b"%d" % frames.first, _DATA: frames.data}


def is_discard_mark(entry: Entry) -> bool:
    """Whether it stands for a log that was discarded."""
    return _GONE in entry[1]


def frames_in(entries: Iterable[Entry]) -> list[Frames]:
    """Entries that follow one another as one, up to a size; marks left out."""
    found: list[Frames] = []
    run: list[Frames] = []
    size = 0
    for at, fields in entries:
        if _DATA not in fields:
            continue
        frames = Frames(int(fields[_FIRST]), last_number(at), fields[_DATA])
        if run and (size > CHUNK_BYTES or frames.first != run[-1].last + 1):
            found += _as_one(run)
            run, size = [], 0
        run.append(frames)
        size += len(frames.data)
    return found + _as_one(run)


def _as_one(run: list[Frames]) -> list[Frames]:
    together = joined(run)
    return [] if together is None else [together]
