"""The way out of a run: what it makes is kept, where it is kept, and then delivered, batch after batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import Struct

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.events import Event
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer

# A coroutine begun where there is no task: in a callback of the event loop.
#
# Most of what a read brings can be passed on without waiting for anything. That is done in the callback in
# which it arrived, and no task is woken for it; what does have to wait is waited for by the run's task.


class Rest:
    """What is left of a coroutine that was begun. It is awaited once, or closed."""

    __slots__ = ("_coroutine", "_error", "_waits_for")

    def __init__(
        self, coroutine: Coroutine[Any, Any, object], waits_for: Any, error: BaseException | None = None
    ) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for
        self._error = error

    def __await__(self) -> Generator[Any, Any, None]:
        if self._error is not None:
            raise self._error
        waits_for = self._waits_for
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:
                # cancelled while it waits
                thrown: BaseException | None = error
            else:
                thrown = None
            try:
                waits_for = self._coroutine.send(sent) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration:
                return

    def close(self) -> None:
        """Break it off where it waits."""
        self._coroutine.close()


def begin(coroutine: Coroutine[Any, Any, object]) -> Rest | None:
    """Run it until it waits or ends; None when it has ended. What it raises is raised by the rest."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None
    except BaseException as error:
        return Rest(coroutine, None, error)
    return Rest(coroutine, waits_for)


# The client of one run: what it was sent, and what it has still to be sent.

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


# One delivery after the other, where some are made without waiting.


class Order:
    """A lock whose holders come in the order in which they ask. It is `free` when nobody has it and nobody
    waits for it: it goes from one holder to the next without becoming free in between."""

    __slots__ = ("_waiting", "free")

    def __init__(self) -> None:
        self.free = True
        self._waiting: deque[asyncio.Future[None]] | None = None  # a deque takes 0.7 KB, and few need one

    def take(self) -> None:
        """Have it; it is free."""
        self.free = False

    def release(self) -> None:
        """Give it to the next one, or nobody."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free = True

    async def come(self) -> None:
        """Have it, behind those who have asked for it before."""
        if self.free:
            self.free = False
            return
        turn = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()  # it had just come
            else:
                turn.cancel()
            raise

    async def __aenter__(self) -> None:
        await self.come()

    async def __aexit__(self, *_: object) -> None:
        self.release()


T = TypeVar("T")

Settle = Callable[[Event | None], None]
"""How a run ended is known and, if it is stored, durable; with the event that is sent in the place of its
last one, when that could not be stored."""

Later = Callable[[Rest | None], None]
"""Called when a batch that was under way has left, or with what is left of it."""


class Outlet:
    """Of one run, to `client`; without `keeping` nothing is stored."""

    def __init__(self, client: Client, keeping: ResponseSessionPersistenceTransformer | None) -> None:
        self._client = client
        self._keeping = keeping
        self._order = Order()
        self._left: list[Event] = []
        self.storing = False
        """It is the store that is waited for."""
        self.under_way = False
        """A batch leaves by itself when the log has it."""

    @property
    def is_taken(self) -> bool:
        """A batch is on its way."""
        return not self._order.free

    @property
    def flows(self) -> bool:
        """What is passed on now waits for the client and the log alone, and may begin to where there is no
        task."""
        return (
            self._order.free
            and self._client.begins_anywhere
            and (self._keeping is None or self._keeping.flows)
        )

    def pass_on(self, events: list[Event], later: Later | None = None) -> Rest | None:
        """Keep and deliver these: None when that is done, or what is left of it, to be awaited. Where there
        is no task this is called while it `flows`, with `later`, for a batch that gets `under_way`; what
        is left is for `finish` then."""
        if not self._order.free:
            return begin(self._pass_in_turn(events))
        batch = Batch(events)
        if self._keeping is not None:
            kept = self._kept(self._keeping, events)
            batch = Batch(events, self._keeping.batch.data)
            if kept is not None:
                return self._wait_for_keeping(kept, batch, later)
        rest = self._client.hand_over(batch)
        if rest is None:
            return None
        self._order.take()
        return begin(self._wait_for(rest, batch))

    async def finish(self, rest: Rest) -> None:
        """Wait for what was left where there was no task."""
        self._client.wait_here()
        await rest

    async def pass_last(self, events: list[Event], seconds: float, settle: Settle) -> None:
        """Law S1: the end is durable before it is sent, or a failure is sent in its place. What an
        interruption kept from the client goes with it. The client may take `seconds` for it."""
        async with self._order:
            given = [*self._left, *events] if self._left else events
            batch = Batch(given, last=True)
            if self._keeping is not None:
                kept = await self._while_storing(self._keeping.take(given))
                batch = Batch(kept, self._keeping.batch.data, last=True)
            settle(batch.events[-1] if batch.events is not given else None)
            await self._client.send_last(batch, seconds)

    def _kept(
        self, keeping: ResponseSessionPersistenceTransformer, events: list[Event]
    ) -> Awaitable[None] | None:
        """What is to be awaited before they may leave, if anything."""
        try:
            return keeping.keep(events)
        except Exception as error:
            return failing(error)  # in the task of the run

    def _wait_for_keeping(self, kept: Awaitable[None], batch: Batch, later: Later | None) -> Rest | None:
        self._order.take()
        if later is None or not isinstance(kept, asyncio.Future):
            return begin(self._send_when(kept, batch))
        self.under_way = True
        kept.add_done_callback(partial(self._leave, batch, later))
        return None

    def _leave(self, batch: Batch, later: Later, _kept: asyncio.Future[None]) -> None:
        self.under_way = False
        rest = self._client.hand_over(batch)
        if rest is None:
            self._order.release()
            later(None)
        else:
            later(begin(self._wait_for(rest, batch)))

    async def _pass_in_turn(self, events: list[Event]) -> None:
        try:
            await self._order.come()
        except BaseException:
            self._left += events  # nothing of them was kept or sent
            raise
        kept = None if self._keeping is None else self._kept(self._keeping, events)
        batch = Batch(events, None if self._keeping is None else self._keeping.batch.data)
        await self._send_when(kept, batch)

    async def _send_when(self, kept: Awaitable[None] | None, batch: Batch) -> None:
        try:
            self._client.set_unsent(batch.events)
            if kept is not None:
                await self._while_storing(kept)
            await self._client.send(batch)
        finally:
            self._order.release()

    async def _wait_for(self, rest: Awaitable[None], batch: Batch) -> None:
        try:
            self._client.set_unsent(batch.events)
            await self._client.wait_for(rest, batch)
        finally:
            self._order.release()

    async def _while_storing(self, kept: Awaitable[T]) -> T:
        self.storing = True
        try:
            return await kept
        finally:
            self.storing = False
