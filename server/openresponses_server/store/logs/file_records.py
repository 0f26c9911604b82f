"""The records of an event log in a file: frames, and marks that say when it was opened, acquired, moved,
closed or discarded.

A record is appended by one call, of which a killed process may leave a part, and contains its own position.
So a reader can see which records count: those that are complete and at that position. A record that was
written after another process has acquired the log is at another one.
"""

from __future__ import annotations

import os
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from openresponses_server.store.logs.base import CHUNK_BYTES

_MAGIC: Final = b"\0\xff\x1e"  # the JSON of an event has neither of the first two
_HEAD: Final = Struct("<3sBIIqq")  # the kind, the bytes of the data, its own position, the numbers
_SUM: Final = Struct("<I")
HEAD_BYTES: Final = _HEAD.size + _SUM.size


class Kind(IntEnum):
    """The kinds of records."""

    FRAMES = 0
    OPENED = 1
    """The first one of each file."""
    ACQUIRED = 2
    """Another process appends from here on."""
    MOVED = 3
    """The log goes on in the next file."""
    CLOSED = 4
    DISCARDED = 5


class Record(NamedTuple):
    """A whole record; `end` is the position after it."""

    kind: int
    first: int
    last: int
    data: bytes
    end: int


def head_of(kind: int, at: int, first: int, last: int, data: bytes) -> bytes:
    """Return the head of a record for this position."""
    head = _HEAD.pack(_MAGIC, kind, len(data), at, first, last)
    return head + _SUM.pack(crc32(data, crc32(head)))


class RecordReader:
    """Reads the records of a file from a position on, while others append to it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.at = 0
        """The position of the next record."""
        self._data = b""
        self._start = 0  # the position of the loaded bytes

    def read(self) -> Record | None:
        """Return the next record; None if there is no complete one yet. A record that is incomplete, or not
        at its intended position, is skipped once another one follows."""
        record = self._whole(self.at)
        if record is None and self._load(self.at):
            record = self._whole(self.at) or self._following(self.at + 1)
        if record is not None:
            self.at = record.end
        return record

    def seek(self, after: int) -> None:
        """Move by bisection to the first frames with a number above `after`, or to a little before them."""
        low, high = self.at, os.fstat(self._file).st_size
        while high - low > CHUNK_BYTES:
            middle = (low + high) // 2
            record = self._following(middle)
            if record is not None and record.kind == Kind.FRAMES and record.last <= after:
                low = record.end
            else:
                high = middle
        self.at = low

    def _whole(self, at: int) -> Record | None:
        """Return the record at this position, if it is complete."""
        start = at - self._start
        if start < 0 or len(self._data) - start < HEAD_BYTES:
            return None
        magic, kind, size, position, first, last = _HEAD.unpack_from(self._data, start)
        if magic != _MAGIC or position != at:
            return None
        begin = start + HEAD_BYTES
        if begin + size > len(self._data):
            # it is read at once if the file has it
            if at + HEAD_BYTES + size > os.fstat(self._file).st_size or not self._load(at, HEAD_BYTES + size):
                return None
            return self._whole(at) if len(self._data) >= HEAD_BYTES + size else None
        data = self._data[begin : begin + size]
        head = self._data[start : start + _HEAD.size]
        (checksum,) = _SUM.unpack_from(self._data, start + _HEAD.size)
        if checksum != crc32(data, crc32(head)):
            return None
        return Record(kind, first, last, data, at + HEAD_BYTES + size)

    def _following(self, at: int) -> Record | None:
        """Return the first complete record that begins at this position or later."""
        while self._load(at):
            begin = self._data.find(_MAGIC)
            while begin >= 0:
                position = self._start + begin
                if (record := self._whole(position)) is not None:
                    return record
                if self._start != at:  # more was loaded for what looked like a record
                    self._load(at)
                begin = self._data.find(_MAGIC, position - at + 1)
            if len(self._data) < CHUNK_BYTES:
                return None
            at += len(self._data) - len(_MAGIC) + 1
        return None

    def _load(self, at: int, size: int = CHUNK_BYTES) -> bool:
        self._data, self._start = os.pread(self._file, size, at), at
        return bool(self._data)
