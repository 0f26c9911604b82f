"""The trace of one request: a recording of the bytes exchanged with its client and with upstreams.

The file is created with the first response, and is open only while it has writers, since a background
response continues after its request has been answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Final, Protocol

import msgspec
import structlog

from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.usage import Usage
from openresponses_server.observation.recordings.masking import (
    MOST_CHARACTERS,
    MOST_SECRETS,
    Secrets,
    hidden_in_body,
    model_of,
    without,
)
from openresponses_server.observation.recordings.records import How, RecordedRequest
from openresponses_server.observation.recordings.writer import (
    ExchangeRecorder,
    RecordingFile,
    RecordingTarget,
    masked_request,
)
from openresponses_server.observation.responses import EndedRun, LoggedEnd, RunWatch, TokenTiming

# The trace of the current response is in the context of the run's task, where the recorder of an upstream's
# connections finds it.


class TracedResponse(Protocol):
    """The translation of one response."""

    @property
    def response_id(self) -> str: ...
    @property
    def diagnostics(self) -> Diagnostics: ...


class Traced(Protocol):
    """The trace of one response."""

    def target_for(self, upstream: str) -> RecordingTarget:
        """Return the target for the response's next exchange with this upstream."""
        ...


RUN: Final[ContextVar[Traced | None]] = ContextVar("traced_run", default=None)
"""The trace of the current response, in the context of the run's task."""


class CurrentRunPolicy:
    """A recording policy: exchanges are recorded in the trace of the current response."""

    def target_for(self, upstream: str) -> RecordingTarget | None:
        run = RUN.get()
        return None if run is None else run.target_for(upstream)

    def close(self) -> None:
        return None  # the trace's response closes it


RETRY: Final = "retry"
FAILOVER: Final = "failover"
ROUND: Final = "round"
END: Final = "end"

_log = structlog.get_logger(__name__)

CreateFile = Callable[[str], RecordingFile | None]
"""Creates the file for the trace of the response with this id; returns None if there is none."""


class Trace:
    """The trace of one request. `request` is the client's request without its body; `secrets` are masked in
    everything. `create` creates the file; `on_closed` is called with it when its last writer has closed
    it."""

    def __init__(
        self,
        request: RecordedRequest,
        secrets: Sequence[str],
        create: CreateFile,
        on_closed: Callable[[RecordingFile], None],
    ) -> None:
        self.name = ""
        """The id of the response that gave the file its name; "" before there is a file."""
        self.secrets = secrets
        self.hides = Secrets(secrets)
        self._many = len(secrets) > MOST_SECRETS
        self._asked = request
        self._create = create
        self._on_closed = on_closed
        self._file: RecordingFile | None = None
        self._client: ExchangeRecorder | None = None
        self._writing = 0
        self._answered = False

    def of_run(self, translation: TracedResponse) -> RunTrace | None:
        """Return the trace of this response; None if the file can't be created."""
        run = translation.response_id
        if not self.name:
            self._begin(run)
        return None if self._file is None else RunTrace(self, self._file, translation)

    def set_body(self, body: bytes) -> None:
        """Set the client's body, uncompressed. Call this on a thread, before anything else."""
        hidden = hidden_in_body(body, MOST_SECRETS + 1)
        if self._many or len(hidden) + len(self.secrets) > MOST_SECRETS:
            self._many = True
            return
        self.secrets = [*self.secrets, *hidden]
        self.hides = Secrets(self.secrets)
        self._many = self.hides.size > MOST_CHARACTERS
        if not self._many:
            self.hides.make_ready()
            named = msgspec.structs.replace(self._asked, model=model_of(body))
            self._asked = masked_request(named, body, self.hides)

    def _begin(self, run: str) -> None:
        if self._many:
            _log.warning("trace.too_many_secrets", response_id=run)
            return
        self._file = self._create(run)
        if self._file is None:
            return
        self.name = run
        self.acquire()
        request = msgspec.structs.replace(self._asked, run=run)
        self._client = ExchangeRecorder(self._file, self.hides, request)

    def answer(self, status: int, headers: Mapping[str, str]) -> None:
        """Record the status and headers sent to the client."""
        if self._client is not None and not self._answered:
            self._answered = True
            self._client.answer(status, headers)

    async def chunk(self, data: bytes) -> None:
        """Record bytes sent to the client."""
        if self._client is not None:
            await self._client.feed(data)

    def end(self, how: How) -> None:
        """Record how the answer to the client ended."""
        if self._client is not None:
            self._client.end(how)
            self._client = None
            self.release()

    def acquire(self) -> None:
        """Count one more writer."""
        self._writing += 1

    def release(self) -> None:
        """Count one writer fewer; the last one closes the file."""
        self._writing -= 1
        if not self._writing and self._file is not None:
            self._file.rest()
            self._on_closed(self._file)


