"""Law S11: each response's end is one line in the log, without content and without secrets.

An upstream's error message may quote what a person wrote, so only its code is logged, which is a name for
programs; `cause` is written by this server or the operating system.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, Protocol

import structlog
from msgspec import Struct, field
from starlette.requests import ClientDisconnect

from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.dialects.base import CUT, EMPTY, INVALID_JSON, INVALID_SHAPE
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.state import TERMINAL_EVENT
from openresponses_server.errors import HttpError, Outage, UpstreamError
from openresponses_server.observation.responses import (
    HANDED_OVER,
    EndedRun,
    LoggedEnd,
    RunWatch,
    TokenTiming,
    Watch,
)
from openresponses_server.store.endings import is_cancelled
from openresponses_server.upstreams.prices import dollars
from openresponses_server.upstreams.routing.attempts import Attempts

_LONGEST: Final = 200  # characters of a name that a client or an upstream gives
_LONGEST_CODE: Final = 64
_MOST_WARNINGS: Final = 10
_NOT_A_NAME: Final = "other"  # the upstream's code is a sentence
_CANCELLED: Final = "cancelled"
_LEFT: Final = "client_left"
_DEFECT: Final = "internal_error"
# failures that the stream itself shows
_CAUSES: Final = {
    CUT: "its stream ended before the answer did",
    EMPTY: "its stream ended without an answer",
    INVALID_JSON: "its stream contains something that is not JSON",
    INVALID_SHAPE: "its stream contains something that is not of its dialect",
    _DEFECT: "a defect in this server, logged as run.internal_error",
}
_REPORTED: Final = "it reported an error in its stream"
_log = structlog.get_logger(__name__)


class Ending(Protocol):
    """A response that is being made, as its outcome sees it."""

    @property
    def snapshot(self) -> Response:
        """The response as it is now."""
        ...

    @property
    def diagnostics(self) -> Iterable[Diagnostic]: ...

    @property
    def ended(self) -> bool: ...

    @property
    def failure(self) -> BridgeError | None:
        """The error that it failed with; None if it did not fail."""
        ...


CostOf = Callable[[str, Response], int | None]
"""The cost of a response that was made by an upstream's model of this name, in 10⁻¹² US dollars; None if it
is not known."""


class RunOutcome(Struct, eq=False):
    """The outcome of one run."""

    translation: Ending
    attempts: Attempts
    watches: Sequence[Watch]
    """The observers of the run: they begin in this order and end in reverse order."""
    timing: TokenTiming
    """The timing of its tokens."""
    ended_elsewhere: bool
    """If the run is cancelled, another worker ends the response."""
    losses: list[Diagnostic]
    """Filled with what the request lost in translation for the upstream that accepts it."""
    rounds: Sequence[Usage] = ()
    """Filled with the usage of its answers."""
    cost_of: CostOf | None = None
    """None: the cost is not known."""
    answered_at: float | None = None
    """When the first bytes of an upstream's answer arrived, by `time.perf_counter`."""
    asking: Attempts | None = None
    """The attempts that replace those which the run began with."""
    started: float = field(default_factory=time.perf_counter)

    def asks(self, attempts: Attempts) -> None:
        """Record that these attempts replace those which the run began with."""
        self.asking = attempts

    def refused(self) -> None:
        """The run ended without an end of the response, which was then ended as failed."""
        ended = self._ended(None)
        logged_end = self._said(ended, None)
        for watch in self.watches:
            watch.refused(ended, logged_end)

    def __enter__(self) -> None:
        for watch in self.watches:
            if isinstance(watch, RunWatch):
                watch.begin()

    def __exit__(self, _kind: type[BaseException] | None, raised: BaseException | None, _: object) -> None:
        ended = self._ended(raised)
        logged_end = self._said(ended, raised)
        for watch in reversed(self.watches):
            watch.end(ended, logged_end)

    def _ended(self, raised: BaseException | None) -> EndedRun:
        target, response, answered_at = self.attempts.target, self.translation.snapshot, self.answered_at
        counts, cost = answered_at is not None or self._was_given_up(raised), None
        if self.cost_of is not None:
            cost = self.cost_of(target.model, response) if counts else 0
        return EndedRun(
            self.attempts.chosen,
            target.model if self.attempts.chosen else "",
            response,
            self.timing,
            list(chain(self.losses, self.translation.diagnostics)),
            time.perf_counter() - self.started,
            None if answered_at is None else answered_at - self.started,
            response.status in TERMINAL_EVENT,
            self.rounds,
            cost,
            counts,
        )

    def _was_given_up(self, raised: BaseException | None) -> bool:
        """Return True if the client disconnected or cancelled before an upstream that was asked began to
        answer."""
        if not (self.asking or self.attempts).is_asking:
            return False
        if isinstance(raised, asyncio.CancelledError):
            return not self.ended_elsewhere
        return raised is None and self.translation.ended and self.translation.failure is None

    def _said(self, ended: EndedRun, raised: BaseException | None) -> LoggedEnd:
        failure = self.translation.failure or raised
        if isinstance(failure, BridgeError):
            return LoggedEnd("failed", failure.code, _cause(failure))
        if ended.has_end:
            status, code = _status_and_code(ended.response)
            failed = ended.response.error is not None
            return LoggedEnd(status, code, _CAUSES.get(code or "", _REPORTED) if failed else None)
        is_cancelled = isinstance(raised, asyncio.CancelledError)
        if raised is None or (is_cancelled and self.ended_elsewhere):
            return HANDED_OVER
        if is_cancelled or isinstance(raised, ClientDisconnect):
            return LoggedEnd(_CANCELLED, _LEFT)
        return LoggedEnd("failed", _DEFECT, _CAUSES[_DEFECT])


