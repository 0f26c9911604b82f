"""Refusals and failures as HTTP, and their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.dialects.base import ReportedError
from openresponses_bridge.dialects.table import surface_at
from openresponses_bridge.errors import BridgeError, type_and_code
from openresponses_bridge.errors import HttpError as HttpError

_PERMANENT: Final = {"x-should-retry": "false"}  # what the SDKs of OpenAI and Anthropic ask first


class Outage(HttpError):
    """A dependency of this server does not work: 503. `details` are for the operator, never for a client.
    `permanent`: retrying does not help."""

    def __init__(self, code: str, message: str, details: str = "", *, permanent: bool = False) -> None:
        super().__init__(503, message, code=code)
        self.details = details
        self.permanent = permanent

    @property
    def in_full(self) -> str:
        """The message with its details."""
        return f"{self.message.rstrip('.')}: {self.details}" if self.details else self.message


class FailureFacts(Struct, frozen=True, kw_only=True):
    """The meaning of an upstream's failure for its operator and for other requests."""

    said: str = ""
    """What else the upstream sent."""
    permanent: bool = False
    """Retrying does not help: the upstream is not asked again, and clients get `x-should-retry: false`."""
    failover: str | None = None
    """The cause for which another upstream may be asked, as in the setting `failover_on`; "" if none should
    be. None: it follows from status and code."""
    counts: bool = True
    """It is about the upstream or this server's key, not only about the request or the client's key."""
    native: dict[str, Any] | None = None
    """What else its error says, as in `ErrorPayload.native`."""
    reported: ReportedError | None = None
    """What the upstream said, if it did, with its secrets, for decisions and never for a client."""


_FAILURE: Final = FailureFacts()


class UpstreamError(HttpError):
    """The upstream failed or refused (law S5). `status` is sent to the client if nothing has been sent yet;
    `headers` keep the upstream's `retry-after`. `message` may be the upstream's. For the operator, `cause`
    describes the failure in this server's or the system's words."""

    UNREACHABLE = "upstream_unreachable"
    TIMEOUT = "upstream_timeout"
    AUTHENTICATION = "upstream_authentication_failed"
    INVALID_RESPONSE = "upstream_invalid_response"
    DISCONNECTED = "upstream_disconnected"
    TOO_LONG = "upstream_output_too_long"

    def __init__(
        self,
        status: int,
        message: str,
        *,
        cause: str = "",
        headers: Mapping[str, str] | None = None,
        code: str | None = None,
        error_type: str | None = None,
        param: str | None = None,
        facts: FailureFacts = _FAILURE,
    ) -> None:
        shown = {**(headers or {}), **(_PERMANENT if facts.permanent else {})}
        super().__init__(
            status, message, code=code, error_type=error_type, param=param, headers=shown or None
        )
        self.native = facts.native
        self.cause = cause
        self.said = facts.said
        self.permanent = facts.permanent
        self.failover = _failover_cause(status, code) if facts.failover is None else facts.failover
        self.counts = facts.counts
        self.reported = facts.reported


def _failover_cause(status: int, code: str | None) -> str:
    if code in (UpstreamError.UNREACHABLE, UpstreamError.DISCONNECTED):
        return "connection"
    if code == UpstreamError.AUTHENTICATION:
        return "401"
    if code == UpstreamError.TIMEOUT:
        return "408"
    if code == UpstreamError.TOO_LONG:
        return ""
    return "5xx" if status >= 500 else str(status) if status in (408, 429) else ""


_OVERLOADED: Final = "server_is_overloaded"
_SHORT_LIMIT: Final = 20  # seconds within which Codex asks again a few times
_MOST_DIGITS: Final = 9
_MOST_BEFORE: Final = 8  # errors that led to one


def code_for_codex(text: str) -> str:
    """A text of an error; in the place of the code `server_is_overloaded`, over which Codex ends its turn,
    the one of this server when it is busy, over which Codex asks again."""
    return type_and_code(503)[1] if text == _OVERLOADED else text


def error_for_codex(error: HttpError) -> HttpError:
    """The refusal as Codex is to read it. One over `server_is_overloaded`, or over a limit that is soon over,
    has the status 503: Codex asks never again after 429."""
    if not isinstance(error, UpstreamError) or not (error.code == _OVERLOADED or _is_short_limit(error)):
        return error
    facts = FailureFacts(said=error.said, native=error.native)
    return UpstreamError(503, error.message, cause=error.cause, headers=error.headers, facts=facts)


def _is_short_limit(error: UpstreamError) -> bool:
    wait = error.headers.get("retry-after", "0")
    return error.failover == "429" and wait.isdecimal() and int(wait[:_MOST_DIGITS]) <= _SHORT_LIMIT


def too_slow(total: float) -> UpstreamError:
    """The error for a response that was not complete in `total` seconds."""
    what = f"the response did not finish within {total:g} seconds"
    return UpstreamError(504, what, code=UpstreamError.TIMEOUT, cause=what)


def too_long(most: int) -> UpstreamError:
    """The error for a response of more than `most` bytes from the upstream."""
    what = f"the upstream sent more than {most} bytes for one response"
    return UpstreamError(502, what, code=UpstreamError.TOO_LONG, cause=what)


def unreadable(why: str) -> UpstreamError:
    """The error for an event from the upstream that is not decoded."""
    what = f"the upstream sent an event that can't be read: {why}"
    return UpstreamError(502, what, code=UpstreamError.INVALID_RESPONSE, cause=what)


def shutting_down() -> HttpError:
    """The error for new requests while the server stops, and for runs that exceed the grace period."""
    return HttpError(503, "The server is shutting down.", headers={"retry-after": "5"})


def error_body(
    error: BridgeError, path: str = "", headers: Mapping[str, str] = MappingProxyType({})
) -> bytes:
    """Encode an error in the form of the API that this path belongs to, for a client with these headers."""
    return surface_at(path, headers).surface.error(error)


def error_headers(error: BridgeError, path: str) -> dict[str, str]:
    """The headers of a refusal: the error's own, and those of the API that this path belongs to."""
    own = error.headers if isinstance(error, HttpError) else {}
    return {**own, **surface_at(path).surface.error_headers(error)}


def without_frames(error: BaseException) -> None:
    """Let go of the frames in which an error and those before it were raised: where one of them refers to the
    error, all would stay until the next garbage collection."""
    before: BaseException | None = error
    for _ in range(_MOST_BEFORE):
        if before is None:
            return
        before.__traceback__ = None
        before = before.__cause__ or before.__context__
