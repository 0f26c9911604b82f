"""The body of an answer over HTTP, as it comes."""

from __future__ import annotations

import asyncio
from typing import Final

from server.errors import UpstreamError
from server.upstreams.base import Take, called
from server.upstreams.causes import cause_of
from server.upstreams.connections import FAILURES, Answer
from server.upstreams.http1.body import Body
from server.upstreams.turns import PIECE

# bytes that are read at first: what begins an answer waits little for what follows it
_FIRST: Final = 16 * 1024


class HttpReply:
    """The body of an accepted request. What came before a cut is given before the cut is raised.

    `idle` bounds each wait for bytes. One timer looks after that, and it is set again when it goes off
    and not at each read: on uvloop a timer per read costs more than the translation. What comes while it is
    waited for is given away in the callback in which it arrived, or in its turn: a task that is woken for it
    costs more, too.
    """

    __slots__ = (
        "_body",
        "_content",
        "_failure",
        "_idle",
        "_loop",
        "_name",
        "_piece",
        "_take",
        "_taken",
        "_timer",
        "_waiting_since",
        "_woken",
        "losses",
    )

    def __init__(self, name: str, answer: Answer, idle: float, losses: str) -> None:
        self.losses = losses
        self._name = name
        self._content = content = answer.content
        # what is recorded, or comes of a recording, is read by a task
        self._body = content if isinstance(content, Body) else None
        self._piece = _FIRST
        self._take: Take | None = None
        self._taken = False
        self._woken: asyncio.Future[None] | None = None
        self._idle = idle
        self._failure: UpstreamError | None = None
        self._waiting_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(idle, self._look)

    async def read(self, take: Take | None = None) -> bytes:
        if self._failure is not None:
            raise self._failure
        self._waiting_since = self._loop.time()
        try:
            body = self._body
            if body is None:
                return await self._content.readany()
            if take is not None:
                if data := body.read_nowait(PIECE):
                    await body.turns.come()
                    return data
                if await self._given_away(take, body):
                    return b""
            piece, self._piece = self._piece, PIECE
            return await body.read(piece)
        except FAILURES as error:
            self._failure = self._as_error(error)
            raise self._failure from error
        finally:
            self._waiting_since = None

    async def _given_away(self, take: Take, body: Body) -> bool:
        """Wait until `take` wants no more, and whether that is why the wait is over; else there is an end,
        or a failure."""
        if body.is_over:
            return False
        self._take, self._taken = take, False
        self._woken = self._loop.create_future()
        body.came = self._give_away
        try:
            await self._woken
        finally:
            body.came = self._woken = self._take = None
        return self._taken

    def _give_away(self, size: int) -> None:
        """So many bytes have come, or nothing more will."""
        body = self._body
        if body is None or self._take is None:
            return
        body.came = None  # what comes meanwhile comes behind this, and is not for one that wants no more
        if size and body.turns.must_wait(size):
            self._wait_for_turn(body, size)
        else:
            self._give_pieces()

    def _wait_for_turn(self, body: Body, size: int) -> None:
        self._waiting_since = None  # it is not the upstream that is waited for
        body.turns.wait(size, self._give_pieces)

    def _give_pieces(self) -> None:
        """Give away what is there, as far as this pass allows it."""
        body, take = self._body, self._take
        if body is None or take is None:
            return  # it was cancelled while it waited for its turn
        while data := body.read_nowait(PIECE):
            self._waiting_since = self._loop.time()
            if not take(data):
                self._taken = True
                break
            if len(data) == PIECE and body.turns.must_wait(PIECE):
                self._wait_for_turn(body, PIECE)
                return
        if self._taken or body.is_over:
            self._wake()
        else:
            body.came = self._give_away

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        """Whether the upstream has been waited for too long; time spent on a slow client does not count."""
        now = self._loop.time()
        waited = 0.0 if self._waiting_since is None else now - self._waiting_since
        if waited >= self._idle:
            self._content.set_exception(TimeoutError())
            self._wake()
        else:
            self._timer = self._loop.call_later(self._idle - waited, self._look)

    def _as_error(self, error: BaseException) -> UpstreamError:
        if isinstance(error, TimeoutError):
            silent = f"the {called(self._name)} went silent"
            return UpstreamError(504, silent, code=UpstreamError.TIMEOUT, cause="it went silent")
        lost = f"the connection to the {called(self._name)} was lost ({type(error).__name__})"
        return UpstreamError(
            502, lost, code=UpstreamError.DISCONNECTED, cause=f"the connection was lost: {cause_of(error)}"
        )
