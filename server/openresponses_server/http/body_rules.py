"""What the headers of a request with a body may say, before any of it is read."""

from __future__ import annotations

from openresponses_bridge.errors import HttpError

_JSON = "application/json"
_DIGITS = 20  # more than any length has


def check_type(content_type: str) -> None:
    """Raises HttpError 415 for what is not JSON: a web page may send any other type to any server."""
    if content_type == _JSON:
        return
    kind = content_type.partition(";")[0].strip().lower()
    if kind != _JSON and not kind.endswith("+json"):
        named = f"not {kind[:80]}" if kind else "and has to be named"
        raise HttpError(415, f"The content type must be application/json, {named}.")


def check_length(content_length: str, limit: int) -> None:
    """Raises HttpError 413 when more than `limit` bytes are announced."""
    if content_length.isdecimal() and len(content_length) < _DIGITS and int(content_length) > limit:
        raise too_large(limit)


def too_large(limit: int) -> HttpError:
    """A body of more than `limit` bytes."""
    return HttpError(413, f"The body is larger than the limit of {limit} bytes.")
