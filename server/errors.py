"""Refusals and failures as HTTP: one table of types and codes by status, one body shape."""

from __future__ import annotations

import re
from typing import Any, Final

from bridge.dialects import anthropic_messages
from bridge.errors import BridgeError, RemoteError
from bridge.protocol.codec import encode
from bridge.protocol.errors import ErrorBody, ErrorPayload, ResponseError

# status → (type, code) when the error names none itself (specification, "Errors"; types beyond it are
# OpenAI's)
_BY_STATUS: Final = {
    400: ("invalid_request_error", "invalid_request"),
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "permission_denied"),
    404: ("not_found", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    408: ("server_error", "request_timeout"),
    413: ("invalid_request_error", "request_too_large"),
    415: ("invalid_request_error", "unsupported_media_type"),
    422: ("invalid_request_error", "invalid_request"),
    429: ("too_many_requests", "rate_limit_exceeded"),
    431: ("invalid_request_error", "headers_too_large"),
    503: ("server_error", "server_is_overloaded"),
    529: ("server_error", "server_is_overloaded"),
}

# what an upstream says inside a stream that has not shown any output yet → the status it means
_BY_CODE: Final = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "server_is_overloaded": 503,
    "overloaded_error": 503,
    "upstream_timeout": 504,
    "internal_error": 500,
    "model_error": 500,
}
_ERROR_STATUS: Final = re.compile("[45][0-9][0-9]")
_TYPES: Final = frozenset({"model_error"})  # codes that are types too (specification, "Errors")

MESSAGES_PATH: Final = "/v1/messages"
# what Anthropic's API says for a status; asked where the error's own names say no more than these
_VAGUE: Final = frozenset({"api_error", "invalid_request_error"})
_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def type_and_code(status: int) -> tuple[str, str]:
    """What to call an error of this status."""
    default = _BY_STATUS[400] if 400 <= status < 500 else ("server_error", "server_error")
    return _BY_STATUS.get(status, default)


class HttpError(RemoteError):
    """A request refused with this HTTP status; type and code come from the table unless given."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        error_type: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        usual_type, usual_code = type_and_code(status)
        super().__init__(code or usual_code, message, param=param)
        self.http_status = status
        self.error_type = error_type or usual_type
        self.headers = headers or {}


class Outage(HttpError):
    """Something that this server depends on does not work: 503. `details` are for the operator, never
    for a client; `lasting` says that waiting does not mend it."""

    def __init__(self, code: str, message: str, details: str = "", *, lasting: bool = False) -> None:
        super().__init__(503, message, code=code)
        self.details = details
        self.lasting = lasting

    @property
    def in_full(self) -> str:
        """The message with its details."""
        return f"{self.message.rstrip('.')}: {self.details}" if self.details else self.message


class UpstreamError(HttpError):
    """The upstream failed or refused (law S5). `status` is what our client gets when nothing has been
    sent yet; its `retry-after` is kept in `headers`."""

    UNREACHABLE = "upstream_unreachable"
    TIMEOUT = "upstream_timeout"
    INVALID_RESPONSE = "upstream_invalid_response"
    DISCONNECTED = "upstream_disconnected"
    TOO_LONG = "upstream_output_too_long"


def too_slow(total: float) -> UpstreamError:
    """A response that was not done in `total` seconds."""
    return UpstreamError(
        504, f"the response was not done within {total:g} seconds", code=UpstreamError.TIMEOUT
    )


def too_long(most: int) -> UpstreamError:
    """A response for which the upstream sent more than `most` bytes."""
    return UpstreamError(
        502, f"the upstream sent more than {most} bytes for one response", code=UpstreamError.TOO_LONG
    )


def shutting_down() -> HttpError:
    """The server stops: what is new is refused, what runs beyond the grace is cut off."""
    return HttpError(503, "The server is shutting down.", headers={"retry-after": "5"})


def status_in(code: str) -> int | None:
    """The HTTP status of an error that an upstream's code is; None when it is something else."""
    return int(code) if _ERROR_STATUS.fullmatch(code) else None


def failure_status(error: ResponseError) -> int:
    """The HTTP status for a response that failed without any output: upstreams put statuses in codes."""
    return status_in(error.code) or _BY_CODE.get(error.code, 502)


def failure(error: ResponseError) -> HttpError:
    """The same failure as an HTTP error."""
    status = failure_status(error)
    kind = error.code if error.code in _TYPES else type_and_code(status)[0]
    return HttpError(status, error.message, code=error.code, error_type=kind)


def error_body(error: BridgeError, path: str = "") -> bytes:
    """The JSON body of a refused request, in the shape of the surface that `path` belongs to."""
    if path.startswith(MESSAGES_PATH):
        return encode(_anthropic_error(error))
    return encode(ErrorBody(ErrorPayload(error.error_type, error.code, error.message, error.param)))


def _anthropic_error(error: BridgeError) -> dict[str, Any]:
    """The status says more than our codes where Anthropic does not have a type for those."""
    body = anthropic_messages.error_body(error.code, error.error_type, error.message)
    if body["error"]["type"] in _VAGUE:
        body["error"]["type"] = _ANTHROPIC_TYPES.get(error.http_status, body["error"]["type"])
    return body
