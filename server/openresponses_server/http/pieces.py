"""Pieces of a body past ASGI's `send`, as uvicorn writes them (see
`server/openresponses_server/http/direct_writes.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openresponses_server.http.direct_writes import Write, offer

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def offer_writing(cycle: RequestResponseCycle) -> None:
    """Offer it to the application that answers this request. Until `stop_writing`, cycle and scope refer to
    each other."""
    if cycle.scope["method"] != "HEAD":
        offer(cycle.scope, _writer(cycle))  # type: ignore[arg-type]


def stop_writing(cycle: RequestResponseCycle) -> None:
    """The answer is over, or nobody reads it."""
    cycle.scope.pop("extensions", None)


class _Pieces:
    """Of one answer. An object, since a function would keep each of what it needs in an object more, and all
    of them are looked at with each token."""

    __slots__ = ("_cycle", "_flow", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle, self._flow, self._transport = cycle, cycle.flow, cycle.transport

    def write(self, body: bytes) -> bool:
        cycle = self._cycle
        # `chunked_encoding` is known when the head has been written
        if (
            self._flow.write_paused
            or not cycle.chunked_encoding
            or cycle.response_complete
            or cycle.disconnected
        ):
            return False
        if body:  # an empty chunk would be the end
            self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True


def _writer(cycle: RequestResponseCycle) -> Write:
    return _Pieces(cycle).write
