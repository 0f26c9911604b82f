"""Turns at the event loop, for answers of which much has come at once.

What an upstream has sent is translated where it arrives. When many send as fast as they can, all that has
arrived between two looks at the sockets would be translated in one go, and a request that begins meanwhile
would wait for that at each of its steps. So what one pass of the loop spends on it is bounded: what comes
later has its turn in one of the next passes, a few tokens before many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final

PIECE: Final = 32 * 1024
"""Bytes that one turn takes at most: about half a millisecond's work."""

_FEW: Final = 2 * 1024  # bytes up to which they are a few tokens
_UNNOTICED: Final = (
    16  # answers with a few tokens after which a pass is looked at, which costs more than they do
)
_SHARE: Final = 0.001  # seconds of one pass

Turn = Callable[[], None]


class Turns:
    """Those of the event loop in which this is made. A pass is noticed by a callback that belongs to the next
    one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._few: deque[Turn] = deque()
        self._many: deque[Turn] = deque()
        self._unnoticed = 0
        self._began = 0.0  # when this pass was noticed
        self._noticed = False

    def must_wait(self, size: int) -> bool:
        """Whether so many bytes that have come are for a later pass."""
        if size <= _FEW and not self._noticed:
            self._unnoticed += 1
            if self._unnoticed < _UNNOTICED:
                return False
        elif size > _FEW and self._many:
            return True  # others have waited longer
        self._notice()
        return self._is_over()

    def wait(self, size: int, turn: Turn) -> None:
        """Have `turn` called in a later pass. It takes a piece, and waits again for what is left."""
        (self._many if size > _FEW else self._few).append(turn)
        self._notice()

    async def come(self) -> None:
        """Wait for the turn of a piece, if it must wait."""
        must_wait = self.must_wait(PIECE)
        while must_wait:
            turn = self._loop.create_future()
            self.wait(PIECE, partial(_come, turn))
            await turn
            # Tasks that were woken in one pass run in the next, one after the other.
            self._notice()
            must_wait = self._is_over()

    def _notice(self) -> None:
        if not self._noticed:
            self._noticed = True
            self._began = perf_counter()
            self._loop.call_soon(self._next)

    def _is_over(self) -> bool:
        """This pass has spent its share."""
        return perf_counter() - self._began > _SHARE

    def _next(self) -> None:
        """The next pass: a few tokens of each, then of many tokens one piece at least."""
        self._noticed, self._unnoticed = False, 0
        if not self._few and not self._many:
            return
        self._notice()
        for _ in range(len(self._few)):
            if self._is_over():
                break
            self._few.popleft()()
        for number in range(len(self._many)):
            if number and self._is_over():
                break
            self._many.popleft()()


def _come(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
