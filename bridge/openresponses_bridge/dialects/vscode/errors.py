"""LanguageModelError, the error that VS Code's models end in, both ways.

VS Code keeps its class, message and code: NotFound (no such model), NoPermissions (the user may not use
it), Blocked (not now: a limit or quota), or any other code.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from openresponses_bridge.dialects.base import UPSTREAM_ERROR
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
# LanguageModelError.code → (type, code)
_CODES = {
    "NoPermissions": ("invalid_request_error", "no_permissions"),
    "Blocked": ("too_many_requests", "quota_exceeded"),
    "NotFound": ("not_found", "model_not_found"),
}


class Cause(Struct, frozen=True):
    """What it is as an HTTP status, and its code in the protocol's terms."""

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
        """The same failure in VS Code's terms."""
        return cls(error.message, code_of(error))


def code_of(error: BridgeError) -> str:
    """Its code in VS Code; one that VS Code has no code for keeps its own."""
    return _BY_STATUS.get(error.http_status, error.code)


def error_body(error: BridgeError) -> LanguageModelErrorBody:
    """An error for VS Code."""
    cause = Cause(error.http_status, error.code)
    return LanguageModelErrorBody(
        ErrorObject(NAME, error.error_type, code_of(error), error.message, error.param, cause)
    )


def failure_of(error: Any) -> ErrorPayload:
    """What a provider threw: a text, or `{message, code, …}`."""
    given = error if isinstance(error, dict) else {"message": error}
    message, code = given.get("message"), given.get("code")
    kind, known = (
        _CODES.get(code, ("server_error", None)) if isinstance(code, str) else ("server_error", None)
    )
    text = message if isinstance(message, str) and message else "the provider failed without a message"
    return ErrorPayload(kind, known or (code if isinstance(code, str) else UPSTREAM_ERROR), text, None)
