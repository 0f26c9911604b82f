"""Copilot's `usage` data and a provider's errors, read without trusting their shape."""

from __future__ import annotations

from typing import Any

from bridge.diagnostics import Diagnostics
from bridge.dialects.base import UPSTREAM_ERROR, counts_of
from bridge.protocol.errors import ErrorPayload
from bridge.protocol.usage import Usage

_TOTALS = ("prompt_tokens", "completion_tokens", "total_tokens")
# LanguageModelError.code → (type, code)
_CODES = {
    "NoPermissions": ("invalid_request_error", "no_permissions"),
    "Blocked": ("too_many_requests", "quota_exceeded"),
    "NotFound": ("not_found", "model_not_found"),
}


def usage_of(value: Any, diagnostics: Diagnostics) -> Usage | None:
    """APIUsage, whose three totals must be numbers."""
    if not isinstance(value, dict) or not all(_is_number(value.get(name)) for name in _TOTALS):
        return None
    return counts_of(value, diagnostics)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def failure_of(error: Any) -> ErrorPayload:
    """What a provider threw: a text, or `{message, code, …}`."""
    given = error if isinstance(error, dict) else {"message": error}
    message, code = given.get("message"), given.get("code")
    kind, known = (
        _CODES.get(code, ("server_error", None)) if isinstance(code, str) else ("server_error", None)
    )
    text = message if isinstance(message, str) and message else "the provider failed without a message"
    return ErrorPayload(kind, known or (code if isinstance(code, str) else UPSTREAM_ERROR), text, None)
