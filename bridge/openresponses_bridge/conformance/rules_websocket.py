"""Clauses about messages that only a WebSocket has."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.conformance.context import EventContext
from openresponses_bridge.conformance.registry import ENVELOPE, Finding, Findings, rule


@rule("specification, WebSocket: failures are {type, status, error}", ENVELOPE)
def websocket_error_envelope(context: EventContext) -> Findings:
    """An error has the HTTP status it would have been, and in `error` a code and a message, both text."""
    status = context.number("status")
    if status is None or not 400 <= status <= 599:
        yield Finding("Expected a status of an error, 400 to 599", "$.status")
    error = context.object("error")
    if error is None:
        yield Finding("Expected an object", "$.error")
        return
    for field in ("code", "message"):
        if not isinstance(error.get(field), str):
            yield Finding("Expected a string", f"$.error.{field}")
    for field, admitted in _OPTIONAL.items():
        if field in error and not isinstance(error[field], admitted):
            yield Finding("Expected a string", f"$.error.{field}")


_OPTIONAL: dict[str, Any] = {"type": str, "param": str | None}
