"""The client of one run: what it was sent, and what it has still to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.events import Event
from openresponses_server.runs.eager import begin

_PATIENCE: Final = 2.0  # seconds that the run of a stored response waits for a client that takes nothing


class Batch(Struct, frozen=True):
    """Events that leave together, and their server-sent form where it was made already, to be stored. `last`:
    the response ends with them."""

    events: list[Event]
    frames: bytes | None = None
    last: bool = False

    def encoded(self) -> bytes:
        """The events as server-sent ones."""
        return encode_sse(self.events) if self.frames is None else self.frames


Deliver = Callable[[Batch], Awaitable[None] | None]
"""Hands events to the client. What it returns is awaited until the client can take more; None: it has these,
and can take more."""


def _discard(_batch: Batch) -> None:
    return None


async def failing(error: Exception) -> None:
    """What fails when it is awaited."""
    raise error


class Client:
    """The client that reads while the response is made. With `may_leave` the run goes on without it."""

    def __init__(self, *, may_leave: bool) -> None:
        self._may_leave = may_leave
        self._deliver: Deliver = _discard
        self._unsent: list[Event] = []
        self.begins_anywhere = True
        """A delivery needs no task to begin in."""
        self.has_sent = False
        """Something has been sent, so that a failure is reported by events from now on."""
        self._loop = asyncio.get_running_loop()
        self._waits_since = 0.0
        self.last_sent = -1
        """The number of the last event that was handed over."""
        self._behind: asyncio.Future[None] | None = None  # none when the run waits for it
        self._timer: asyncio.TimerHandle | None = None
        self._taker: asyncio.Task[Any] | None = None
        self._cancelling: int | None = None

    def attach(self, deliver: Deliver, *, may_fall_behind: bool = False, anywhere: bool = False) -> None:
        """Send what follows to this client. One that `may_fall_behind` reads the rest elsewhere; a delivery
        to it that is cancelled has delivered nothing. `anywhere`: a delivery may be begun in a callback of
        the event loop, where there is no task."""
        self._deliver = deliver
        self.begins_anywhere = anywhere
        if may_fall_behind and self._may_leave:
            self._behind = asyncio.get_running_loop().create_future()
            self._look_later()

    def detach(self) -> None:
        """The client has left: discard what follows."""
        self._deliver = _discard
        self.begins_anywhere = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def is_behind(self) -> bool:
        """It took nothing for so long that the run goes on without it."""
        return self._behind is not None and self._behind.done()

    async def wait(self, made: asyncio.Task[None]) -> None:
        """Until the run is made, or goes on without this client. Raises what the run does, until then."""
        if self._behind is not None:
            await asyncio.wait((made, self._behind), return_when=asyncio.FIRST_COMPLETED)
        if not self.is_behind:
            await asyncio.shield(made)

    def set_unsent(self, events: list[Event]) -> None:
        """Events to send even when an interruption comes before `send`."""
        self._unsent = events

    def wait_here(self) -> None:
        """It is this task that waits for the delivery, no task where it is only begun."""
        self._taker = asyncio.current_task()
        self._waits_since = self._loop.time()

    def hand_over(self, batch: Batch) -> Awaitable[None] | None:
        """Hand over events; what is left of that, for `wait_for`, unless the client has them already."""
        deliver = self._deliver
        self.has_sent = True
        if deliver is _discard:
            return None
        try:
            rest = deliver(batch)
        except Exception as error:
            return failing(error)
        if rest is None:
            self.last_sent = batch.events[-1].sequence_number
        return rest

    async def send(self, batch: Batch) -> None:
        """Hand over events that `set_unsent` was given."""
        rest = self.hand_over(batch)
        if rest is None:
            self._unsent = []
        else:
            await self.wait_for(rest, batch)

    async def wait_for(self, rest: Awaitable[None], batch: Batch) -> None:
        """The rest of handing over these, which `set_unsent` was given."""
        if self._behind is not None:
            self.wait_here()
        try:
            await rest
            self.last_sent = batch.events[-1].sequence_number
        except BridgeError:
            raise
        except asyncio.CancelledError:
            if not self._fell_behind():
                raise
        except Exception:
            if not self._may_leave:
                raise
            self.detach()
        finally:
            self._taker = None
        self._unsent = []

    async def send_last(self, batch: Batch, seconds: float) -> None:
        """Send the last events, after those that an interruption kept from the client. A client that takes
        nothing for `seconds` is detached: it would hold its run for ever."""
        if self._unsent:
            batch = Batch([*self._unsent, *batch.events], last=True)
        rest = self.hand_over(batch)
        waiting = None if rest is None else begin(self.wait_for(rest, batch))
        if waiting is None:  # as almost always, so that no timer is set
            self._unsent = []
            return
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            self.detach()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE / 2, self._look)

    def _look(self) -> None:
        """Break a delivery off that takes too long. One timer that looks now and then costs less than one for
        each delivery."""
        if self._taker is not None and self._loop.time() - self._waits_since >= _PATIENCE:
            self._cancelling = self._taker.cancelling()
            self._taker.cancel()
        else:
            self._look_later()

    def _fell_behind(self) -> bool:
        """Whether a delivery was cancelled for that, and for nothing else."""
        if self._cancelling is None or self._taker is None or self._behind is None:
            return False
        self.detach()
        if not self._behind.done():
            self._behind.set_result(None)
        return self._taker.uncancel() <= self._cancelling
