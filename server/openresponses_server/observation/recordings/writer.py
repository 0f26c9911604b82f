"""Writes a recording while an answer is sent; a failure to write never delays the answer.

Only the user of this process can read the file. A line is written completely or not at all. After a failure,
or at the file's limit, nothing more is recorded, which the ends of the open exchanges report.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple, Protocol

import structlog
from msgspec import Raw

from openresponses_server.observation.recordings.masking import (
    Finds,
    StreamMask,
    masked_address,
    masked_body,
    masked_headers,
    without,
)
from openresponses_server.observation.recordings.records import (
    VERSION,
    Chunk,
    How,
    Note,
    Record,
    RecordedEnd,
    RecordedRequest,
    RecordedStatus,
    RecordingStart,
    chunk,
    encode_record,
)
from openresponses_server.settings.data_folder import make_private

MOST_BYTES: Final = 1 << 30
_FULL: Final = "the recording has reached its largest size"
_ROOM_FOR_ENDS: Final = 64 * 1024  # bytes that are reserved for the ends of open exchanges
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_NAME: Final = 80
_AT_ONCE: Final = 64 * 1024  # bytes of an answer that are masked without yielding to the event loop
_log = structlog.get_logger(__name__)


class RecordingFile:
    """One recording, of at most `most` bytes. Its file is created with the first line and must not exist
    before. `clock` is monotonic, in seconds. A failure to write is logged once."""

    def __init__(
        self,
        path: Path,
        most: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.path = path
        self._most = most
        self._clock = clock
        self._now = now
        self._file: int | None = None
        self._size = 0
        self._began = 0.0
        self._exchanges = 0
        self._generator = f"openresponses-bridge {metadata.version('openresponses-bridge')}"
        self._closed = False
        self._counted = 0
        self.answered = False
        """Whether any exchange has a response, even a refusal."""
        self.failure = ""
        """The reason why recording has stopped; "" if it has not."""

    def begin(self, request: RecordedRequest) -> int:
        """Write a request with the next number and the current time. Returns the number of its exchange, 0 if
        it could not be written."""
        self._exchanges += 1
        self.create()
        fields = {name: getattr(request, name) for name in RecordedRequest.__struct_fields__}
        written = self.write(RecordedRequest(**(fields | {"exchange": self._exchanges, "at": self.at})))
        return self._exchanges if written else 0

    @property
    def at(self) -> float:
        """Seconds since the recording began."""
        return round(max(self._clock() - self._began, 0.0), 6)

    def write(self, record: Record) -> bool:
        """Write a record. Returns False if that failed."""
        self.answered = self.answered or isinstance(record, RecordedStatus)
        return self._put(encode_record(record), self._most - _ROOM_FOR_ENDS)

    def end(self, record: RecordedEnd) -> None:
        """Write the end of an exchange, even after recording has stopped."""
        if self.failure:
            record = RecordedEnd(record.exchange, record.at, "unrecorded", reason=self.failure)
        self._put(encode_record(record), self._most, last=True)

    def record_note(self, kind: str, where: str, what: str, times: int = 1, run: str = "") -> None:
        """Write a note."""
        self.write(Note(self.at, kind, where, what, times, run))

    def target_for(self, upstream: str) -> RecordingTarget:
        """Return the target for any upstream: this file."""
        return RecordingTarget(self)

    def rest(self) -> None:
        """Close the file until the next write."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def grown(self) -> int:
        """Return the number of bytes that were written since the last call."""
        grown, self._counted = self._size - self._counted, self._size
        return grown

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._closed = True

    def discard(self) -> None:
        """Close and remove the file, if there is one."""
        self.close()
        if self._size:
            self.path.unlink(missing_ok=True)

    def create(self) -> None:
        """Create the file if it does not exist. If that fails, `failure` has the reason."""
        if self._file is not None or self._size or self.failure or self._closed:
            return
        try:
            make_private(self.path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o600)
        except OSError as error:
            self._fail(error.strerror or type(error).__name__)
            return
        created = self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._began = self._clock()
        self.write(RecordingStart(VERSION, created, self._generator))

    def _put(self, line: bytes, most: int, *, last: bool = False) -> bool:
        if (self.failure and not last) or not self._opened():
            return False
        assert self._file is not None
        if self._size + len(line) > most:
            self._fail(_FULL)
            return False
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._cut_back()
            self._fail(error.strerror or type(error).__name__)
            return False
        self._size += len(line)
        return True

    def _opened(self) -> bool:
        """Open the file again after `rest`, unless it was deleted. Returns whether it is open."""
        if self._file is None and self._size and not self._closed:
            try:
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as error:
                self._closed = True
                self.failure = self.failure or error.strerror or type(error).__name__
        return self._file is not None

    def _cut_back(self) -> None:
        """Remove an incomplete line, which would make the whole file unreadable."""
        assert self._file is not None
        try:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
        except OSError:
            self.close()

    def _fail(self, reason: str) -> None:
        if not self.failure:
            self.failure = reason
            _log.warning("recording.stopped", file=str(self.path), reason=reason)


