"""Law S8: what there may be at once, whose turn it is, and how the server stops taking requests.

Four things are counted: responses being made (runs), background runs that wait for their turn, readers of
stored responses, and open WebSockets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Final

from openresponses_server.errors import shutting_down
from openresponses_server.limits.shares import Share
from openresponses_server.settings import Limits

_PUT_OFF: Final = 0.5  # seconds until a waiting run asks the other workers again


def _nothing(_seconds: float) -> None:
    return None


_PLACED: Final = nullcontext()


class Gate:
    """Counts what there is at once, lets background runs wait for their turn, and closes when the server
    stops."""

    def __init__(self, limits: Limits) -> None:
        self.runs = Share(
            "responses being made",
            "too_many_concurrent_requests",
            limits.concurrent,
            limits.concurrent_per_key,
        )
        self.waiting = Share(
            "background responses waiting",
            "too_many_background_requests",
            limits.background,
            limits.background_per_key,
        )
        self.readers = Share(
            "readers of stored responses", "too_many_readers", limits.readers, limits.readers_per_key
        )
        self.sockets = Share("open WebSockets", "too_many_websockets", limits.sockets, limits.sockets_per_key)
        self.shares = {"runs": self.runs, "readers": self.readers, "sockets": self.sockets}
        """Those whose limit per key counts over all workers; waiting runs are counted in the store."""
        self.waited: Callable[[float], None] = _nothing
        """Called with how many seconds a background run has waited for its place."""
        self._deadlines: set[asyncio.Timeout] = set()
        self._line: dict[str, dict[asyncio.Future[None], None]] = {}
        self._leavers: set[Callable[[], None]] = set()
        self.leaving = False
        """The server is to leave: what has begun is finished, and nothing is taken up."""
        self.closing = False
        """Requests are refused."""
        self.cut = asyncio.Event()
        """What still ran at the end of the time for that is cut off."""

    @property
    def running(self) -> int:
        """How many responses are being made."""
        return self.runs.count

    def place(self, owner: str, *, waits: bool, held: bool = False) -> AbstractAsyncContextManager[None]:
        """The right to make one more response of this owner. One that `waits` gets it when there is a place
        and its turn has come, and none once the rest is cut off. Raises HttpError 429 to one that does not
        wait. With `held` it is one of `places`."""
        if held:
            return _PLACED
        return self._turned(owner) if waits else self.runs.shared(owner, 1, self._call)

    def places(self, owner: str, count: int) -> AbstractAsyncContextManager[None]:
        """The right to make so many responses of this owner at once. Raises HttpError 429 when there is not
        room for all of them."""
        return self.runs.shared(owner, count, self._call)

    @asynccontextmanager
    async def _turned(self, owner: str) -> AsyncIterator[None]:
        await self._turn_of_all(owner)
        try:
            yield
        finally:
            self._leave(owner)

    def ends(self, deadline: asyncio.Timeout) -> None:
        """Something runs that ends at once when this deadline is moved, which `cut_off` does."""
        self._deadlines.add(deadline)

    def ends_no_more(self, deadline: asyncio.Timeout) -> None:
        """It has ended."""
        self._deadlines.discard(deadline)

    @contextmanager
    def on_leaving(self, call: Callable[[], None]) -> Iterator[None]:
        """While this lasts, `call` is called when the server is to leave, and at once when it is already."""
        self._leavers.add(call)
        try:
            if self.leaving:
                call()
            yield
        finally:
            self._leavers.discard(call)

    def leave(self) -> None:
        """The server is to leave. Requests on connections that are there are answered still."""
        self.leaving = True
        for call in list(self._leavers):
            call()

    def close(self) -> None:
        """The same, and requests are refused."""
        self.closing = True
        self.leave()

    def cut_off(self) -> None:
        """End what still runs."""
        self.cut.set()
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            deadline.reschedule(now)

    def check_open(self) -> None:
        """Raises HttpError 503 when the server stops."""
        if self.closing:
            raise shutting_down()

    async def _turn_of_all(self, owner: str) -> None:
        """Take a place when there is one here and the other workers agree; while they have all that this
        owner may have, its runs wait and are not asked for one by one."""
        since = time.monotonic()
        await self._turn(owner)
        while True:
            try:
                agreed = await self.runs.agreed(owner)
            except BaseException:
                self._leave(owner)
                raise
            if agreed:
                self.waited(time.monotonic() - since)
                return
            self.runs.put_off(owner)
            asyncio.get_running_loop().call_later(_PUT_OFF, self._resume, owner)
            self._leave(owner)
            await self._turn(owner, first=True)

    async def _turn(self, owner: str, *, first: bool = False) -> None:
        """Take a place, behind those of the same owner who wait already, or as the `first` of them."""
        if self.runs.has_room(owner) and not self.cut.is_set():
            self.runs.take(owner)
            return
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._line[owner] = {called: None, **self._line.get(owner, {})}
        else:
            self._line.setdefault(owner, {})[called] = None
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():  # its turn came in the same moment
                self._leave(owner)
            else:
                self._drop(owner, called)
            raise

    def _resume(self, owner: str) -> None:
        self.runs.resume(owner)
        self._call()

    def _leave(self, owner: str) -> None:
        self.runs.give_back(owner)
        self._call()

    def _call(self) -> None:
        """Give free places to the waiting runs: to one owner after the other, so that a long line of one
        owner does not hold up the others."""
        while self._line and not self.cut.is_set() and not self.runs.full:
            owner = next(filter(self.runs.has_room, self._line), None)
            if owner is None:
                return
            called = next(iter(self._line[owner]))
            self._drop(owner, called)
            self.runs.take(owner)
            called.set_result(None)

    def _drop(self, owner: str, called: asyncio.Future[None]) -> None:
        """Out of the line; the owner's others stand behind all other owners."""
        waiting = self._line.pop(owner)
        del waiting[called]
        if waiting:
            self._line[owner] = waiting