class RunTrace(RunWatch):
    """One response of a trace. Its exchanges with upstreams are recorded during the run."""

    def __init__(self, trace: Trace, file: RecordingFile, translation: TracedResponse) -> None:
        self._trace = trace
        self._file = file
        self._translation = translation
        self._run = translation.response_id
        self._noted: dict[tuple[str, str, str], int] = {}
        self._before = self._refused = ""
        self._answers = 0
        self._token: Token[Traced | None] | None = None

    def timing(self) -> TokenTiming:
        """Return the response's timing, which also records new diagnostics at each read."""
        return _NotingTiming(self._record_new)

    def begin(self) -> None:
        self._trace.acquire()
        self._token = RUN.set(self)

    def target_for(self, upstream: str) -> RecordingTarget:
        """Return the target for the response's next exchange with this upstream."""
        if self._before:
            again = self._before == upstream
            what = "is asked again" if again else f"is asked instead of {self._before}"
            if self._refused:
                what += f", after {self._refused}"
            self._file.record_note(RETRY if again else FAILOVER, upstream, what, run=self._run)
        self._before, self._refused = upstream, ""
        return RecordingTarget(self._file, self._run, self._trace.secrets, shows_address=False)

    def refused_by(self, outcome: str) -> None:
        """Record that the upstream of the last exchange has refused, with this status."""
        self._refused = outcome

    def end_answer(self, usage: Usage) -> None:
        """Record the end of one of the response's answers. A later request to the same upstream is not a
        retry."""
        self._answers += 1
        suffix = " (estimated)" if usage.estimated is True else ""
        what = f"{usage.input_tokens} tokens in, {usage.output_tokens} out{suffix}"
        self._file.record_note(ROUND, str(self._answers), what, run=self._run)
        self._before = ""

    def end(self, ended: EndedRun, logged_end: LoggedEnd) -> None:
        for usage in ended.rounds[self._answers :]:
            self.end_answer(usage)
        for case in ended.noticed:
            self._record(case)
        what = ": ".join(filter(None, (logged_end.code, logged_end.cause)))
        self._file.record_note(END, logged_end.status, without(what, self._trace.hides), run=self._run)
        if self._token is not None:
            RUN.reset(self._token)
            self._token = None
        self._trace.release()

    def _record_new(self) -> None:
        if len(self._translation.diagnostics) > len(self._noted):
            for case in self._translation.diagnostics:
                self._record(case)

    def _record(self, case: Diagnostic) -> None:
        """Write a note when the diagnostic first occurs, and another at the end if it occurred again."""
        if self._noted.get(case[:3]) != case.times:
            self._noted[case[:3]] = case.times
            where = without(case.where, self._trace.hides)
            self._file.record_note(
                case.kind, where, without(case.what, self._trace.hides), case.times, self._run
            )


class _NotingTiming(TokenTiming):
    __slots__ = ("_look",)

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self._look = look

    def read(self, events: list[Event]) -> None:
        super().read(events)
        self._look()


# The trace of the current request, in the context of its task.

REQUEST: Final[ContextVar[Trace | None]] = ContextVar("traced_request", default=None)
"""Set where a traced request is accepted."""