class LogLine(Watch, Struct):
    """Writes the line in the log."""

    request_id: str
    attempts: Attempts
    path: str = ""
    """The endpoint, if its answer is not a response that this server makes."""

    def end(self, ended: EndedRun, logged_end: LoggedEnd) -> None:
        if logged_end == HANDED_OVER:
            return
        target = self.attempts.target
        fields: dict[str, Any] = {"upstream": target.upstream.name}
        if target.model != ended.response.model:
            fields["upstream_model"] = target.model[:_LONGEST]
        if not self.attempts.choice.is_single:
            fields |= self.attempts.choice.fields(target)
        if ended.first_bytes is not None:
            fields["first_ms"] = round(ended.first_bytes * 1000, 1)
        fields |= {"ms": round(ended.seconds * 1000, 1), "request_id": self.request_id}
        if len(ended.rounds) > 1:
            fields["rounds"] = [
                [each.input_tokens, each.output_tokens, *(["estimated"] if each.estimated is True else [])]
                for each in ended.rounds
            ]
        if self.path:
            fields["path"] = self.path
        if ended.cost is not None and ended.counts:
            fields["cost_usd"] = dollars(ended.cost)
        if ended.noticed:
            fields |= _warnings(ended.noticed)
        if logged_end.cause is not None:
            fields |= {"address": target.upstream.address, "cause": logged_end.cause}
        _write(ended.response, logged_end.status, logged_end.code, fields)


def _warnings(noticed: Sequence[Diagnostic]) -> dict[str, Any]:
    """Return the warnings about an answer that looks complete nevertheless."""
    warnings = [f"{case.where}: {case.what}" for case in noticed if case.kind == "warning"]
    return {"warnings": warnings[:_MOST_WARNINGS]} if warnings else {}


def log_ended(response: Response, cause: str | None = None) -> None:
    """Log the end of a response that no run of this process made; `cause` says why it failed."""
    status, code = _status_and_code(response)
    _write(
        response, status, code, {"cause": cause} if cause is not None and response.error is not None else {}
    )


def _status_and_code(response: Response) -> tuple[str, str | None]:
    """Return (status, code) of a response that has ended."""
    if response.status == "completed":
        return response.status, None
    if is_cancelled(response):
        return _CANCELLED, None
    if response.error is not None:
        return response.status, response.error.code
    details = response.incomplete_details
    return response.status, None if details is None else details.reason


def _write(response: Response, status: str, code: str | None, fields: dict[str, Any]) -> None:
    line: dict[str, Any] = {"response_id": response.id, "model": response.model[:_LONGEST], "status": status}
    if code is not None:
        line["code"] = code if len(code) <= _LONGEST_CODE and len(code.split()) == 1 else _NOT_A_NAME
    if response.usage is not None:
        line["input_tokens"] = response.usage.input_tokens
        line["output_tokens"] = response.usage.output_tokens
        if response.usage.estimated is True:
            line["estimated"] = True
    write = _log.info if status in ("completed", _CANCELLED) else _log.warning
    write("response", **(line | fields))


def _cause(failure: BridgeError) -> str:
    """The cause of a failure, for the operator. The message of an upstream's error, or of bytes that could
    not be read, is not used: it may quote content."""
    if isinstance(failure, UpstreamError):
        return failure.cause or _CAUSES.get(failure.code, _REPORTED)
    if isinstance(failure, Outage):
        return failure.in_full
    if isinstance(failure, HttpError):
        return failure.message
    return _CAUSES.get(failure.code, "what it sent could not be translated")
