"""The client that reads while its response is made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event

_TIMEOUT: Final = 2.0  # seconds that the run of a stored response waits for a client that takes nothing


class Batch(Struct, frozen=True):
    """Events that are sent together, and their server-sent form if it was already made to be stored. `last`:
    the response ends with them."""

    events: list[Event]
    frames: bytes | None = None
    last: bool = False


Deliver = Callable[[Batch], Awaitable[None] | None]
"""Sends events to the client. Returns None if they were sent and the client can take more; otherwise an
awaitable that ends when it can. If that is closed before it ends, nothing was sent."""


class Client(Struct, eq=False):
    """The reader of one run."""

    may_leave: bool
    """True if the run continues when its client disconnects."""
    deliver: Deliver | None = None
    """None when there is no client, or no more."""
    has_sent: bool = False
    """True once something was sent: failures are then reported by events."""
    last_sent: int = -1
    """The number of the last event that was sent."""
    behind: asyncio.Future[None] | None = None
    """Done when the run goes on without a client that has fallen behind; None when the run waits for it."""

    def attach(self, deliver: Deliver, *, may_fall_behind: bool = False) -> None:
        """Send what follows to this client. With `may_fall_behind`, a client that is too slow reads the rest
        elsewhere; a delivery to it that is cancelled has sent nothing."""
        self.deliver = deliver
        if may_fall_behind and self.may_leave:
            self.behind = asyncio.get_running_loop().create_future()

    def detach(self) -> None:
        """The client has left: discard what follows."""
        self.deliver = None

    @property
    def is_behind(self) -> bool:
        """True if the client took nothing for so long that the run continues without it."""
        return self.behind is not None and self.behind.done()

    async def wait(self, task: asyncio.Task[None]) -> None:
        """Wait until the run has ended, or continues without this client. Raises what the run raises until
        then."""
        if self.behind is not None:
            await asyncio.wait((task, self.behind), return_when=asyncio.FIRST_COMPLETED)
        if not self.is_behind:
            await asyncio.shield(task)

    async def drain(self, rest: Awaitable[None], batch: Batch) -> None:
        """Wait until these events are sent and the client can take more."""
        try:
            async with asyncio.timeout(None if self.behind is None else _TIMEOUT) as timeout:
                await rest
            self.last_sent = batch.events[-1].sequence_number
        except BridgeError:
            raise
        except Exception:
            if timeout.expired() and self.behind is not None:
                self.detach()
                self.behind.set_result(None)
            elif self.may_leave:
                self.detach()
            else:
                raise

    async def send_last(self, batch: Batch, seconds: float) -> None:
        """Send the last events. A client that takes nothing for `seconds` is detached, since it would keep
        its run from ending."""
        self.has_sent = True
        if self.deliver is None:
            return
        try:
            rest = self.deliver(batch)
        except Exception as error:
            rest = failing(error)
        if rest is None:
            self.last_sent = batch.events[-1].sequence_number
            return
        try:
            async with asyncio.timeout(seconds):
                await self.drain(rest, batch)
        except TimeoutError:
            self.detach()


async def failing(error: Exception) -> None:
    """Raise the error that the request failed with."""
    raise error


def drop(work: Awaitable[Any]) -> None:
    """Drop work that is no longer awaited, whether it was begun or not."""
    if isinstance(work, asyncio.Future):
        return
    work.close()  # type: ignore[attr-defined]
