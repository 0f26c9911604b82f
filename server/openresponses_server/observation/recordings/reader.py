"""Reads a recording: first its index, which also checks all of it, then exchange by exchange, block by block.
Only the index is kept in memory, never bodies.
"""

from __future__ import annotations

import os
import stat
import time
from array import array
from collections.abc import Generator, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2s
from io import UnsupportedOperation
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from openresponses_server.observation.recordings.captures import UnreadableCapture, with_pauses
from openresponses_server.observation.recordings.masking import masked_value
from openresponses_server.observation.recordings.records import (
    LONGEST_LINE,
    VERSION,
    Chunk,
    Record,
    RecordedEnd,
    RecordedRequest,
    RecordedStatus,
    RecordError,
    RecordingStart,
    body_of,
    decode_record,
)

# The bodies of recorded answers, line by line and at the recorded times.


def speed_of(speed: float | str) -> float | None:
    """Return how many times as fast as recorded to play; None plays without waiting."""
    return None if speed == "max" else 1.0 if speed == "real" else float(speed)


class Clock:
    """The time in a recording that is played `speed` times as fast as recorded; without a speed, nothing
    waits."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._offset: float | None = None
        self.at = 0.0
        """The recorded time that was reached last."""

    def advance(self, at: float) -> float:
        """Set the time. Returns the seconds to wait until it is reached. The first time is reached at
        once."""
        self.at = at
        if self._speed is None:
            return 0.0
        now, due = time.monotonic(), at / self._speed
        if self._offset is None:
            self._offset = now - due
        return max(due + self._offset - now, 0.0)

    def reach(self, at: float) -> None:
        """Wait until this time."""
        if seconds := self.advance(at):
            time.sleep(seconds)


def body_lines(records: Iterable[Record], clock: Clock) -> Iterator[bytes]:
    """Yield each line of a recorded body when it is complete, and b"" (a pause) for each record."""
    pieces: list[bytes] = []
    for record in records:
        yield b""
        if not isinstance(record, Chunk):
            if isinstance(record, RecordedEnd):
                clock.reach(record.at)
            continue
        clock.reach(record.at)
        *whole, rest = record.data.split(b"\n")
        for line in whole:
            yield b"".join([*pieces, line, b"\n"])
            pieces = []
        if rest:
            pieces.append(rest)
    if last := b"".join(pieces):
        yield last


# Requests are matched with recorded exchanges by their model and the last entry of their input.

# fields whose strings are names and not content; ids differ from one run to another
_NOT_CONTENT: Final = frozenset(
    {"id", "call_id", "tool_call_id", "tool_use_id", "item_id", "type", "role", "status", "cache_control"}
)
_TURNS: Final = ("messages", "input")


class RequestKey(NamedTuple):
    """The parts of a request that select its recorded answer."""

    model: str
    """The model's name; empty if the request has none."""
    last_input: str
    """A digest of the texts in the last entry of the input, without ids and with white space normalised."""


