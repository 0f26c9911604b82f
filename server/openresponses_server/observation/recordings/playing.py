"""Plays a file: its answers one after the other, and each of them in steps.

A capture is one answer without an exchange. A recording has one for each exchange, at the recorded times.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from tempfile import TemporaryFile
from typing import BinaryIO, Final, NamedTuple

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import responses
from openresponses_server.observation.recordings.captures import (
    Check,
    Payload,
    UnreadableCapture,
    accept_all,
    payloads_and_pauses,
    with_pauses,
)
from openresponses_server.observation.recordings.dialects import (
    DIALECTS,
    PAUSE,
    CaptureStep,
    CaptureTranslator,
    SentResponses,
    dialect_of,
)
from openresponses_server.observation.recordings.reader import (
    Changed,
    Clock,
    Exchange,
    Index,
    body_lines,
    identity_of,
    records_of,
)
from openresponses_server.observation.recordings.records import is_recording
from openresponses_server.observation.recordings.unpacking import unpacked

AUTO: Final = "auto"
_FIRST: Final = 4096  # bytes of the first line by which a recording is recognised
_REFUSAL_RECORDS: Final = 100
_MESSAGE: Final = 200  # characters
_NAME: Final = 40
_MOST_NAMES: Final = 8


class CaptureReader:
    """Reads a capture in steps. `dialect` is its name; with `auto`, that of the first payload. Events have
    the spelling `wire`; with `as_sent`, those of Responses are as they were sent."""

    def __init__(self, dialect: str, wire: str, *, as_sent: bool = False) -> None:
        self._name = dialect
        self._wire = wire
        self._as_sent = as_sent
        self._opened: CaptureTranslator | SentResponses | None = None

    def read(self, lines: Iterable[bytes], check: Check = accept_all) -> Iterator[CaptureStep]:
        """Read lines to the end of the capture; `check` refuses payloads before they are decoded. Raises
        UnreadableCapture."""
        for payload in payloads_and_pauses(with_pauses(lines), check):
            if payload is None:
                yield PAUSE
            else:
                yield from self.feed(payload)
        yield from self.close()

    def feed(self, payload: Payload) -> Iterable[CaptureStep]:
        """Read the next payload. Raises UnreadableCapture if its dialect is unknown."""
        if self._opened is None:
            self._opened = self._open(payload)
        return self._opened.feed(payload)

    def close(self) -> Iterable[CaptureStep]:
        """End the capture. Returns the last steps."""
        return () if self._opened is None else self._opened.close()

    def _open(self, first: Payload) -> CaptureTranslator | SentResponses:
        name = dialect_of(first) if self._name == AUTO else self._name
        if name is None:
            raise UnreadableCapture(first.line, _unknown(first))
        if self._as_sent and name == responses.DIALECT.name:
            return SentResponses()
        return CaptureTranslator(DIALECTS[name], first, self._wire)

    @property
    def text_after_tools(self) -> bool:
        """True if clients of Chat Completions get text that comes after a tool call. This property and the
        next two are valid after the first step."""
        return self._known.text_after_tools

    @property
    def cases(self) -> Diagnostics:
        """The repairs, losses and ignored fields of the last step's response."""
        return self._known.cases

    @property
    def diagnostics(self) -> Diagnostics:
        """The repairs, losses and ignored fields of the responses that have ended."""
        return self._known.diagnostics

    @property
    def _known(self) -> CaptureTranslator | SentResponses:
        assert self._opened is not None
        return self._opened


def _unknown(first: Payload) -> str:
    value = first.value or {}
    if isinstance(value.get("error"), dict):
        message = str(value["error"].get("message"))[:_MESSAGE]
        return f"this is the body of an HTTP error, not a stream or answer: {message}"
    if isinstance(value.get("log"), dict):
        return "this is an HTTP archive (HAR): `openresponses-bridge inspect FILE` reads it"
    fields = ", ".join(repr(name[:_NAME]) for name in [*value][:_MOST_NAMES]) or "none"
    return f"what begins with the fields {fields} is not one of: {', '.join(DIALECTS)}"


