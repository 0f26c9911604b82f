"""The body of an answer over HTTP, as it comes."""

from __future__ import annotations

import asyncio
from typing import Final

from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.base import Take, called
from openresponses_server.upstreams.causes import words_of
from openresponses_server.upstreams.connections import FAILURES, Answer
from openresponses_server.upstreams.http1.body import Body
from openresponses_server.upstreams.http1.turns import PIECE

_LOOKS: Final = 4
"""How often it is looked in the seconds that a wait may last, which it may exceed by one such part."""
# bytes that are read at first: what begins an answer waits little for what follows it
_FIRST: Final = 16 * 1024


class HttpReply:
    """The body of an accepted request. What came before a cut is given before the cut is raised.

    `idle` bounds each wait for bytes. One timer looks after that, a few times in so many seconds, and no read
    notes when it was: a timer or a time per read would cost a part of the translation.
    """

    __slots__ = (
        "_body",
        "_content",
        "_failure",
        "_idle",
        "_loop",
        "_name",
        "_piece",
        "_quiet",
        "_timer",
        "_waits",
        "losses",
    )

    def __init__(self, name: str, answer: Answer, idle: float, losses: str) -> None:
        self.losses = losses
        self._name = name
        self._content = content = answer.content
        # what is recorded, or comes of a recording, is read by a task
        self._body = content if isinstance(content, Body) else None
        self._piece = _FIRST
        self._idle = idle
        self._failure: UpstreamError | None = None
        self._waits = False
        self._quiet = 0  # looks since bytes came
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(idle / _LOOKS, self._look)

    async def read(self, take: Take | None = None) -> bytes:
        if self._failure is not None:
            raise self._failure
        self._waits, self._quiet = True, 0
        try:
            body = self._body
            if body is None:
                return await self._content.readany()
            if take is not None:
                if data := body.read_nowait(PIECE):
                    await body.turns.come()
                    return data
                if await body.give_to(take):
                    return b""
            piece, self._piece = self._piece, PIECE
            return await body.read(piece)
        except FAILURES as error:
            self._failure = self._as_error(error)
            raise self._failure from error
        finally:
            self._waits = False

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        """Whether the upstream has been waited for too long; time spent on a slow client does not count."""
        self._quiet += 1
        body = self._body
        if body is not None and (body.heard or not body.is_awaited):
            body.heard = False
            self._quiet = 0
        if not self._waits:
            self._quiet = 0
        if self._quiet > _LOOKS:
            self._content.set_exception(TimeoutError())
        else:
            self._timer = self._loop.call_later(self._idle / _LOOKS, self._look)

    def _as_error(self, error: BaseException) -> UpstreamError:
        if isinstance(error, TimeoutError):
            silent = f"the {called(self._name)} went silent"
            return UpstreamError(504, silent, code=UpstreamError.TIMEOUT, cause="it went silent")
        why = words_of(error)
        lost = f"the connection to the {called(self._name)} was lost: {why}"
        return UpstreamError(
            502, lost, code=UpstreamError.DISCONNECTED, cause=f"the connection was lost: {why}"
        )
