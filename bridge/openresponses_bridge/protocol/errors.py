"""Errors as they stand on the wire: in HTTP bodies, in `error` events, in a failed response."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class ResponseError(Struct, frozen=True):
    """Schema Error: the `error` of a failed response."""

    code: str
    message: str


class ErrorPayload(Struct, frozen=True):
    """Schema ErrorPayload: the `error` of an `error` event and of an HTTP error body."""

    type: str
    code: str | None
    message: str
    param: str | None
    headers: dict[str, str] | UnsetType = UNSET


class ErrorBody(Struct, frozen=True):
    """The body of a refused HTTP request: `{"error": {type, code, message, param}}`."""

    error: ErrorPayload
