"""How an upstream says that it failed, what the response then says (field case 27), and the way back."""

from __future__ import annotations

from typing import Any, Final

from bridge.protocol.errors import ErrorPayload

CUT: Final = "upstream_cut"
EMPTY: Final = "upstream_empty"
INVALID_JSON: Final = "upstream_invalid_json"
INVALID_SHAPE: Final = "upstream_invalid_shape"
UPSTREAM_ERROR: Final = "upstream_error"

_TYPE = "server_error"
_NO_MESSAGE = "the upstream reported an error without a message"

# our codes and types → Anthropic's error types; its own pass as they are
_API_ERROR: Final = "api_error"
_OWN_TYPES = frozenset(
    {
        "invalid_request_error",
        "authentication_error",
        "billing_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "timeout_error",
        _API_ERROR,
        "overloaded_error",
    }
)
_TYPE_OF_CODE: dict[str, str] = {
    "rate_limit_exceeded": "rate_limit_error",
    "too_many_requests": "rate_limit_error",
    "insufficient_quota": "billing_error",
    "server_is_overloaded": "overloaded_error",
    "server_overloaded": "overloaded_error",
    "context_length_exceeded": "invalid_request_error",
    "invalid_prompt": "invalid_request_error",
    "invalid_request": "invalid_request_error",
    "not_found": "not_found_error",
    "model_not_found": "not_found_error",
    "invalid_api_key": "authentication_error",
}


def failure(code: str, message: str) -> ErrorPayload:
    """An error that we found ourselves."""
    return ErrorPayload(_TYPE, code, message, None)


def reported(error: dict[str, Any] | None) -> ErrorPayload:
    """An error that the upstream reported: its type is the code too, for Anthropic has no other."""
    given = error or {}
    kind = _text(given.get("type"))
    code = _text(given.get("code")) or kind or UPSTREAM_ERROR
    message = _text(given.get("message")) or _NO_MESSAGE
    return ErrorPayload(kind or _TYPE, code, message, _text(given.get("param")))


def error_body(code: str | None, kind: str | None, message: str) -> dict[str, Any]:
    """An error in Anthropic's shape, as a stream's `error` event and an HTTP body carry it."""
    found = (name if name in _OWN_TYPES else _TYPE_OF_CODE.get(name or "") for name in (code, kind))
    return {"type": "error", "error": {"type": next(filter(None, found), _API_ERROR), "message": message}}


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and value != "" else None
