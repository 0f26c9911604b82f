"""An upstream's refusal → our error, with its meaning kept (law S5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from openresponses_bridge.dialects.base import LONGEST_NAME
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.text import printable
from openresponses_server.errors import UpstreamError, status_in
from openresponses_server.upstreams.overflow import overflow_code
from openresponses_server.upstreams.retry_after import passed_on

# Where servers put an error's text when there is no `error` object: Mistral, FastAPI and vLLM, others.
_MESSAGE_FIELDS: Final = ("message", "detail", "error_description", "reason")
_FORGOTTEN: Final = "previous_response_not_found"
_LINKS: Final = ("previous_response_id", "response_id")  # what an error about the link names as its parameter
_NOT_THERE: Final = (404, 405)  # without an error of an API: most often another API is there
_WRONG_KEY: Final = (401, 403, 407)
# what servers call it in a 403
_KEY_ERRORS: Final = frozenset(
    {
        "access_denied",
        "authentication_error",
        "forbidden",
        "invalid_api_key",
        "permission_denied",
        "permission_error",
        "unauthorized",
    }
)
_LONGEST_MESSAGE: Final = 2000  # characters
_LONGEST_SAID: Final = 500

Clean = Callable[[str], str]


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, clean: Clean = str, ours: str = ""
) -> UpstreamError:
    """The error for a status other than 2xx. Status, type, code, message, param and retry-after are the
    upstream's own where it gave them; each text of it passes through `clean`, which takes secrets out.

    `ours` is what a client reads in its place when the upstream refuses a key that is not the client's, which
    would look as if that were wrong: 502 with a code of its own."""
    # a redirect would carry the key elsewhere, so it is not followed and no client can use it
    answered = status if 400 <= status <= 599 else 502
    fields = _error_fields(body)
    message = clean((_text(fields, "message") or _no_message(status, headers, body))[: 2 * _LONGEST_MESSAGE])
    kind, code, param = (_name(fields, name, clean) for name in ("type", "code", "param"))
    reported = code or kind
    said = said_in(body, clean)
    if ours and _is_about_the_key(status, fields, reported):
        return UpstreamError(
            502,
            ours,
            code=UpstreamError.AUTHENTICATION,
            cause=f"it answered with status {status}",
            said=said,
            lasting=True,
        )
    retry_after = passed_on(headers.get("retry-after"))
    return UpstreamError(
        answered,
        message[:_LONGEST_MESSAGE],
        code=overflow_code(answered, reported, message) or code,
        error_type=kind,
        param=param,
        headers={"retry-after": retry_after} if retry_after else None,
        cause=f"it answered with status {status}",
        said=said,
        lasting=status in (*_NOT_THERE, *_WRONG_KEY)
        or status < 400
        or headers.get("x-should-retry", "").strip().lower() == "false",
    )


def said_in(body: bytes, clean: Clean = str) -> str:
    """The beginning of a body for the operator's log: in one line, without keys."""
    text = clean(body[: 16 * _LONGEST_SAID].decode("utf-8", "replace"))
    return printable(" ".join(text[: 2 * _LONGEST_SAID].split()))[:_LONGEST_SAID]


def _is_about_the_key(status: int, fields: Mapping[str, Any], reported: str | None) -> bool:
    """A 403 may be about what the client asks for too: that is what its error says then."""
    if status != 403:
        return status in _WRONG_KEY
    return not fields or reported is None or reported.lower() in _KEY_ERRORS


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
