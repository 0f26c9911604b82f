"""An upstream's refusal → our error, with its meaning kept (law S5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.errors import WireError
from bridge.protocol.codec import decode_json
from server.errors import UpstreamError
from server.upstreams.overflow import overflow_code

# Where servers put an error's text when there is no `error` object: Mistral, FastAPI and vLLM, others.
_MESSAGE_FIELDS: Final = ("message", "detail", "error_description", "reason")
_LONGEST_MESSAGE: Final = 2000  # characters


def refusal(status: int, headers: Mapping[str, str], body: bytes, secret: str | None = None) -> UpstreamError:
    """The error for a status other than 2xx. Status, type, code, message, param and retry-after are the
    upstream's own where it gave them; `secret` is taken out of the text."""
    # a redirect would carry the key elsewhere, so it is not followed and no client can use it
    answered = status if 400 <= status <= 599 else 502
    fields = _error_fields(body)
    message = _text(fields, "message") or _no_message(status, headers, body)
    if secret:
        message = message.replace(secret, "[key]")
    retry_after = headers.get("retry-after")
    told = _text(fields, "code") or _text(fields, "type")
    return UpstreamError(
        answered,
        message[:_LONGEST_MESSAGE],
        code=overflow_code(answered, told, message) or _text(fields, "code"),
        error_type=_text(fields, "type"),
        param=_text(fields, "param"),
        headers={"retry-after": retry_after} if retry_after and retry_after.isprintable() else None,
    )


def in_band_refusal(body: bytes, secret: str | None = None) -> UpstreamError | None:
    """The error in the JSON body of an answer that claims success, None when there is none in it."""
    fields = _error_fields(body)
    if not fields:
        return None
    code = str(fields.get("code") or fields.get("status"))
    status = int(code) if code.isdecimal() and 400 <= int(code) <= 599 else 502
    return refusal(status, {}, body, secret)


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


def _no_message(status: int, headers: Mapping[str, str], body: bytes) -> str:
    kind = headers.get("content-type", "").partition(";")[0].strip() or "no content type"
    what = f"a body of type {kind}" if body.strip() else "an empty body"
    return f"the upstream answered with status {status} and {what}"
