"""The hierarchy of this library's errors. A class says who is at fault; an error has a code and an HTTP
status.

`LocalError` is the caller's misuse of this library (a call in the wrong phase); `RemoteError` is bad data
from a peer (an upstream or a client). Both have the same attributes, so that every surface can write them in
the error format of its API.
"""

from __future__ import annotations

from typing import Any, Final


class BridgeError(Exception):
    """Base of every error this library raises.

    `code` is a stable name. `message` says what is wrong and where. `param` is the path of the field that is
    wrong (`input[0].content`), None if no field is. `http_status` is the status with which a server should
    answer. `context` has the details of the case, never secrets or content.
    """

    http_status = 500
    error_type = "server_error"

    native: dict[str, Any] | None = None
    """Further fields of an upstream's error, for clients of the same API, by dialect as in
    `Response.native`."""

    def __init__(self, code: str, message: str, *, param: str | None = None, **context: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.context = context

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class LocalError(BridgeError):
    """The caller used the library wrongly; the object is unchanged and can be used further."""


class RemoteError(BridgeError):
    """A peer sent what the protocol does not allow."""

    http_status = 400
    error_type = "invalid_request_error"


class StreamStateError(LocalError):
    """A method of the machine was called in the wrong phase (law E9), with an argument that can't be used, or
    before a call had a name (law E7). The message names the method and the reason."""

    OUTPUT_BEFORE_START = "bridge.stream.output_before_start"
    DELTA_AFTER_TERMINAL = "bridge.stream.delta_after_terminal"
    INVALID_TRANSITION = "bridge.stream.invalid_transition"
    INCOMPLETE_TOOL_CALL = "bridge.stream.incomplete_tool_call"
    INVALID_ARGUMENT = "bridge.stream.invalid_argument"


class ToolError(LocalError):
    """A tool or a call that can't be used: two tools of one name, a limit that was exceeded."""

    NAME_COLLISION = "bridge.tools.name_collision"
    ARGUMENTS_TOO_LARGE = "bridge.tools.arguments_too_large"


class InvalidRequestError(RemoteError):
    """A request that can't be fulfilled as it is; `param` names the field."""

    INVALID_VALUE = "invalid_value"
    INVALID_JSON = "invalid_json"
    UNSUPPORTED = "unsupported_parameter"
    UNPAIRED_CALL = "unpaired_tool_call"


class WireError(RemoteError):
    """Bytes that violate their format: malformed JSON, a frame that is too large, a missing type."""

    http_status = 502
    error_type = "server_error"

    INVALID_JSON = "bridge.wire.invalid_json"
    INVALID_SHAPE = "bridge.wire.invalid_shape"
    FRAME_TOO_LARGE = "bridge.sse.frame_too_large"


# status → (type, code) of an error that names none itself. Types are those of the specification ("Errors"),
# and OpenAI's where it has none.
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
    # not `server_is_overloaded`, a code of upstreams: Codex ends its session when it receives that
    503: ("server_error", "service_unavailable"),
    529: ("server_error", "service_unavailable"),
}


def type_and_code(status: int) -> tuple[str, str]:
    """Return the usual type and code of an error with this HTTP status."""
    default = _BY_STATUS[400] if 400 <= status < 500 else ("server_error", "server_error")
    return _BY_STATUS.get(status, default)


class HttpError(RemoteError):
    """A request that is refused with this HTTP status, 400 to 599. Type and code are those that
    `type_and_code` returns for the status unless given. `headers` are sent with the answer, for instance
    `retry-after`."""

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
