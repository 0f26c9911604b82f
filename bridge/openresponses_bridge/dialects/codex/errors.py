"""Codex's errors → ours. `codexErrorInfo` is a name, or one name with the upstream's HTTP status."""

from __future__ import annotations

import re
from typing import Any

from openresponses_bridge.dialects.base import UPSTREAM_ERROR
from openresponses_bridge.dialects.base import payload_of as payload_in
from openresponses_bridge.dialects.codex.types import object_of, snake, text_of
from openresponses_bridge.protocol.response import ErrorPayload

_SERVER = "server_error"
_INVALID = "invalid_request_error"
_TOO_MANY = "too_many_requests"

# (type, code) of what Codex names
_NAMED = {
    "context_window_exceeded": (_INVALID, "context_length_exceeded"),
    "usage_limit_exceeded": (_TOO_MANY, "insufficient_quota"),
    "server_overloaded": (_SERVER, "server_is_overloaded"),
    "internal_server_error": (_SERVER, _SERVER),
    "unauthorized": (_INVALID, "invalid_api_key"),
    "bad_request": (_INVALID, "invalid_prompt"),
    "sandbox_error": (_SERVER, "sandbox_error"),
    # OpenAI's codes of what its policies refuse
    "bio_policy": (_INVALID, "bio_policy"),
    "cyber_policy": (_INVALID, "cyber_policy"),
}
# (type, code) of the upstream's HTTP status
_BY_STATUS = {
    400: (_INVALID, "invalid_prompt"),
    401: (_INVALID, "invalid_api_key"),
    403: (_INVALID, "invalid_api_key"),
    404: ("not_found", "not_found"),
    429: (_TOO_MANY, "rate_limit_exceeded"),
    503: (_SERVER, "service_unavailable"),
    529: (_SERVER, "service_unavailable"),
}
_UNKNOWN = (_SERVER, UPSTREAM_ERROR)
# Codex reports an incomplete response as an error, with the reason in its message
_INCOMPLETE = re.compile(r"Incomplete response returned, reason: (\w+)")


def payload_of(error: dict[str, Any]) -> ErrorPayload:
    """Return an error in the form of any generation."""
    info = error.get("codexErrorInfo", error.get("codex_error_info"))
    kind, code = _UNKNOWN
    if isinstance(info, str):
        kind, code = _NAMED.get(snake(info), _UNKNOWN)
    for facts in object_of(info).values():
        status = object_of(facts).get("httpStatusCode", object_of(facts).get("http_status_code"))
        kind, code = _BY_STATUS.get(status, (_SERVER, _SERVER)) if isinstance(status, int) else _UNKNOWN
    own_code, own_kind = text_of(error.get("code")), text_of(error.get("type"))
    return payload_in({**error, "code": own_code or code, "type": own_kind or kind})


def incomplete_reason(error: dict[str, Any]) -> str | None:
    """Return why the model's response was incomplete, if the error says nothing else."""
    match = _INCOMPLETE.search(text_of(error.get("message")))
    return match.group(1) if match else None
