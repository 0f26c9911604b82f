"""How an upstream says that it failed, and what the response then says (field case 27)."""

from __future__ import annotations

from typing import Any

from bridge.dialects.base import NO_MESSAGE, UPSTREAM_ERROR, failure, word
from bridge.protocol.errors import ErrorPayload

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


def reported(error: Any) -> ErrorPayload:
    """An error that the upstream reported: text, or an object with any of type, code, message, param."""
    if isinstance(error, dict):
        inner = error.get("error")
        if isinstance(inner, dict | str):
            return reported(inner)
        kind = word(error.get("type"))
        code = word(error.get("code")) or word(error.get("status")) or kind or UPSTREAM_ERROR
        message = word(error.get("message")) or word(error.get("detail")) or NO_MESSAGE
        return ErrorPayload(kind or "server_error", code, message, word(error.get("param")))
    return failure(UPSTREAM_ERROR, word(error) or NO_MESSAGE)


def is_error_object(frame: dict[str, Any]) -> bool:
    """A frame that is an error itself instead of holding one (older vLLM, FastAPI, gateways)."""
    return frame.get("object") == "error" or "detail" in frame or ("message" in frame and "code" in frame)
