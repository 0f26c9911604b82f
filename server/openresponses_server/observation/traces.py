"""The trace of one request: a recording of what its client and the upstreams sent and were sent.

The file is made with the first response, and is not open while nobody writes: a response in the background
goes on when its request has been answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from itertools import islice
from typing import Final, Protocol

import msgspec
import structlog

from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.events import Event
from openresponses_server.observation.recordings.masking import Secrets, hidden_in, model_of, without
from openresponses_server.observation.recordings.records import Asked, How
from openresponses_server.observation.recordings.writer import (
    ExchangeRecorder,
    RecordingFile,
    RecordingTarget,
    masked_request,
)
from openresponses_server.observation.responses import Ended, LoggedEnd, TokenTiming

# The trace of the response that is being made. It is in the context of the task that makes it, so that what
# stands between an upstream and its connections finds it.


class Translated(Protocol):
    """The translation of one response."""

    @property
    def response_id(self) -> str: ...
    @property
    def diagnostics(self) -> Diagnostics: ...


class Traced(Protocol):
    """The trace of one response."""

    def target_for(self, upstream: str) -> RecordingTarget:
        """Where its next exchange, with this upstream, is recorded."""
        ...


RUN: Final[ContextVar[Traced | None]] = ContextVar("traced_run", default=None)
"""Set while a response is made that is traced."""


class OfTheRun:
    """Where exchanges with an upstream are recorded: in the trace of the response for which it is asked."""

    def target_for(self, upstream: str) -> RecordingTarget | None:
        run = RUN.get()
        return None if run is None else run.target_for(upstream)

    def close(self) -> None:
        return None  # its response closes it


RETRY: Final = "retry"
FAILOVER: Final = "failover"
END: Final = "end"

_MOST_SECRETS: Final = 256
_MOST_CHARACTERS: Final = 8192  # of all secrets: what finds them takes a hundred times as many bytes
_log = structlog.get_logger(__name__)

Make = Callable[[str], RecordingFile | None]
"""The file for the trace of the response with this id; None where there is to be none."""


class Trace:
    """`asked` is the client's request without its body; `secrets` are masked in all that passes. `made`
    makes the file, `left` gets it when nobody writes to it any more."""

    def __init__(
        self, asked: Asked, secrets: Sequence[str], made: Make, left: Callable[[RecordingFile], None]
    ) -> None:
        self.name = ""
        """The id of the response under which it is kept; "" while there is none."""
        self.secrets = secrets
        self.hides = Secrets(secrets)
        self._many = len(secrets) > _MOST_SECRETS
        self._asked = asked
        self._made = made
        self._left = left
        self._file: RecordingFile | None = None
        self._client: ExchangeRecorder | None = None
        self._writing = 0
        self._answered = False

    def of_run(self, translation: Translated) -> RunTrace | None:
        """What is noted of this response; None where the file can't be made."""
        run = translation.response_id
        if not self.name:
            self._begin(run)
        return None if self._file is None else RunTrace(self, self._file, translation)

    def set_body(self, body: bytes) -> None:
        """This is the client's body, uncompressed. To be called on a thread, before anything else."""
        try:
            hidden = list(islice(hidden_in(decode_json(body)), _MOST_SECRETS + 1))
        except (WireError, RecursionError):
            hidden = []  # it is not JSON that is answered
        if self._many or len(hidden) + len(self.secrets) > _MOST_SECRETS:
            self._many = True
            return
        self.secrets = [*self.secrets, *hidden]
        self.hides = Secrets(self.secrets)
        self._many = self.hides.size > _MOST_CHARACTERS
        if not self._many:
            self.hides.make_ready()
            named = msgspec.structs.replace(self._asked, model=model_of(body))
            self._asked = masked_request(named, body, self.hides)

    def _begin(self, run: str) -> None:
        if self._many:
            _log.warning("trace.too_many_secrets", response_id=run)
            return
        self._file = self._made(run)
        if self._file is None:
            return
        self.name = run
        self.enter()
        asked = msgspec.structs.replace(self._asked, run=run)
        self._client = ExchangeRecorder(self._file, self.hides, asked)

    def answer(self, status: int, headers: Mapping[str, str]) -> None:
        """The client gets this status."""
        if self._client is not None and not self._answered:
            self._answered = True
            self._client.answer(status, headers)

    async def chunk(self, data: bytes) -> None:
        """The client is sent this."""
        if self._client is not None:
            await self._client.feed(data)

    def end(self, how: How) -> None:
        """The client has got all that it gets."""
        if self._client is not None:
            self._client.end(how)
            self._client = None
            self.leave()

    def enter(self) -> None:
        """Somebody writes."""
        self._writing += 1

    def leave(self) -> None:
        """And does not any more."""
        self._writing -= 1
        if not self._writing and self._file is not None:
            self._file.rest()
            self._left(self._file)


class RunTrace:
    """One response of a trace: a `Watch`. What its upstreams are asked is recorded while it is made."""

    def __init__(self, trace: Trace, file: RecordingFile, translation: Translated) -> None:
        self._trace = trace
        self._file = file
        self._translation = translation
        self._run = translation.response_id
        self._noted: dict[tuple[str, str, str], int] = {}
        self._before = ""
        self._token: Token[Traced | None] | None = None

    def timing(self) -> TokenTiming:
        """What measures its pace, and notes what shows with each read."""
        return _NotingTiming(self._note_new)

    def begin(self) -> None:
        self._trace.enter()
        self._token = RUN.set(self)

    def target_for(self, upstream: str) -> RecordingTarget:
        """Where its next exchange, with this upstream, is recorded."""
        if self._before:
            again = self._before == upstream
            what = "is asked again" if again else f"is asked instead of {self._before}"
            self._file.note(RETRY if again else FAILOVER, upstream, what, run=self._run)
        self._before = upstream
        return RecordingTarget(self._file, self._run, self._trace.secrets, shows_address=False)

    def end(self, ended: Ended, said: LoggedEnd) -> None:
        for case in ended.noticed:
            self._note(case)
        what = ": ".join(filter(None, (said.code, said.cause)))
        self._file.note(END, said.status, without(what, self._trace.hides), run=self._run)
        if self._token is not None:
            RUN.reset(self._token)
            self._token = None
        self._trace.leave()

    def _note_new(self) -> None:
        if len(self._translation.diagnostics) > len(self._noted):
            for case in self._translation.diagnostics:
                self._note(case)

    def _note(self, case: Diagnostic) -> None:
        """Once when it shows, and once more when it has happened more often."""
        if self._noted.get(case[:3]) != case.times:
            self._noted[case[:3]] = case.times
            where = without(case.where, self._trace.hides)
            self._file.note(case.kind, where, without(case.what, self._trace.hides), case.times, self._run)


class _NotingTiming(TokenTiming):
    __slots__ = ("_look",)

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self._look = look

    def read(self, events: list[Event]) -> None:
        super().read(events)
        self._look()


# The trace of the request that is being answered, in the context of the task that answers it.

REQUEST: Final[ContextVar[Trace | None]] = ContextVar("traced_request", default=None)
"""Set by whoever takes a request that is traced."""
