"""How an upstream says that it failed, what the response then says (field case 27), and the way back."""

from __future__ import annotations

from typing import Any, Final

from bridge.dialects.base import NO_MESSAGE, UPSTREAM_ERROR, word
from bridge.protocol.errors import ErrorPayload

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


def reported(error: dict[str, Any] | None) -> ErrorPayload:
    """An error that the upstream reported: its type is the code too, for Anthropic has no other."""
    given = error or {}
    kind = word(given.get("type"))
    code = word(given.get("code")) or kind or UPSTREAM_ERROR
    message = word(given.get("message")) or NO_MESSAGE
    return ErrorPayload(kind or "server_error", code, message, word(given.get("param")))


def error_body(code: str | None, kind: str | None, message: str) -> dict[str, Any]:
    """An error in Anthropic's shape, as a stream's `error` event and an HTTP body carry it."""
    found = (name if name in _OWN_TYPES else _TYPE_OF_CODE.get(name or "") for name in (code, kind))
    return {"type": "error", "error": {"type": next(filter(None, found), _API_ERROR), "message": message}}