def wanted(body: Any) -> RequestKey:
    """Return the key of a request's body, in any dialect. Raises RecursionError for one that is nested too
    deeply."""
    fields = body if isinstance(body, dict) else {}
    model = fields.get("model")
    turns = next((fields[name] for name in _TURNS if fields.get(name)), None)
    last = turns[-1] if isinstance(turns, list) else turns
    words = " ".join(" ".join(_texts(masked_value(last))).split())
    digest = blake2s(words.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return RequestKey(model if isinstance(model, str) else "", digest)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in _NOT_CONTENT:
                yield from _texts(each)


MOST_BYTES: Final = 4 << 30
MOST_EXCHANGES: Final = 100_000
_BLOCK: Final = 64 * 1024
_KEPT: Final = 8  # recordings whose indexes are cached


class Changed(Exception):
    """The file has changed since it was indexed."""


class Exchange(NamedTuple):
    """One exchange in the index of a recording."""

    asked: RecordedRequest
    """The exchange's request, without the body."""
    wanted: RequestKey
    line: int
    """The line of the request."""
    ranges: array[int]
    """The start and end, in bytes, of each sequence of lines that belongs to the exchange."""
    status: int = 0
    """The status of the answer; 0 if there was none."""
    end: str = ""
    """How the exchange ended; empty if that was not recorded."""


class FileIdentity(NamedTuple):
    """Distinguishes the file that was indexed from a later one."""

    device: int
    file: int
    size: int
    modified: int


class Recording(NamedTuple):
    """The index of a recording; `exchanges` are in the order of their requests."""

    path: Path
    identity: FileIdentity
    exchanges: list[Exchange]

    def records(self, exchange: Exchange) -> Generator[Record]:
        """Yield all records of an exchange. Raises Changed if the file has changed, OSError if it can't be
        read."""
        with _open_regular(self.path) as file:
            yield from records_of(file, exchange, self.identity)


def read_recording(path: Path) -> Recording:
    """Index a recording. Raises UnreadableCapture, which names the line, and OSError."""
    with _open_regular(path) as file:
        identity = identity_of(file)
    return _read(path, identity)


@lru_cache(maxsize=_KEPT)
def _read(path: Path, identity: FileIdentity) -> Recording:
    index = Index()
    with _open_regular(path) as file:
        for _pause in index.read(file):
            pass
    return Recording(path, identity, index.exchanges)


class Index:
    """Builds the index of a recording from its lines, the first of which is at `start`, in bytes."""

    def __init__(self, start: int = 0) -> None:
        self._found: dict[int, Exchange] = {}
        self._lines = 0
        self._start = self._position = start

    @property
    def exchanges(self) -> list[Exchange]:
        """The exchanges found so far. Raises UnreadableCapture if there were no lines."""
        if not self._lines:
            raise UnreadableCapture(1, "it is empty")
        return list(self._found.values())

    def read(self, file: BinaryIO) -> Iterator[None]:
        """Read the recording to its end. Yields None at times, so that no step takes long. Raises
        UnreadableCapture, which names the line."""
        if identity_of(file).size > MOST_BYTES:
            raise UnreadableCapture(1, f"the recording is larger than {MOST_BYTES >> 30} GiB")
        file.seek(self._start)
        for line in with_pauses(iter(lambda: file.readline(LONGEST_LINE + 1), b"")):
            if line:
                self._feed(line)
            else:
                yield None

    def _feed(self, line: bytes) -> None:
        number, position = self._lines + 1, self._position
        self._lines, self._position = number, position + len(line)
        if len(line) > LONGEST_LINE:
            raise UnreadableCapture(number, f"the line is longer than {LONGEST_LINE >> 20} MiB")
        if number > 1 and not line.strip():
            return
        try:
            record = decode_record(line)
        except RecordError as error:
            broken = "" if line.endswith(b"\n") else " (the file ends within this line)"
            raise UnreadableCapture(number, f"{error}{broken}") from error
        if number == 1:
            _check_first(record)
        elif isinstance(record, RecordedRequest):
            self._begin(number, position, line, record)
        elif isinstance(record, RecordedStatus | Chunk | RecordedEnd):
            self._extend(number, position, line, record)
        elif isinstance(record, RecordingStart):
            raise UnreadableCapture(number, "a second recording begins within the file")

    def _begin(self, number: int, position: int, line: bytes, request: RecordedRequest) -> None:
        if request.exchange in self._found:
            raise UnreadableCapture(number, f"exchange {request.exchange} begins twice")
        if len(self._found) == MOST_EXCHANGES:
            raise UnreadableCapture(number, f"there are more than {MOST_EXCHANGES} exchanges")
        try:
            asks_for = wanted(body_of(request))
        except RecursionError as error:
            raise UnreadableCapture(number, "the request is nested too deeply") from error
        small = msgspec.structs.replace(request, body=msgspec.Raw(b"null"), text=None, base64=None)
        ranges = array("Q", [position, position + len(line)])
        self._found[request.exchange] = Exchange(small, asks_for, number, ranges)

    def _extend(
        self, number: int, position: int, line: bytes, record: RecordedStatus | Chunk | RecordedEnd
    ) -> None:
        exchange = self._found.get(record.exchange)
        if exchange is None:
            raise UnreadableCapture(number, f"exchange {record.exchange} has not begun")
        if exchange.end:
            raise UnreadableCapture(number, f"exchange {record.exchange} has already ended")
        if isinstance(record, RecordedStatus) and exchange.status:
            raise UnreadableCapture(number, f"exchange {record.exchange} has a second status")
        if isinstance(record, Chunk) and not exchange.status:
            raise UnreadableCapture(number, f"exchange {record.exchange} has no status before its body")
        if isinstance(record, RecordedStatus):
            self._found[record.exchange] = exchange._replace(status=record.status)
        elif isinstance(record, RecordedEnd):
            self._found[record.exchange] = exchange._replace(end=record.how)
        if exchange.ranges[-1] == position:
            exchange.ranges[-1] = position + len(line)
        else:
            exchange.ranges.extend((position, position + len(line)))


def _check_first(record: Record | None) -> None:
    if not isinstance(record, RecordingStart):
        raise UnreadableCapture(1, "this is not a recording: its first line has another type")
    if record.version > VERSION:
        raise UnreadableCapture(
            1, f"version {record.version} of recordings is newer than {VERSION}, which is known"
        )


def _open_regular(path: Path) -> BinaryIO:
    """Open a regular file; reading any other might never end. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def identity_of(file: BinaryIO) -> FileIdentity:
    """Return the identity of an open file; that of a file in memory never changes."""
    try:
        status = os.fstat(file.fileno())
    except UnsupportedOperation:
        return _IN_MEMORY
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


_IN_MEMORY: Final = FileIdentity(0, 0, 0, 0)


def records_of(file: BinaryIO, exchange: Exchange, identity: FileIdentity) -> Iterator[Record]:
    """Yield all records of an exchange, read from an open file block by block. Raises Changed unless the file
    still has this identity."""
    for start, end in zip(exchange.ranges[::2], exchange.ranges[1::2], strict=True):
        for line in _lines(file, start, end, identity):
            record = decode_record(line)
            if record is not None:
                yield record


def _lines(file: BinaryIO, start: int, end: int, identity: FileIdentity) -> Iterator[bytes]:
    pieces: list[bytes] = []
    while start < end:
        if identity_of(file) != identity:
            raise Changed
        file.seek(start)
        block = file.read(min(_BLOCK, end - start))
        if not block:
            raise Changed
        start += len(block)
        *whole, rest = block.split(b"\n")
        for line in whole:
            yield b"".join([*pieces, line])
            pieces = []
        pieces.append(rest)
    if last := b"".join(pieces).strip():
        yield last
