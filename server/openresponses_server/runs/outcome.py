"""Law S11: each response's end is one line in the log, without content and without secrets.

An upstream's error message may quote what a person wrote, so only its code is logged, which is a name for
programs; `cause` is written by this server or the operating system.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import structlog

from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.dialects.base import CUT, EMPTY, INVALID_JSON, INVALID_SHAPE
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError, Outage, UpstreamError
from openresponses_server.observation.responses import Ended, LoggedEnd, TokenTiming, Watch
from openresponses_server.runs.metering import Meter
from openresponses_server.runs.pipeline import Translation
from openresponses_server.store.endings import is_cancelled
from openresponses_server.upstreams.attempts import Attempts

_LONGEST: Final = 200  # characters of a name that a client or an upstream gives
_LONGEST_CODE: Final = 64
_NOT_A_NAME: Final = "other"  # the upstream's code is a sentence
_CANCELLED: Final = "cancelled"
_HANDED_OVER: Final = "handed_over"
_LEFT: Final = "client_left"
_DEFECT: Final = "internal_error"
# failures that the stream itself shows
_CAUSES: Final = {
    CUT: "its stream ended before the answer did",
    EMPTY: "its stream ended without an answer",
    INVALID_JSON: "its stream has something in it that is not JSON",
    INVALID_SHAPE: "its stream has something in it that is not of its dialect",
    _DEFECT: "a defect in this server, logged as run.internal_error",
}
_REPORTED: Final = "it reported an error in its stream"
_NOT_LOGGED: Final = LoggedEnd(_HANDED_OVER)
_log = structlog.get_logger(__name__)


class Outcome:
    """How one response ends, for the log, for its `meter` and, by `count`, for the metrics. `spent` is called
    with each response that an upstream has begun, however it ended. `ended_elsewhere`: if the run is
    cancelled, another worker ends the response and logs that."""

    def __init__(
        self,
        request_id: str,
        translation: Translation,
        attempts: Attempts,
        count: Callable[[Ended], None],
        spent: Callable[[Response], None],
        meter: Meter,
        *,
        ended_elsewhere: bool,
    ) -> None:
        self._request_id = request_id
        self._translation = translation
        self._attempts = attempts
        self._count = count
        self._spent = spent
        self._meter = meter
        self._ended_elsewhere = ended_elsewhere
        self._started = time.perf_counter()
        self._first: float | None = None
        self.timing = TokenTiming()
        self._watches: list[Watch] = []
        self._logged = _NOT_LOGGED
        self.losses: list[Diagnostic] = []
        """What the request lost in translation for the upstream that accepted it."""

    def watch(self, watch: Watch, timing: TokenTiming | None = None) -> None:
        """Add an observer of the run; `timing` replaces what measures it."""
        self._watches.append(watch)
        self.timing = timing or self.timing

    def first_bytes_received(self) -> None:
        """The first bytes of the upstream's answer have arrived."""
        self._first = time.perf_counter()

    def count(self) -> None:
        """Count the response, which has ended."""
        self._record(self._ended())

    def _record(self, ended: Ended) -> None:
        self._count(ended)
        self._meter.end(ended.response, self._attempts.asked)

    def _ended(self) -> Ended:
        asked = self._attempts.asked
        return Ended(
            self._attempts.chosen,
            asked.model if self._attempts.chosen and asked is not None else "",
            self._translation.snapshot,
            self.timing,
            [*self.losses, *self._translation.diagnostics],
            time.perf_counter() - self._started,
        )

    def __enter__(self) -> None:
        """Begin the run; when the context exits, its end is counted and logged."""
        self._meter.start()
        for watch in self._watches:
            watch.begin()

    def __exit__(self, _kind: type[BaseException] | None, raised: BaseException | None, _: object) -> None:
        as_it_ends = self._ended()
        self._report(as_it_ends, raised)
        for watch in reversed(self._watches):
            watch.end(as_it_ends, self._logged)

    def _report(self, as_it_ends: Ended, raised: BaseException | None) -> None:
        ended, response = self._translation.ended, as_it_ends.response
        failure = self._translation.failure or raised
        if ended:
            self._record(as_it_ends)
        elif raised is not None and not (
            self._ended_elsewhere and isinstance(raised, asyncio.CancelledError)
        ):  # otherwise another worker makes it or ends it
            self._meter.fail()
        if self._first is not None:
            self._spent(response)
        if isinstance(failure, BridgeError):
            self._log(response, "failed", failure.code, _cause(failure))
        elif ended:
            failed = response.error is not None
            status, code = _status_and_code(response)
            self._log(response, status, code, _CAUSES.get(code or "", _REPORTED) if failed else None)
        elif isinstance(raised, asyncio.CancelledError):
            if not self._ended_elsewhere:
                self._log(response, _CANCELLED, _LEFT, None)
        elif raised is not None:
            self._log(response, "failed", _DEFECT, _CAUSES[_DEFECT])

    def _log(self, response: Response, status: str, code: str | None, cause: str | None) -> None:
        self._logged = LoggedEnd(status, code, cause)
        now = time.perf_counter()
        target = self._attempts.asked
        fields: dict[str, Any] = {"upstream": None if target is None else target.upstream.name}
        if target is not None and target.model != response.model:
            fields["upstream_model"] = target.model[:_LONGEST]
        if self._first is not None:
            fields["first_ms"] = round((self._first - self._started) * 1000, 1)
        fields |= {"ms": round((now - self._started) * 1000, 1), "request_id": self._request_id}
        if cause is not None:
            fields |= {"address": None if target is None else target.upstream.address, "cause": cause}
        _write(response, status, code, fields)


def log_ended(response: Response, cause: str | None = None) -> None:
    """Log the end of a response that no run of this process made; `cause` says why it failed."""
    status, code = _status_and_code(response)
    _write(
        response, status, code, {"cause": cause} if cause is not None and response.error is not None else {}
    )


def _status_and_code(response: Response) -> tuple[str, str | None]:
    """(status, code) of a response that has ended."""
    if is_cancelled(response):
        return _CANCELLED, None
    if response.error is not None:
        return response.status, response.error.code
    details = response.incomplete_details
    return response.status, None if details is None else details.reason


def _write(response: Response, status: str, code: str | None, fields: dict[str, Any]) -> None:
    line: dict[str, Any] = {"id": response.id, "model": response.model[:_LONGEST], "status": status}
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
