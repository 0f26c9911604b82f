"""A recording instead of an upstream's connections: each request gets the answer of a recorded one, with its
status, chunks, pauses and end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import structlog

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.response import ErrorBody, ErrorPayload
from openresponses_server.http.client.failures import ConnectionLost
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.client.upload import Upload
from openresponses_server.http.flow import TaskSource
from openresponses_server.observation.recordings.captures import UnreadableCapture
from openresponses_server.observation.recordings.reader import (
    Changed,
    Clock,
    Exchange,
    Recording,
    read_recording,
    speed_of,
    wanted,
)
from openresponses_server.observation.recordings.records import Chunk, Record, RecordedEnd, RecordedStatus
from openresponses_server.observation.recordings.writer import Tap
from openresponses_server.settings import Playback, SettingsError, Timeouts
from openresponses_server.upstreams.base import HttpClient, HttpClientFactory, HttpResponse
from openresponses_server.upstreams.dialects import HttpDialect
from openresponses_server.upstreams.recording.recorded import TIMEOUT, RecordingRequests

NOT_RECORDED: Final = "not_recorded"
CHANGED: Final = "recording_changed"
_JSON: Final = {"content-type": "application/json"}
_AT_ONCE: Final = 64  # records read at once, on a thread
_MOST_AT_ONCE: Final = 1024 * 1024  # characters, after which reading stops
_NAMED: Final = 5  # models named in a message
_log = structlog.get_logger(__name__)


class PlayedRequests:
    """Answers requests from these exchanges of a recording. `name` is the upstream's."""

    def __init__(
        self, recording: Recording, exchanges: Sequence[Exchange], playback: Playback, name: str
    ) -> None:
        self._recording = recording
        self._queue = Queue(exchanges, playback)
        self._speed = speed_of(playback.speed)
        self._models = list(dict.fromkeys(each.asked.model for each in exchanges if each.asked.model))
        self._name = name

    async def request(
        self,
        method: str,
        _url: str,
        *,
        headers: Mapping[str, str],
        data: bytes | Upload = b"",
        session: str = "",
    ) -> HttpResponse:
        """The recorded answer. Raises the error of a connection if there was no answer."""
        if method != "POST":
            listed = {"object": "list", "data": [{"id": model, "object": "model"} for model in self._models]}
            return PlayedAnswer(200, _JSON, _body(encode(listed)))
        assert isinstance(data, bytes)  # it forwards nothing
        exchange, refused = self._queue.next(data)
        if exchange is None:
            return self._error(404, NOT_RECORDED, f"the recording of {self._name!r} {refused}")
        reading = _Reading(self._recording, exchange, self._speed)
        try:
            return await self._answer(reading)
        except _PlaybackFailure:
            reading.close()
            _log.warning("recording.unreadable", upstream=self._name, file=str(self._recording.path))
            what = f"the recording of {self._name!r} has changed since it was read, or can't be read any more"
            return self._error(502, CHANGED, what)
        except BaseException:
            reading.close()
            raise

    async def _answer(self, reading: _Reading) -> HttpResponse:
        while (record := await reading.next()) is not None:
            if isinstance(record, RecordedEnd):
                await reading.reach(record.at)
                if record.code == TIMEOUT or record.how == "left":
                    raise TimeoutError  # the client had stopped waiting
                raise ConnectionLost(record.reason)
            if isinstance(record, RecordedStatus):
                await reading.reach(record.at)
                return PlayedAnswer(
                    record.status, record.headers, TaskSource(partial(_piece, reading)), reading
                )
        raise ConnectionLost("the recording has no answer")

    def _error(self, status: int, code: str, message: str) -> HttpResponse:
        body = encode(ErrorBody(ErrorPayload("invalid_request_error", code, message, None)))
        return PlayedAnswer(status, _JSON, _body(body))

    def prewarm(
        self, url: str, *, headers: Mapping[str, str], session: str = "", conversation: str = ""
    ) -> None:
        return None

    async def close(self) -> None:
        return None


class Queue:
    """Chooses the exchange that answers the next request."""

    def __init__(self, exchanges: Sequence[Exchange], playback: Playback) -> None:
        self._by_request = playback.match == "request"
        self._loop = playback.loop
        self._lines: dict[Any, list[Exchange]] = {}
        self._next: dict[Any, int] = {}
        self._models = sorted({each.asked.model for each in exchanges})
        for each in exchanges:
            self._lines.setdefault(self._line(each.wanted), []).append(each)

    def next(self, body: bytes) -> tuple[Exchange | None, str]:
        """The exchange for a request with this body, else the reason why there is none."""
        try:
            key = wanted(decode_json(body))
        except (WireError, RecursionError):
            return None, "has no answer for what is not JSON"
        line = self._line(key)
        exchanges = self._lines.get(line)
        if exchanges is None:
            return None, self._unknown(key.model)
        at = self._next.get(line, 0)
        if at == len(exchanges) and not self._loop:
            what = "such exchanges" if self._by_request else "exchanges"
            return None, f"is at its end: all {len(exchanges)} {what} were played (`loop` repeats them)"
        at %= len(exchanges)
        self._next[line] = at + 1
        return exchanges[at], ""

    def _line(self, key: Any) -> Any:
        return key if self._by_request else None

    def _unknown(self, model: str) -> str:
        if model not in self._models:
            named = ", ".join(repr(each[:80]) for each in self._models[:_NAMED])
            return f"has no exchange with the model {model[:80]!r}: it has {named}"
        return (
            f"has no exchange with the model {model[:80]!r} and this last input "
            '(`match = "order"` answers in the order of the recording, whatever is asked)'
        )


