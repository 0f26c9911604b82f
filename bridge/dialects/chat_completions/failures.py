"""How an upstream says that it failed, and what the response then says (field case 27)."""

from __future__ import annotations

from typing import Any

from bridge.protocol.errors import ErrorPayload

CUT = "upstream_cut"
EMPTY = "upstream_empty"
INVALID_JSON = "upstream_invalid_json"
INVALID_SHAPE = "upstream_invalid_shape"
UPSTREAM_ERROR = "upstream_error"

_TYPE = "server_error"
_NO_MESSAGE = "the upstream reported an error without a message"

# finish reasons that are no ending but a failure → what to say of them
FAILING_REASONS: dict[str, str] = {
    "error": "the upstream ended with an error",
    "network_error": "the upstream lost the connection to its model",
    "insufficient_system_resource": "the upstream ran out of resources",
    "abort": "the upstream aborted the generation",
    "aborted": "the upstream aborted the generation",
    "timeout": "the upstream's model ran out of time",
    "malformed_function_call": "the upstream's model made a function call that could not be read",
    "unexpected_tool_call": "the upstream's model called a tool it was not given",
}


def failure(code: str, message: str) -> ErrorPayload:
    """An error that we found ourselves."""
    return ErrorPayload(_TYPE, code, message, None)


def reported(error: Any) -> ErrorPayload:
    """An error that the upstream reported: text, or an object with any of type, code, message, param."""
    if isinstance(error, dict):
        inner = error.get("error")
        if isinstance(inner, dict | str):
            return reported(inner)
        kind = _text(error.get("type"))
        code = _text(error.get("code")) or _text(error.get("status")) or kind or UPSTREAM_ERROR
        message = _text(error.get("message")) or _text(error.get("detail")) or _NO_MESSAGE
        return ErrorPayload(kind or _TYPE, code, message, _text(error.get("param")))
    return failure(UPSTREAM_ERROR, _text(error) or _NO_MESSAGE)


def is_error_object(frame: dict[str, Any]) -> bool:
    """A frame that is an error itself instead of holding one (older vLLM, FastAPI, gateways)."""
    return frame.get("object") == "error" or "detail" in frame or ("message" in frame and "code" in frame)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and value != "" else None
