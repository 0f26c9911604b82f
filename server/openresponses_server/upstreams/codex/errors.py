"""What goes wrong with a process, as errors of an upstream."""

from __future__ import annotations

from typing import Final

from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.base import called

_SOON: Final = "1"  # seconds
_MOST_MESSAGE: Final = 500  # characters of what Codex says of an error


def _error(status: int, code: str, name: str, what: str, cause: str = "") -> UpstreamError:
    return UpstreamError(status, f"the {called(name)} {what}", code=code, cause=cause or f"it {what}")


def not_started(name: str, cause: str, retry_after: float | None = None) -> UpstreamError:
    """Its process can't be started, or has not been ready in time."""
    error = _error(503, UpstreamError.UNREACHABLE, name, "can't be started", cause)
    if retry_after is not None:
        error.headers["retry-after"] = str(max(1, round(retry_after)))
    return error


def ended(name: str, cause: str) -> UpstreamError:
    """Its process has ended."""
    return _error(502, UpstreamError.DISCONNECTED, name, "has stopped in the middle of the answer", cause)


def silent(name: str, what: str) -> UpstreamError:
    """It does not answer."""
    return _error(504, UpstreamError.TIMEOUT, name, "went silent", f"it did not {what} in time")


def invalid(name: str, what: str) -> UpstreamError:
    """It answers with something else."""
    return _error(502, UpstreamError.INVALID_RESPONSE, name, "answered with something else", what)


def refused(name: str, method: str, message: str) -> UpstreamError:
    """It refuses a request of ours."""
    what = f"refused the turn: {message[:_MOST_MESSAGE] or 'it does not say why'}"
    return _error(502, UpstreamError.INVALID_RESPONSE, name, what, f"it refused {method}")


def slow_client(name: str, most: int) -> UpstreamError:
    """Nobody takes what it says."""
    what = f"said more than {most} bytes that the client did not take"
    return _error(502, UpstreamError.TOO_LONG, name, what)


def not_asked(what: str) -> UpstreamError:
    """An answer to something that was not asked."""
    return UpstreamError(
        400, what, code="invalid_value", error_type="invalid_request_error", param="input", cause=what
    )


def busy(name: str, *, key: bool) -> UpstreamError:
    """All turns are taken, or all that one key may have."""
    status = 429 if key else 503
    whose = " of this key" if key else ""
    error = UpstreamError(
        status,
        f"the {called(name)} has too many turns{whose} at once; ask again later",
        code="rate_limit_exceeded" if key else "server_is_overloaded",
        cause=f"its queue{whose} is full",
    )
    error.headers["retry-after"] = _SOON
    return error
