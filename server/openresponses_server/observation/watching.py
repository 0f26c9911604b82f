"""Who watches how a response is made, beside its log line and the metrics."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from openresponses_server.observation.responses import Ended


class Said(NamedTuple):
    """What the log says of the end: `status` of the response (`handed_over`: another worker ends it), `code`
    of its error or of why it is incomplete, `cause` for the operator."""

    status: str
    code: str | None = None
    cause: str | None = None


class Watch(Protocol):
    """Of one response; both are called in the task that makes it, and must not fail."""

    def begin(self) -> None:
        """Its making begins."""
        ...

    def end(self, ended: Ended, said: Said) -> None:
        """It is over, and so are its exchanges with upstreams."""
        ...