class CapturedAnswer(NamedTuple):
    """A capture, or the answer of one exchange."""

    lines: Iterator[bytes]
    """The lines of the answer's body, with b"" for data that complete no line."""
    exchange: Exchange | None = None

    @property
    def refusal(self) -> str:
        """The refusal's text; empty if the request was not refused."""
        if self.exchange is None or 200 <= self.exchange.status < 300:
            return ""
        return f"refused with status {self.exchange.status}" if self.exchange.status else "no answer"

    def beginning(self, characters: int) -> str:
        """Return the beginning of the body."""
        with self._naming_exchange():
            return b"".join(islice(self.lines, _REFUSAL_RECORDS)).decode("utf-8", "replace")[:characters]

    def dialect(self, name: str) -> str:
        """Return the dialect of this name; with `auto`, the recorded one, if any. Raises UnreadableCapture if
        it is unknown."""
        if self.exchange is None or name != AUTO:
            return name
        recorded = self.exchange.asked.dialect
        if recorded not in DIALECTS:
            what = f"dialect {recorded[:100]!r} is not one of: {', '.join(DIALECTS)}"
            raise UnreadableCapture(self.exchange.line, what)
        return recorded

    def steps(self, reader: CaptureReader, check: Check = accept_all) -> Iterator[CaptureStep]:
        """Read the answer with this reader. Raises UnreadableCapture, which names the exchange."""
        with self._naming_exchange():
            yield from reader.read(self.lines, check)

    @contextmanager
    def _naming_exchange(self) -> Iterator[None]:
        if self.exchange is None:
            yield
            return
        number, line = self.exchange.asked.exchange, self.exchange.line
        try:
            yield
        except UnreadableCapture as error:
            raise UnreadableCapture(
                line, f"the answer of exchange {number} can't be read: {error}"
            ) from error
        except Changed as error:
            raise UnreadableCapture(
                line, f"the file changed while exchange {number} was being read"
            ) from error


def of_models(exchanges: list[Exchange]) -> list[Exchange]:
    """Return the exchanges with upstreams, from which those with clients were made; all exchanges if there
    are none."""
    return [each for each in exchanges if each.asked.leg == "upstream"] or exchanges


class CaptureFile:
    """An open file with a capture or a recording, read from its present position. `others` are files with the
    captures that follow it."""

    def __init__(self, file: BinaryIO, others: Iterator[BinaryIO] | None = None) -> None:
        self._file = file
        self._others = others
        self._start = file.tell() if file.seekable() else 0
        self._first = file.readline(_FIRST)
        self.is_recording = is_recording(self._first)

    def answers(
        self, clock: Clock, choose: Callable[[list[Exchange]], list[Exchange]] = of_models
    ) -> Iterator[CapturedAnswer | None]:
        """Yield the answer of a capture, or those of the chosen exchanges, each when the clock has reached
        its request; and None at times, so that no step takes long. Raises UnreadableCapture."""
        if not self.is_recording:
            first = self._first if self._first.endswith(b"\n") else self._first + self._file.readline()
            yield CapturedAnswer(chain([first] if first else [], self._file))
            for other in self._others or ():
                yield CapturedAnswer(iter(other))
            return
        with self._seekable() as (file, start):
            index, identity = Index(start), identity_of(file)
            yield from index.read(file)
            for each in choose(index.exchanges):
                clock.reach(each.asked.at)
                yield CapturedAnswer(body_lines(records_of(file, each, identity), clock), each)

    @contextmanager
    def _seekable(self) -> Iterator[tuple[BinaryIO, int]]:
        """The file and its start; data from a pipe are copied to a temporary file."""
        if self._file.seekable():
            yield self._file, self._start
            return
        with TemporaryFile() as copy:
            copy.write(self._first)
            shutil.copyfileobj(self._file, copy)
            copy.flush()  # data that are written later would change the file that is being read
            yield copy, 0


def open_capture(file: BinaryIO) -> CaptureFile:
    """Return the captures or the recording in a file of this user, even if it is wrapped (`unpacking`).
    Raises UnreadableCapture."""
    captures = unpacked(file)
    return CaptureFile(next(captures), captures)
