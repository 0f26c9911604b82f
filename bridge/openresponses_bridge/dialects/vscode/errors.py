"""LanguageModelError, the error of VS Code's models, in both directions.

VS Code keeps its class, message and code: NotFound (no such model), NoPermissions (the user may not use it),
Blocked (not now: a limit or quota), or any other code.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from openresponses_bridge.dialects.base import UPSTREAM_ERROR, ReportedError, reported_error
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.response import ErrorPayload

NAME = "LanguageModelError"
# the error's HTTP status → LanguageModelError.code
_BY_STATUS = {
    401: "NoPermissions",
    402: "Blocked",
    403: "NoPermissions",
    404: "NotFound",
    429: "Blocked",
}
# codes that mean the same under any status
_BY_CODE = {
    "insufficient_quota": "Blocked",
    "rate_limit_exceeded": "Blocked",
    "model_not_found": "NotFound",
}
# LanguageModelError.code → (type, code)
_CODES = {
    "NoPermissions": ("invalid_request_error", "no_permissions"),
    "Blocked": ("too_many_requests", "quota_exceeded"),
    "NotFound": ("not_found", "model_not_found"),
}


class Cause(Struct, frozen=True):
    """The HTTP status of an error, and its code in the protocol's terms."""

    status: int
    code: str


class ErrorObject(Struct, frozen=True):
    """VS Code's error as JSON: `name`, `code`, `message` and `cause` are those of its class, `type` and
    `param` the protocol's."""

    name: str
    type: str
    code: str
    message: str
    param: str | None
    cause: Cause


class LanguageModelErrorBody(Struct, frozen=True):
    """The body of a refused request, or the last line of an answer that failed."""

    error: ErrorObject


class LanguageModelError(Exception):
    """VS Code's error: `code` is NotFound, NoPermissions, Blocked or another one."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    @classmethod
    def of(cls, error: BridgeError) -> LanguageModelError:
        """Return the same failure in VS Code's terms."""
        return cls(error.message, code_of(error))


def code_of(error: BridgeError) -> str:
    """Return the error's code in VS Code; its own if VS Code has none for it."""
    return _BY_CODE.get(error.code) or _BY_STATUS.get(error.http_status, error.code)


def error_body(error: BridgeError) -> LanguageModelErrorBody:
    """Return an error for VS Code."""
    cause = Cause(error.http_status, error.code)
    return LanguageModelErrorBody(
        ErrorObject(NAME, error.error_type, code_of(error), error.message, error.param, cause)
    )


def failure_of(error: Any) -> ErrorPayload:
    """Return the error that a provider threw: a text, or `{message, code, …}`."""
    report = reported_error(error) or ReportedError()
    kind, known = _CODES.get(report.code or "", ("server_error", report.code or UPSTREAM_ERROR))
    return ErrorPayload(kind, known, report.message or "the provider failed without a message", None)