class PlayedAnswer:
    """An `HttpResponse`."""

    def __init__(
        self, status: int, headers: Mapping[str, str], content: TaskSource, reading: _Reading | None = None
    ) -> None:
        self.status = status
        self.headers = headers
        self.content = content
        self._reading = reading

    def close(self) -> None:
        self.content.close()
        if self._reading is not None:
            self._reading.close()


def _body(data: bytes) -> TaskSource:
    """A body that arrives at once."""
    pieces = iter((data,))

    async def read() -> bytes:
        return next(pieces, b"")

    return TaskSource(read)


async def _piece(reading: _Reading) -> bytes:
    """The next chunk of a recorded body."""
    record = await reading.next()
    if record is not None:
        await reading.reach(record.at)
    if isinstance(record, Chunk):
        return record.data
    if isinstance(record, RecordedEnd) and record.how in ("finished", "left"):
        return b""
    if isinstance(record, RecordedEnd) and record.code == TIMEOUT:
        raise TimeoutError
    raise ConnectionLost(record.reason if isinstance(record, RecordedEnd) else "the recording stops here")


class _PlaybackFailure(ConnectionLost):
    """The recording has changed, or can no longer be read."""


class _Reading:
    """The records of one exchange, at the times of a clock."""

    def __init__(self, recording: Recording, exchange: Exchange, speed: float | None) -> None:
        self._records = recording.records(exchange)
        self._ready: list[Record] = []
        self._clock = Clock(speed)
        self._clock.advance(exchange.asked.at)

    async def next(self) -> RecordedStatus | Chunk | RecordedEnd | None:
        """The next record except the request; None at the end."""
        while True:
            if not self._ready:
                self._ready = (await self._several())[::-1]
            if not self._ready:
                return None
            record = self._ready.pop()
            if isinstance(record, RecordedStatus | Chunk | RecordedEnd):
                return record

    async def _several(self) -> list[Record]:
        try:
            return await asyncio.to_thread(_several, self._records)
        except (Changed, OSError) as error:
            raise _PlaybackFailure("the recording can't be read any more") from error

    async def reach(self, at: float) -> None:
        """Wait until this time of the recording."""
        await asyncio.sleep(self._clock.advance(at))

    def close(self) -> None:
        with suppress(ValueError):  # a thread still reads: the file is closed afterwards
            self._records.close()


def _several(records: Iterator[Record]) -> list[Record]:
    batch: list[Record] = []
    size = 0
    for record in islice(records, _AT_ONCE):
        batch.append(record)
        size += len(record.text or record.base64 or "") if isinstance(record, Chunk) else 0
        if size >= _MOST_AT_ONCE:
            break
    return batch


class PlayedUpstream:
    """An upstream that plays a recording; `dialect` is the requested one, if any. Raises SettingsError about
    `.url`."""

    def __init__(self, path: Path, dialect: str | None) -> None:
        try:
            self.recording: Recording = read_recording(path)
        except UnreadableCapture as error:
            raise SettingsError(f"{path}: {error}", ".url") from error
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror or error}", ".url") from error
        exchanges = [each for each in self.recording.exchanges if each.asked.leg == "upstream"]
        spoken = list(dict.fromkeys(each.asked.dialect for each in exchanges))
        if dialect is None and len(spoken) > 1:
            raise SettingsError(
                f"{path} has exchanges in {', '.join(spoken)}: choose one with `dialect`", ".url"
            )
        self.dialect = dialect or (spoken[0] if spoken else None)
        self.exchanges: list[Exchange] = [each for each in exchanges if each.asked.dialect == self.dialect]
        if not self.exchanges:
            what = "no exchanges with an upstream" if not exchanges else f"no exchanges in {self.dialect}"
            raise SettingsError(f"{path} has {what}", ".url")

    def connect(self, playback: Playback) -> HttpClientFactory:
        """The factory of the player, instead of connections."""

        def answering(name: str, _timeouts: Timeouts) -> HttpClient:
            return PlayedRequests(self.recording, self.exchanges, playback, name)

        return answering


def recorded_connect(
    tap: Tap, dialect: HttpDialect, url: str, secrets: Iterable[str], connect: HttpClientFactory | None = None
) -> HttpClientFactory:
    """The factory of recorded connections to an upstream at this address, or of recorded `connect`. Raises
    ValueError for an invalid address."""
    base = dialect.address(url)
    password = urlsplit(base).password or ""
    hidden = [*secrets, password, unquote(password)]

    def connected(name: str, timeouts: Timeouts) -> HttpClient:
        requests = (connect or ConnectionPool)(name, timeouts)
        return RecordingRequests(requests, tap(name), name, dialect.dialect.name, base, hidden)

    return connected
