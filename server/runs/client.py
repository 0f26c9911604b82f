"""The client of one run: what it was sent, and what it has still to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from bridge.errors import BridgeError
from bridge.protocol.codec import encode_sse
from bridge.protocol.events import Event


class Batch(Struct, frozen=True):
    """Events that leave together, and their server-sent form where it was made already, to be stored."""

    events: list[Event]
    frames: bytes | None = None

    def encoded(self) -> bytes:
        """The events as server-sent ones."""
        return encode_sse(self.events) if self.frames is None else self.frames


Deliver = Callable[[Batch], Awaitable[None]]
"""Hands events to the client; returns when it can take more."""


async def _discard(_batch: Batch) -> None:
    return None


class Client:
    """The client that reads while the response is made. With `may_leave` the run goes on without it."""

    def __init__(self, *, may_leave: bool) -> None:
        self._may_leave = may_leave
        self._deliver: Deliver = _discard
        self._unsent: list[Event] = []
        self.has_sent = False
        """Something has been sent, so that a failure is reported by events from now on."""
        self.sent_at = anyio.current_time()
        """When something was last sent, on the event loop's clock."""

    def attach(self, deliver: Deliver) -> None:
        """Send what follows to this client."""
        self._deliver = deliver

    def detach(self) -> None:
        """The client has left: discard what follows."""
        self._deliver = _discard

    def set_unsent(self, events: list[Event]) -> None:
        """Events to send even when an interruption comes before `send`."""
        self._unsent = events

    async def send(self, batch: Batch) -> None:
        """Hand over events that `set_unsent` was given."""
        self.sent_at = anyio.current_time()
        self.has_sent = True
        try:
            await self._deliver(batch)
        except BridgeError:
            raise
        except Exception:
            if not self._may_leave:
                raise
            self.detach()
        self._unsent = []

    async def send_last(self, batch: Batch, seconds: float) -> None:
        """Send the last events, after those that an interruption kept from the client. A client that takes
        nothing for `seconds` is detached: it would hold its run for ever."""
        try:
            async with asyncio.timeout(seconds):
                await self.send(Batch([*self._unsent, *batch.events]) if self._unsent else batch)
        except TimeoutError:
            self.detach()
