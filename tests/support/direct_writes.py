"""Records which pieces a server writes without ASGI's `send`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import Struct, field
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from openresponses_server.http import connection as pieces
from openresponses_server.http import flow
from openresponses_server.http.websocket import WebSocketConnection


class DirectWrites(Struct):
    """`count` pieces were written directly, and `refused` were left to `send`. `held` is the largest number
    of bytes in a transport's buffer after such a piece; `paused` counts pieces that were written although
    their transport had asked to pause."""

    count: int = 0
    refused: int = 0
    held: int = 0
    paused: int = 0
    scopes: list[object] = field(default_factory=list)

    def note(self, went: bool, was_paused: bool, transport: Any) -> bool:
        """Record the outcome of one piece, and return whether it was written."""
        if went:
            self.count += 1
            self.paused += was_paused
            self.held = max(self.held, transport.get_write_buffer_size())
        else:
            self.refused += 1
        return went


@contextmanager
def watched_writing() -> Iterator[DirectWrites]:
    """Watch all connections that are made within the context."""
    written = DirectWrites()
    real = pieces._write_piece

    def watching(cycle: RequestResponseCycle, body: bytes) -> bool:
        was_paused = cycle.flow.write_paused
        return written.note(real(cycle, body), was_paused, cycle.transport)

    offer = flow.offer

    def watching_offers(scope: Any, write: Any, cut: Any) -> None:
        offer(scope, write, cut)
        written.scopes.append(scope)

    plain = WebSocketConnection._write

    def watching_message(connection: WebSocketConnection, message: bytes) -> bool:
        was_paused = not connection.writable.is_set()
        return written.note(plain(connection, message), was_paused, connection.transport)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WebSocketConnection, "_write", watching_message)
        patch.setattr(pieces, "_write_piece", watching)
        patch.setattr(pieces, "offer", watching_offers)
        yield written
