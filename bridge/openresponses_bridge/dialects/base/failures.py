"""The failures of upstreams in responses: the codes are the same whatever the upstream speaks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.errors import BridgeError, HttpError, WireError, type_and_code
from openresponses_bridge.protocol.response import ErrorPayload, ResponseError
from openresponses_bridge.protocol.usage import Usage, counts_in, nearest_count, within_bounds

CUT: Final = "upstream_cut"
EMPTY: Final = "upstream_empty"
INVALID_JSON: Final = "upstream_invalid_json"
INVALID_SHAPE: Final = "upstream_invalid_shape"
UPSTREAM_ERROR: Final = "upstream_error"
LONGEST_NAME: Final = 200  # characters
NO_MESSAGE: Final = "the upstream reported an error without a message"


def failure(code: str, message: str) -> ErrorPayload:
    """Return an error that was found here."""
    return ErrorPayload("server_error", code, message, None)


CANCELLED: Final = failure("cancelled", "the response was cancelled")
"""The error that a client gets for a cancelled response, if its API has no such end."""


# code of an upstream's error before any output → HTTP status
_STATUS_OF_CODE: Final = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "server_is_overloaded": 503,
    "service_unavailable": 503,
    "overloaded_error": 503,
    "upstream_authentication_failed": 400,
    "upstream_timeout": 504,
    "internal_error": 500,
    "model_error": 500,
    # of Google (google.rpc.Code)
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "INTERNAL": 500,
}
_ERROR_STATUS: Final = re.compile("[45][0-9][0-9]")
_TYPE_OF_CODE: Final = {
    "model_error": "model_error",  # a code that is also a type (specification, "Errors")
    "upstream_authentication_failed": "server_error",
}


def status_of(code: str) -> int | None:
    """Return the HTTP status that an upstream's code or type of an error means; None if it means none.
    Upstreams may send the status itself as the code."""
    return int(code) if _ERROR_STATUS.fullmatch(code) else _STATUS_OF_CODE.get(code)


def http_failure(error: ResponseError) -> HttpError:
    """Return the failure of a response without output as an HTTP error."""
    status = status_of(error.code) or 502
    kind = _TYPE_OF_CODE.get(error.code) or type_and_code(status)[0]
    failed = HttpError(status, error.message, code=error.code, error_type=kind)
    failed.native = error.native or None
    return failed


def error_text(value: Any) -> str | None:
    """Return a value in an upstream's error as text, even if it is a number such as a status; None for
    anything else."""
    return str(value) if isinstance(value, str | int) and value != "" else None


def name(value: Any) -> str | None:
    """Return a value that programs read (a type, a code or a param) as text, cut if it is longer than any
    real one; None if it is neither a text nor a number."""
    text = error_text(value)
    return None if text is None else text[:LONGEST_NAME]


def cut_after(frames: int) -> ErrorPayload:
    """Return the failure of a stream that ended before its answer did, after this number of frames."""
    when = f"after {frames} frame{'s' if frames > 1 else ''}" if frames else "before its first frame"
    return failure(CUT, f"the upstream's stream was cut {when}")


def unreadable(frame: int, error: BridgeError) -> ErrorPayload:
    """Return the failure of a stream whose frame of this number can't be decoded."""
    return failure(
        INVALID_JSON if error.code == WireError.INVALID_JSON else INVALID_SHAPE,
        f"frame {frame} of the upstream's stream: {error.message}",
    )


# Wrong token counts are repaired with a note, so that they lose no answer.


def counted(usage: Usage, diagnostics: Diagnostics) -> Usage:
    """Return usage that the machine accepts: every number is a valid count."""
    return within_bounds(usage, diagnostics)


def counts_of(usage: Mapping[str, Any], diagnostics: Diagnostics) -> Usage | None:
    """Return usage from an object in any spelling that `counts_in` knows; missing counts are 0. None if it
    has no number."""
    numbers = {name: number for name, number in counts_in(usage).items() if number is not None}
    if not any(type(number) in (int, float) for number in numbers.values()):
        return None
    total = sum(nearest_count(numbers.get(name, 0)) for name in ("input_tokens", "output_tokens"))
    counts = {"input_tokens": 0, "output_tokens": 0, "total_tokens": total, **numbers}
    return within_bounds(Usage.of(**counts, estimated=usage.get("estimated") is True), diagnostics)
