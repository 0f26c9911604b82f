"""Pieces of a body past ASGI's `send`, as uvicorn writes them (see `server/body_pieces.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.body_pieces import Write, offer

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


def _writer(cycle: RequestResponseCycle) -> Write:
    flow, out = cycle.flow, cycle.transport.write

    def write(body: bytes) -> bool:
        # `chunked_encoding` is known when the head has been written
        if flow.write_paused or not cycle.chunked_encoding or cycle.response_complete or cycle.disconnected:
            return False
        if body:  # an empty chunk would be the end
            out(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    return write