class RecordingTarget(NamedTuple):
    """The file in which an exchange is recorded, the response that it belongs to, and more secrets to mask.
    `shows_address` is False for a recording that clients may read."""

    file: RecordingFile
    run: str = ""
    secrets: Sequence[str] = ()
    shows_address: bool = True


class RecordingPolicy(Protocol):
    """Decides which exchanges are recorded, and where."""

    def target_for(self, upstream: str) -> RecordingTarget | None:
        """Return the target for the next exchange with this upstream; None if it is not recorded."""
        ...

    def close(self) -> None:
        """End the recording: there are no more exchanges."""
        ...


Files = Callable[[str], RecordingFile]
"""Creates the recording of the upstream of this name."""
Tap = Callable[[str], RecordingPolicy]
"""Returns the recording policy for the upstream of this name."""


class ExchangeRecorder:
    """Masks and writes one exchange of a recording."""

    def __init__(
        self, file: RecordingFile, finds: Finds, request: RecordedRequest, body: bytes | None = None
    ) -> None:
        """Write the request `request`, with its headers, address and `body` masked."""
        shown = masked_request(request, body, finds)
        self._file = file
        self._finds = finds
        self._mask = StreamMask(finds)
        self._number = file.begin(shown)
        self._ended = not self._number

    def answer(self, status: int, headers: Mapping[str, str]) -> None:
        """Write the response's status and headers."""
        if self._ended:
            return
        shown = {
            name: without(value, self._finds) for name, value in masked_headers(headers, drop=True).items()
        }
        self._file.write(RecordedStatus(self._number, self._file.at, status, shown))

    def chunk(self, data: bytes) -> None:
        """Write bytes of the response's body."""
        if not self._ended:
            self._write(self._mask.feed(self._file.at, data))

    async def feed(self, data: bytes) -> None:
        """Write bytes of the response's body. Many bytes become several chunks, between which other tasks
        run."""
        for start in range(0, len(data), _AT_ONCE):
            if start:
                await asyncio.sleep(0)
            self.chunk(data[start : start + _AT_ONCE])

    def end(self, how: How, code: str = "", reason: str = "") -> None:
        """Write the end; a second call does nothing."""
        if self._ended:
            return
        self._ended = True
        at = self._file.at
        self._write(self._mask.close())
        self._file.end(RecordedEnd(self._number, at, how, code, without(reason, self._finds)))

    def _write(self, chunks: list[tuple[float, bytes]]) -> None:
        for at, data in chunks:
            record: Chunk = chunk(self._number, at, data)
            self._file.write(record)


def masked_request(request: RecordedRequest, body: bytes | None, finds: Finds) -> RecordedRequest:
    """The request with its secrets masked. Without `body`, the request has a body that is masked already."""
    fields: dict[str, Any] = {name: getattr(request, name) for name in RecordedRequest.__struct_fields__}
    fields["headers"] = {
        name: without(value, finds) for name, value in masked_headers(request.headers).items()
    }
    fields["address"] = without(masked_address(request.address), finds)
    if body is not None:
        shown = masked_body(body, finds)
        fields["body"] = Raw(b"null") if shown is None else shown
        if shown is None:
            fields["text"] = without(body.decode("utf-8", "backslashreplace"), finds)
    return RecordedRequest(**fields)


def files_in(folder: str, most: int = MOST_BYTES) -> Files:
    """Create recordings in this folder, named after upstreams; no name can lead out of the folder."""

    def made(upstream: str) -> RecordingFile:
        name = _NOT_IN_A_NAME.sub("_", upstream[:_LONGEST_NAME]).lstrip(".") or "upstream"
        at = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        return RecordingFile(Path(folder, f"{name}-{at}-{token_hex(4)}.jsonl"), most)

    return made
