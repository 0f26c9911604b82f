"""Reading a recording: once to know what is in it and that all of it can be read, then exchange by exchange,
a block at a time. What is kept in memory is where exchanges stand, never what was said.
"""

from __future__ import annotations

import os
import stat
import time
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2s
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from openresponses_server.observation.recordings.captures import Unreadable
from openresponses_server.observation.recordings.masking import masked_value
from openresponses_server.observation.recordings.records import (
    LONGEST_LINE,
    VERSION,
    Answered,
    Asked,
    Begun,
    Chunk,
    Ended,
    Record,
    RecordError,
    body_of,
    decode_record,
)

# The bodies of recorded answers, line by line and at the times at which they came.


def speed_of(speed: float | str) -> float | None:
    """How many times as fast as recorded; None without any waiting."""
    return None if speed == "max" else 1.0 if speed == "real" else float(speed)


class Clock:
    """Runs `speed` times as fast as the recording did; without a speed nothing is waited for."""

    def __init__(
        self,
        speed: float | None,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed = speed
        self._now = now
        self._wait = wait
        self._offset: float | None = None
        self.at = 0.0
        """The time of the recording that was reached last."""

    def reach(self, at: float) -> None:
        """Wait for what the recording has at this time; the first time that is asked for is now."""
        self.at = at
        if self._speed is None:
            return
        due = at / self._speed
        if self._offset is None:
            self._offset = self._now() - due
        left = due + self._offset - self._now()
        if left > 0:
            self._wait(left)


def body_lines(records: Iterable[Record], clock: Clock) -> Iterator[bytes]:
    """The lines of a recorded body with their ends, as soon as each of them was whole, and b"" for each
    record, so that those which complete no line are seen too."""
    pieces: list[bytes] = []
    for record in records:
        yield b""
        if not isinstance(record, Chunk):
            if isinstance(record, Ended):
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


# What of a request says which recorded exchange answers it: its model and what was asked last.

# fields whose strings are names and not what was said; ids differ from run to run
_NOT_SAID: Final = frozenset(
    {"id", "call_id", "tool_call_id", "tool_use_id", "item_id", "type", "role", "status", "cache_control"}
)
_TURNS: Final = ("messages", "input")


class Wanted(NamedTuple):
    """`model` is "" where none is named; `said` a digest of the texts of the last entry of the input, without
    its ids and with all white space alike."""

    model: str
    said: str


def wanted(body: Any) -> Wanted:
    """Of a request's body, in any dialect."""
    fields = body if isinstance(body, dict) else {}
    model = fields.get("model")
    turns = next((fields[name] for name in _TURNS if fields.get(name)), None)
    last = turns[-1] if isinstance(turns, list) else turns
    words = " ".join(" ".join(_texts(masked_value(last))).split())
    digest = blake2s(words.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Wanted(model if isinstance(model, str) else "", digest)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in _NOT_SAID:
                yield from _texts(each)


MOST_BYTES: Final = 4 << 30
MOST_EXCHANGES: Final = 100_000
_BLOCK: Final = 64 * 1024
_KEPT: Final = 8  # recordings whose contents are remembered


class Changed(Exception):
    """The file is not the one any more whose contents are known."""


class Exchange(NamedTuple):
    """One exchange: its request without the body, what it asks for, `line` where it begins; `places` are the
    beginnings and ends of the runs of lines that it has, in bytes."""

    asked: Asked
    wanted: Wanted
    line: int
    places: array[int]
    status: int = 0
    end: str = ""
    """How it ended, "" when that was not recorded."""


class _Identity(NamedTuple):
    device: int
    file: int
    size: int
    changed: int


class Recording(NamedTuple):
    """A recording that can be read to its end; `exchanges` in the order of their requests."""

    path: Path
    identity: _Identity
    exchanges: list[Exchange]

    def records(self, exchange: Exchange) -> Generator[Record]:
        """All records of an exchange. Raises Changed when the file has changed, OSError when it can't be
        read."""
        with _opened(self.path) as file:
            for begin, end in zip(exchange.places[::2], exchange.places[1::2], strict=True):
                for line in _lines(file, begin, end, self.identity):
                    record = decode_record(line)
                    if record is not None:
                        yield record


def read_recording(path: Path) -> Recording:
    """What is in the file. Raises Unreadable naming the line, OSError."""
    with _opened(path) as file:
        identity = _identity(file)
    return _read(path, identity)


@lru_cache(maxsize=_KEPT)
def _read(path: Path, identity: _Identity) -> Recording:
    if identity.size > MOST_BYTES:
        raise Unreadable(1, f"the recording is larger than {MOST_BYTES >> 30} GiB")
    with _opened(path) as file:
        return Recording(path, identity, exchanges_in(file))


def exchanges_in(file: BinaryIO) -> list[Exchange]:
    """The exchanges of a recording that is read from its beginning. Raises Unreadable naming the line."""
    index = Index()
    while line := file.readline(LONGEST_LINE + 1):
        index.feed(line)
    return index.exchanges


class Index:
    """The lines of a recording in, its exchanges out. Raises Unreadable naming the line."""

    def __init__(self) -> None:
        self._found: dict[int, Exchange] = {}
        self._lines = 0
        self._place = 0

    @property
    def exchanges(self) -> list[Exchange]:
        """Those of all lines so far."""
        if not self._lines:
            raise Unreadable(1, "there is nothing in it")
        return list(self._found.values())

    def feed(self, line: bytes) -> None:
        """The next line."""
        number, place = self._lines + 1, self._place
        self._lines, self._place = number, place + len(line)
        if len(line) > LONGEST_LINE:
            raise Unreadable(number, f"the line is longer than {LONGEST_LINE >> 20} MiB")
        if number > 1 and not line.strip():
            return
        try:
            record = decode_record(line)
        except RecordError as error:
            broken = "" if line.endswith(b"\n") else " (the file ends within this line)"
            raise Unreadable(number, f"{error}{broken}") from error
        if number == 1:
            _check_beginning(record)
        elif isinstance(record, Asked):
            self._begin(number, place, line, record)
        elif isinstance(record, Answered | Chunk | Ended):
            self._extend(number, place, line, record)
        elif isinstance(record, Begun):
            raise Unreadable(number, "a second recording begins within the file")

    def _begin(self, number: int, place: int, line: bytes, asked: Asked) -> None:
        if asked.exchange in self._found:
            raise Unreadable(number, f"exchange {asked.exchange} begins twice")
        if len(self._found) == MOST_EXCHANGES:
            raise Unreadable(number, f"there are more than {MOST_EXCHANGES} exchanges")
        small = msgspec.structs.replace(asked, body=msgspec.Raw(b"null"), text=None, base64=None)
        places = array("Q", [place, place + len(line)])
        self._found[asked.exchange] = Exchange(small, wanted(body_of(asked)), number, places)

    def _extend(self, number: int, place: int, line: bytes, record: Answered | Chunk | Ended) -> None:
        exchange = self._found.get(record.exchange)
        if exchange is None:
            raise Unreadable(number, f"exchange {record.exchange} has not begun")
        if exchange.end:
            raise Unreadable(number, f"exchange {record.exchange} has ended before")
        if isinstance(record, Answered) and exchange.status:
            raise Unreadable(number, f"exchange {record.exchange} has a second status")
        if isinstance(record, Chunk) and not exchange.status:
            raise Unreadable(number, f"exchange {record.exchange} has no status before its body")
        if isinstance(record, Answered):
            self._found[record.exchange] = exchange._replace(status=record.status)
        elif isinstance(record, Ended):
            self._found[record.exchange] = exchange._replace(end=record.how)
        if exchange.places[-1] == place:
            exchange.places[-1] = place + len(line)
        else:
            exchange.places.extend((place, place + len(line)))


def _check_beginning(record: Record | None) -> None:
    if not isinstance(record, Begun):
        raise Unreadable(1, "this is not a recording: its first line has another type")
    if record.version > VERSION:
        raise Unreadable(1, f"version {record.version} of recordings is newer than {VERSION}, which is known")


def _opened(path: Path) -> BinaryIO:
    """The file, which has to be a regular one: others may be read without end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _identity(file: BinaryIO) -> _Identity:
    status = os.fstat(file.fileno())
    return _Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _lines(file: BinaryIO, begin: int, end: int, identity: _Identity) -> Iterator[bytes]:
    """The lines between two places of the file, which is read block by block."""
    pieces: list[bytes] = []
    while begin < end:
        if _identity(file) != identity:
            raise Changed
        block = os.pread(file.fileno(), min(_BLOCK, end - begin), begin)
        if not block:
            raise Changed
        begin += len(block)
        *whole, rest = block.split(b"\n")
        for line in whole:
            yield b"".join([*pieces, line])
            pieces = []
        pieces.append(rest)
    if last := b"".join(pieces).strip():
        yield last
