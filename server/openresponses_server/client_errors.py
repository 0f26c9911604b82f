"""What can go wrong with a Responses server, as one error: what it refused with, or how it failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from openresponses_bridge.errors import BridgeError
from openresponses_server.errors import HttpError, UpstreamError
from openresponses_server.upstreams.attempts import PASSING
from openresponses_server.upstreams.refusals import Clean, refusal
from openresponses_server.upstreams.retry_after import seconds_of


class OpenResponsesError(HttpError):
    """A request that was refused, or an answer that broke. `http_status`, `error_type`, `code`, `message` and
    `param` are the server's own where it gave them; a server that can't be reached, that is silent or that
    sends something else is a 502 or 504 with a code of `UpstreamError`."""

    @classmethod
    def from_response(cls, status: int, headers: Mapping[str, str], body: bytes, clean: Clean = str) -> Self:
        """The error that an answer with another status than 2xx is, in whatever shape. A redirect is one: the
        key must not follow it. `headers` have names in lower case, or are looked up in any; `clean` takes
        secrets out of texts."""
        return cls.of(refusal(status, headers, body, clean))

    @classmethod
    def of(cls, error: BridgeError) -> Self:
        """Another error as one of these."""
        return cls(
            error.http_status,
            error.message,
            code=error.code,
            error_type=error.error_type,
            param=error.param,
            headers=error.headers if isinstance(error, HttpError) else None,
        )

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the server wants to be asked again, where it says so."""
        return seconds_of(self.headers.get("retry-after"))

    @property
    def is_passing(self) -> bool:
        """Whether the same request may go better in a moment."""
        return self.http_status in PASSING and self.code != UpstreamError.TIMEOUT


def cut_short() -> UpstreamError:
    """The stream has ended and its response has not."""
    what = "the stream ended before the response was complete"
    return UpstreamError(502, what, code=UpstreamError.DISCONNECTED, cause=what)


def empty() -> UpstreamError:
    """The stream has ended without any event."""
    what = "the server answered with an empty stream"
    return UpstreamError(502, what, code=UpstreamError.INVALID_RESPONSE, cause=what)
