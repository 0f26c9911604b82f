"""The first and last frames of an outgoing message, and errors in Anthropic's format."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.dialects.anthropic_messages.client.blocks import BlockWriter
from openresponses_bridge.dialects.base import CANCELLED, CUT, searched
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.protocol.usage import Usage

REFUSAL = "refusal"
_STOP_SEQUENCE: Final = "stop_sequence"
# incomplete reason → stop reason; None: an error, since Anthropic has no such reason
_STOP_REASONS: dict[str, str | None] = {
    "max_output_tokens": "max_tokens",
    "content_filter": REFUSAL,
    "cancelled": None,
}

# our codes and types → Anthropic's error types; Anthropic's own pass unchanged
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
    "service_unavailable": "overloaded_error",
    "context_length_exceeded": "invalid_request_error",
    "invalid_prompt": "invalid_request_error",
    "invalid_request": "invalid_request_error",
    "not_found": "not_found_error",
    "model_not_found": "not_found_error",
    "invalid_api_key": "authentication_error",
}
# HTTP status → error type, for errors whose own names say no more than these
_VAGUE: Final = frozenset({_API_ERROR, "invalid_request_error"})
_TYPE_OF_STATUS: Final = {
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


class MessageBounds:
    """Writes the first and the last frames of a message. `calls`: whether any call is whole."""

    def __init__(self, blocks: BlockWriter, diagnostics: Diagnostics, input_tokens: int) -> None:
        self._blocks = blocks
        self._diagnostics = diagnostics
        self._input_tokens = input_tokens
        self._begun = False
        self._ended = False
        self._error: ErrorPayload | None = None
        self._extras: dict[str, dict[str, Any]] = {}
        self.refusal: list[str] = []
        self.calls = False

    def begin(self, event: ev.ResponseCreated) -> list[t.Chunk]:
        """`message_start`, once."""
        return self._start(event.response)

    def keep_extra(self, name: str, value: Any) -> bool:
        """Keep a field that Anthropic sends in `message_delta` beside reason and usage; returns whether it is
        one."""
        if name not in ("context_management", "container") or not isinstance(value, dict):
            return False
        self._extras[name] = value
        return True

    def error(self, event: ev.ErrorEvent) -> list[t.Chunk]:
        """Keep the error: `response.failed` follows and ends the message."""
        self._error = event.payload
        return []

    def terminal(self, response: Response) -> list[t.Chunk]:
        """`message_delta` and `message_stop`, or `error`."""
        if self._ended:
            return []
        self._ended = True
        chunks = self._start(response)
        if response.status == "failed":
            error = response.error
            code, message = (error.code, error.message) if error else (None, "the response failed")
            return [*chunks, self._failed(code, message)]
        reason = self._stop_reason(response)
        if reason is None:
            return [*chunks, self._failed(CANCELLED.code, CANCELLED.message)]
        sequence = response.stop_sequence or None if reason == _STOP_SEQUENCE else None
        details: dict[str, Any] = {"stop_reason": reason, "stop_sequence": sequence}
        if self.refusal:
            chunks += self._refuse(response, details)
        if "container" in self._extras:
            details["container"] = self._extras["container"]
        usage = usage_body(response.usage) | _searches(response)
        delta = t.MessageDelta(details, usage, self._extras.get("context_management"))
        return [*chunks, *self._blocks.stop(), *self._held(), delta, t.MessageStop()]

    def _held(self) -> list[t.Chunk]:
        """What was sealed last; behind a text clients would take it for the answer."""
        if self._blocks.last != "text":
            return self._blocks.release()
        if self._blocks.held is not None:
            self._diagnostics.loss("item.reasoning", "sealed behind the text, left out")
        return []

    def close(self) -> list[t.Chunk]:
        """An error when no terminal event came."""
        if self._ended:
            return []
        self._ended = True
        error = self._error
        if error is not None:
            return [self._failed(error.code, error.message, error.type)]
        return [self._failed(CUT, "the response ended early")]

    def _start(self, response: Response) -> list[t.Chunk]:
        if self._begun:
            return []
        self._begun = True
        usage = {"input_tokens": self._input_tokens, "output_tokens": 0}
        return [t.MessageStart(message_head(response, usage))]

    def _stop_reason(self, response: Response) -> str | None:
        if response.status == "completed":
            ended = _STOP_SEQUENCE if response.stop_sequence else "end_turn"
            return "tool_use" if self.calls else REFUSAL if self.refusal else ended
        details = response.incomplete_details
        reason = details.reason if details is not None else response.status
        if reason not in _STOP_REASONS:
            self._diagnostics.loss("incomplete_details.reason", f"{reason[:64]} reported as max_tokens")
        return _STOP_REASONS.get(reason, "max_tokens")

    def _refuse(self, response: Response, details: dict[str, Any]) -> list[t.Chunk]:
        """Explain a refusal of the API beside the stop reason; a refusal in the model's own words is text."""
        text = "".join(self.refusal)
        if response.status == "incomplete" and details["stop_reason"] == REFUSAL:
            details["stop_details"] = {"type": REFUSAL, "category": None, "explanation": text}
            return []
        self._diagnostics.loss("refusal", "sent as text")
        return self._blocks.whole({"type": "text", "text": ""}, t.TextDelta(text))

    def _failed(self, code: str | None, message: str, kind: str | None = None) -> t.Chunk:
        kind = kind or (self._error.type if self._error is not None else None)
        return t.ErrorFrame(error_body(code, kind, message)["error"])


def message_head(response: Response, usage: dict[str, Any]) -> dict[str, Any]:
    """A message without its content and end."""
    return {
        "id": response.id,
        "type": "message",
        "role": "assistant",
        "model": response.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def usage_body(usage: Usage | None) -> dict[str, Any]:
    """The counts under Anthropic's names; zeros when there are none."""
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    cached, written = usage.input_tokens_details.cached_tokens, usage.cache_write_tokens
    body: dict[str, Any] = {
        "input_tokens": max(usage.input_tokens - cached - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
    }
    if usage.output_tokens_details.reasoning_tokens:
        body["output_tokens_details"] = {"thinking_tokens": usage.output_tokens_details.reasoning_tokens}
    if usage.estimated is True:
        body["estimated"] = True
    return body


def _searches(response: Response) -> dict[str, Any]:
    """The count of searches, which Anthropic has beside those of tokens; {} when there were none."""
    found = [each for each in map(searched, response.output) if each is not None and each.kind == "search"]
    done = sum(not each.failed for each in found)
    return {"server_tool_use": {"web_search_requests": done}} if found else {}


def error_body(code: str | None, kind: str | None, message: str, status: int | None = None) -> dict[str, Any]:
    """An error in Anthropic's format, as in a stream's `error` event and in an HTTP body. The HTTP `status`
    decides the type when our code has no counterpart."""
    found = (name if name in _OWN_TYPES else _TYPE_OF_CODE.get(name or "") for name in (code, kind))
    named = next(filter(None, found), _API_ERROR)
    if named in _VAGUE:
        named = _TYPE_OF_STATUS.get(status, named) if status else named
    return {"type": "error", "error": {"type": named, "message": message}}
