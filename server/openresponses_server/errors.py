"""Refusals and failures as HTTP: one table of types and codes by status, one body shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from openresponses_bridge.dialects import anthropic_messages, gemini, vscode
from openresponses_bridge.errors import BridgeError, type_and_code
from openresponses_bridge.errors import HttpError as HttpError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.response import ErrorBody, ErrorPayload, ResponseError

# code of an upstream's error before any output → HTTP status
_BY_CODE: Final = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "server_is_overloaded": 503,
    "service_unavailable": 503,
    "overloaded_error": 503,
    "upstream_timeout": 504,
    "internal_error": 500,
    "model_error": 500,
    # of Google (google.rpc.Code)
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "INTERNAL": 500,
}
_ERROR_STATUS: Final = re.compile("[45][0-9][0-9]")
_TYPES: Final = frozenset({"model_error"})  # codes that are types too (specification, "Errors")

MESSAGES_PATH: Final = "/v1/messages"
MODELS_PATH: Final = "/v1/models"
VSCODE_PATH: Final = "/vscode/"
GEMINI_PATH: Final = "/v1beta/"
# Google serves its older models under the version of the others as well
_GEMINI_CALL: Final = re.compile(
    r"/v1/models/.*:(?:generateContent|streamGenerateContent|countTokens)", re.DOTALL
)
_PERMANENT: Final = {"x-should-retry": "false"}  # what the SDKs of OpenAI and Anthropic ask first
_ANTHROPIC_VERSION: Final = "anthropic-version"
_GOOGLE_CLIENT: Final = "x-goog-api-client"


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


class UpstreamError(HttpError):
    """The upstream failed or refused (law S5). `status` is sent to the client if nothing has been sent yet;
    `headers` keep the upstream's `retry-after`. `message` may be the upstream's. For the operator, `cause`
    describes the failure in this server's or the system's words, and `said` is what else the upstream sent.
    `permanent`: retrying does not help, so that the upstream is not asked again and clients get
    `x-should-retry: false`. `failover` is the cause for which another upstream may be asked, as in the
    setting `failover_on`, "" if none should be; by default it follows from status and code. `counts`: it is
    about the upstream or this server's key, not only about the request or the client's key."""

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
        said: str = "",
        permanent: bool = False,
        headers: Mapping[str, str] | None = None,
        code: str | None = None,
        error_type: str | None = None,
        param: str | None = None,
        failover: str | None = None,
        counts: bool = True,
    ) -> None:
        shown = {**(headers or {}), **(_PERMANENT if permanent else {})}
        super().__init__(
            status, message, code=code, error_type=error_type, param=param, headers=shown or None
        )
        self.cause = cause
        self.said = said
        self.permanent = permanent
        self.failover = _failover_cause(status, code) if failover is None else failover
        self.counts = counts


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


def code_for_codex(text: str) -> str:
    """A text of an error; in the place of the code `server_is_overloaded`, over which Codex ends its turn,
    the one of this server when it is busy, over which Codex asks again."""
    return type_and_code(503)[1] if text == _OVERLOADED else text


def error_for_codex(error: HttpError) -> HttpError:
    """The refusal as Codex is to read it. One over `server_is_overloaded`, or over a limit that is soon over,
    has the status 503: Codex asks never again after 429."""
    if not isinstance(error, UpstreamError) or not (error.code == _OVERLOADED or _is_short_limit(error)):
        return error
    return UpstreamError(503, error.message, cause=error.cause, said=error.said, headers=error.headers)


def _is_short_limit(error: UpstreamError) -> bool:
    wait = error.headers.get("retry-after", "0")
    return error.failover == "429" and wait.isdecimal() and int(wait[:_MOST_DIGITS]) <= _SHORT_LIMIT


def too_slow(total: float) -> UpstreamError:
    """The error for a response that was not complete in `total` seconds."""
    what = f"the response was not done within {total:g} seconds"
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


def status_in(code: str) -> int | None:
    """The HTTP status that an upstream's code stands for; None if it is not a status of an error."""
    return int(code) if _ERROR_STATUS.fullmatch(code) else None


def status_of(code: str) -> int | None:
    """The HTTP status that an upstream's code or type of an error means; None if it means none."""
    return status_in(code) or _BY_CODE.get(code)


def failure_status(error: ResponseError) -> int:
    """The HTTP status for a response that failed without output. Upstreams may send it as the code."""
    return status_of(error.code) or 502


def failure(error: ResponseError) -> HttpError:
    """The failure as an HTTP error."""
    status = failure_status(error)
    kind = error.code if error.code in _TYPES else type_and_code(status)[0]
    return HttpError(status, error.message, code=error.code, error_type=kind)


def is_anthropic_client(headers: Mapping[str, str]) -> bool:
    """Whether these headers are those of an Anthropic client, on a path that both APIs have."""
    return _ANTHROPIC_VERSION in headers or ("x-api-key" in headers and "authorization" not in headers)


def is_gemini_path(path: str) -> bool:
    """Whether clients of the Gemini API ask for this path."""
    return path.startswith(GEMINI_PATH) or _GEMINI_CALL.fullmatch(path) is not None


def is_google_client(headers: Mapping[str, str]) -> bool:
    """Whether these headers are those of a client of the Gemini API, on a path that several APIs have."""
    return _GOOGLE_CLIENT in headers or ("x-goog-api-key" in headers and "authorization" not in headers)


def surface_path(path: str, headers: Mapping[str, str]) -> str:
    """The path of the surface in whose format this request is answered."""
    if path.startswith(MODELS_PATH) and is_google_client(headers):
        return GEMINI_PATH
    return MESSAGES_PATH if path.startswith(MODELS_PATH) and is_anthropic_client(headers) else path


def error_body(error: BridgeError, path: str = "") -> bytes:
    """The JSON body of an error, in the format of the surface that `path` belongs to."""
    if path.startswith(MESSAGES_PATH):
        said = anthropic_messages.error_body(error.code, error.error_type, error.message, error.http_status)
        return encode(said)
    if path.startswith(VSCODE_PATH):
        return encode(vscode.error_body(error))
    if is_gemini_path(path):
        retry_after = error.headers.get("retry-after") if isinstance(error, HttpError) else None
        return encode(gemini.error_body(error.http_status, error.message, error.param, retry_after))
    return encode(ErrorBody(ErrorPayload(error.error_type, error.code, error.message, error.param)))
