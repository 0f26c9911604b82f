"""Errors in Amazon's shape: a name and a message, as a refusal or as an exception within a stream."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from openresponses_bridge.dialects.base import (
    CODE_OF,
    ERROR_FIELDS,
    Cause,
    native_of,
    other_fields,
    status_of,
)
from openresponses_bridge.dialects.bedrock_converse.types import DIALECT
from openresponses_bridge.errors import BridgeError

_EXCEPTIONS: Final = frozenset(
    {
        "AccessDeniedException",
        "ConflictException",
        "InternalServerException",
        "ModelErrorException",
        "ModelNotReadyException",
        "ModelStreamErrorException",
        "ModelTimeoutException",
        "ResourceNotFoundException",
        "ServiceQuotaExceededException",
        "ServiceUnavailableException",
        "ThrottlingException",
        "ValidationException",
    }
)
"""The names in Amazon's description of the service; SDKs have a class for each."""
_NAME_OF_CODE: Final = {"insufficient_quota": "ServiceQuotaExceededException"}
_NAME_OF_STATUS: Final = {
    401: "AccessDeniedException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    409: "ConflictException",
    429: "ThrottlingException",
    502: "ModelErrorException",
    503: "ServiceUnavailableException",
    504: "ModelTimeoutException",
    529: "ServiceUnavailableException",
}
_BROKEN: Final = "modelStreamErrorException"
_STREAMED: Final = frozenset(
    {
        "internalServerException",
        "serviceUnavailableException",
        "throttlingException",
        "validationException",
        _BROKEN,
    }
)
"""The exceptions that a stream may have."""
_TOO_LONG: Final = "Input is too long for requested model"


def error_name(error: BridgeError) -> str:
    """Return the name of a refusal, the value of `x-amzn-errortype`."""
    return _name(error.code, error.error_type, error.http_status) or "InternalServerException"


def error_body(error: BridgeError) -> dict[str, Any]:
    """Return the body of a refusal, with the further fields of Bedrock's own."""
    return _fields(error.code, error.message, native_of(error, DIALECT))


def exception(
    code: str | None,
    message: str,
    kind: str | None = None,
    native: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the event of a stream that fails with this code, and with the type of an error if it has one."""
    name = _name(code, kind, status_of(code or ""))
    streamed = name[:1].lower() + name[1:]
    return {streamed if streamed in _STREAMED else _BROKEN: _fields(code, message, native)}


def _name(code: str | None, kind: str | None, status: int | None) -> str:
    named = (
        each[:1].upper() + each[1:] for each in (code, kind) if each
    )  # names in a stream begin in lower case
    own = next((each for each in named if each in _EXCEPTIONS), "") or _NAME_OF_CODE.get(code or "", "")
    if own or status is None:
        return own
    return _NAME_OF_STATUS.get(status, "ValidationException" if status < 500 else "InternalServerException")


def _fields(code: str | None, message: str, native: Mapping[str, Any]) -> dict[str, Any]:
    if code == CODE_OF[Cause.TOO_LONG] and _TOO_LONG.lower() not in message.lower():
        message = f"{_TOO_LONG}: {message}"  # clients that shorten a conversation know only these words
    return other_fields(native, ERROR_FIELDS) | {"message": message}
