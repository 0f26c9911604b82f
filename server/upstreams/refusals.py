"""An upstream's refusal → our error, with its meaning kept (law S5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bridge.dialects.base import LONGEST_NAME
from bridge.errors import WireError
from bridge.protocol.codec import decode_json
from server.errors import UpstreamError, status_in
from server.upstreams.overflow import overflow_code
from server.upstreams.retry_after import passed_on

# Where servers put an error's text when there is no `error` object: Mistral, FastAPI and vLLM, others.
_MESSAGE_FIELDS: Final = ("message", "detail", "error_description", "reason")
_FORGOTTEN: Final = "previous_response_not_found"
_LINKS: Final = ("previous_response_id", "response_id")  # what an error about the link names as its parameter
_NOT_THERE: Final = (404, 405)  # without an error of an API: most often another API is there
_LONGEST_MESSAGE: Final = 2000  # characters

Clean = Callable[[str], str]


def refusal(status: int, headers: Mapping[str, str], body: bytes, clean: Clean = str) -> UpstreamError:
    """The error for a status other than 2xx. Status, type, code, message, param and retry-after are the
    upstream's own where it gave them; each text of it passes through `clean`, which takes secrets out."""
    # a redirect would carry the key elsewhere, so it is not followed and no client can use it
    answered = status if 400 <= status <= 599 else 502
    fields = _error_fields(body)
    message = clean((_text(fields, "message") or _no_message(status, headers, body))[: 2 * _LONGEST_MESSAGE])
    kind, code, param = (_name(fields, name, clean) for name in ("type", "code", "param"))
    reported = code or kind
    retry_after = passed_on(headers.get("retry-after"))
    return UpstreamError(
        answered,
        message[:_LONGEST_MESSAGE],
        code=overflow_code(answered, reported, message) or code,
        error_type=kind,
        param=param,
        headers={"retry-after": retry_after} if retry_after else None,
        cause=f"it answered with status {status}",
    )


def has_forgotten(error: UpstreamError, response_id: str) -> bool:
    """Whether an upstream refuses to go on from the response that it gave this id: it does not know it any
    more, or may not use it."""
    if error.code == _FORGOTTEN:
        return True
    named = error.param in _LINKS or response_id in error.message
    return error.http_status in (400, 404) and named


def in_band_refusal(body: bytes, clean: Clean = str) -> UpstreamError | None:
    """The error in the JSON body of an answer that claims success, None when there is none in it."""
    fields = _error_fields(body)
    if not fields:
        return None
    status = status_in(str(fields.get("code") or fields.get("status"))) or 502
    refused = refusal(status, {}, body, clean)
    refused.cause = "it answered with an error under a status that means success"
    return refused


def _error_fields(body: bytes) -> dict[str, Any]:
    """The error object, from wherever it stands."""
    try:
        value = decode_json(body)
    except WireError:
        return {}
    if isinstance(value, list) and value:
        value = value[0]  # Gemini wraps its errors in a list
    if not isinstance(value, dict):
        return {}
    error = value.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {"message": error}
    for field in _MESSAGE_FIELDS:
        if isinstance(value.get(field), str):
            return {**value, "message": value[field]}
    return {}


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return str(value) if isinstance(value, str | int) and value != "" else None


def _name(fields: dict[str, Any], name: str, clean: Clean) -> str | None:
    """What programs read: one that is longer than any real one is cut."""
    text = _text(fields, name)
    return None if text is None else clean(text[:_LONGEST_MESSAGE])[:LONGEST_NAME]


def _no_message(status: int, headers: Mapping[str, str], body: bytes) -> str:
    kind = headers.get("content-type", "").partition(";")[0].strip() or "no content type"
    what = f"a body of type {kind}" if body.strip() else "an empty body"
    why = "; does it speak the dialect that it is set up with?" if status in _NOT_THERE else ""
    return f"the upstream answered with status {status} and {what}{why}"
