"""Whatever a caller hands to `fail()` → the two forms an error takes on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.errors import ErrorPayload, ResponseError
from openresponses_bridge.protocol.events import ErrorEvent
from openresponses_bridge.state import Wire

DEFAULT_CODE = "server_error"
DEFAULT_TYPE = "server_error"
_TEXTS = ("type", "code", "message", "param")

Failure = ErrorPayload | ResponseError | BridgeError | Mapping[str, Any] | BaseException | str


def payload_of(error: Failure) -> ErrorPayload:
    """The error as the `error` event carries it. An unforeseen exception gives its class, never its
    text, which may hold secrets."""
    if isinstance(error, ErrorPayload):
        return error
    if isinstance(error, ResponseError):
        return ErrorPayload(DEFAULT_TYPE, error.code, error.message, None)
    if isinstance(error, BridgeError):
        return ErrorPayload(error.error_type, error.code, error.message, error.param)
    if isinstance(error, Mapping):
        return ErrorPayload(
            _text(error.get("type")) or DEFAULT_TYPE,
            _text(error.get("code")),
            _text(error.get("message")) or "unknown error",
            _text(error.get("param")),
        )
    if isinstance(error, str):
        return ErrorPayload(DEFAULT_TYPE, DEFAULT_CODE, error, None)
    return ErrorPayload(DEFAULT_TYPE, DEFAULT_CODE, f"internal error ({type(error).__name__})", None)


def redacted(payload: ErrorPayload, redact: Callable[[str], str]) -> ErrorPayload:
    """The error with each of its texts as `redact` returns it."""
    texts = {name: redact(text) for name in _TEXTS if (text := getattr(payload, name))}
    return replace(payload, **texts)


def error_event(number: int, payload: ErrorPayload, wire: Wire) -> ErrorEvent:
    """The `error` event with this sequence number, in the form of this wire (law E8)."""
    if wire.nested_error:
        return ErrorEvent(number, payload)
    return ErrorEvent(number, code=payload.code, message=payload.message, param=payload.param)


def response_error(payload: ErrorPayload) -> ResponseError:
    """The error as a failed response carries it, where the code is never null."""
    return ResponseError(payload.code or payload.type or DEFAULT_CODE, payload.message)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
