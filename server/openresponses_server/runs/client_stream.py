"""The output of a run: each batch of events is stored, if the response is, and then sent to the client."""

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

# Coroutines that are started in a callback of the event loop, without a task.
#
# Most batches can be sent without waiting. They are sent in the callback in which their bytes arrived, and no
# task is woken. If a batch has to wait, the run's task awaits the suspended coroutine.


class SuspendedCoroutine:
    """A coroutine that has been started and waits for something. Await it once, or close it."""

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
                # the task was cancelled
                thrown: BaseException | None = error
            else:
                thrown = None
            try:
                waits_for = self._coroutine.send(sent) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration:
                return

    def close(self) -> None:
        """Close the coroutine without awaiting it."""
        self._coroutine.close()


def start_eagerly(coroutine: Coroutine[Any, Any, object]) -> SuspendedCoroutine | None:
    """Run the coroutine until it has to wait. None if it has ended; an exception is raised by whoever awaits
    the result."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None
    except BaseException as error:
        return SuspendedCoroutine(coroutine, None, error)
    return SuspendedCoroutine(coroutine, waits_for)


# The client of one run.

_PATIENCE: Final = 2.0  # seconds that the run of a stored response waits for a client that does not read


class Batch(Struct, frozen=True):
    """Events that are sent together."""

    events: list[Event]
    frames: bytes | None = None
    """The events as server-sent events, if they have been encoded already to be stored."""
    last: bool = False
    """The response ends with these events."""

    def encoded(self) -> bytes:
        """The batch as server-sent events."""
        return encode_sse(self.events) if self.frames is None else self.frames


Deliver = Callable[[Batch], Awaitable[None] | None]
"""Sends a batch to the client. Returns None if the client can be sent the next one now, else what to await
first."""


def _discard(_batch: Batch) -> None:
    return None


async def failing(error: Exception) -> None:
    """Raise this error when awaited."""
    raise error


class Client:
    """The client that is sent the response while it is being made. If it `may_leave`, the run goes on without
    it."""

    def __init__(self, *, may_leave: bool) -> None:
        self._may_leave = may_leave
        self._deliver: Deliver = _discard
        self._unsent: list[Event] = []
        self.can_send_from_callback = True
        """`write` may be called in a callback of the event loop, where there is no task."""
        self.has_sent = False
        """Something has been sent: a failure has to be reported by events."""
        self._loop = asyncio.get_running_loop()
        self._sending_since = 0.0
        self.last_sent = -1
        """The sequence number of the last event that was sent."""
        self._behind: asyncio.Future[None] | None = None  # None when the run waits however slow the client is
        self._timer: asyncio.TimerHandle | None = None
        self._sending_task: asyncio.Task[Any] | None = None
        self._cancel_requests: int | None = None

    def attach(self, deliver: Deliver, *, may_fall_behind: bool = False, from_callback: bool = False) -> None:
        """Send the following batches with `deliver`. With `may_fall_behind` the run stops waiting for a
        client that is too slow, which reads the rest from the store; a cancelled `deliver` must have sent
        nothing. `from_callback`: `deliver` may be called in a callback of the event loop, where there is no
        task."""
        self._deliver = deliver
        self.can_send_from_callback = from_callback
        if may_fall_behind and self._may_leave:
            self._behind = asyncio.get_running_loop().create_future()
            self._schedule_check()

    def detach(self) -> None:
        """The client has left: discard the following batches."""
        self._deliver = _discard
        self.can_send_from_callback = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def is_behind(self) -> bool:
        """The client did not read for so long that the run goes on without it."""
        return self._behind is not None and self._behind.done()

    async def wait(self, made: asyncio.Task[None]) -> None:
        """Wait until the run has ended or goes on without this client. Raises what the run raises until
        then."""
        if self._behind is not None:
            await asyncio.wait((made, self._behind), return_when=asyncio.FIRST_COMPLETED)
        if not self.is_behind:
            await asyncio.shield(made)

    def set_unsent(self, events: list[Event]) -> None:
        """Have these events sent with the last batch if an interruption comes before `send`."""
        self._unsent = events

    def set_sending_task(self) -> None:
        """The current task waits for the client: it is the one to cancel when the client is too slow."""
        self._sending_task = asyncio.current_task()
        self._sending_since = self._loop.time()

    def write(self, batch: Batch) -> Awaitable[None] | None:
        """Send a batch. Returns None if the client can be sent the next one now, else what `drain` awaits."""
        deliver = self._deliver
        self.has_sent = True
        if deliver is _discard:
            return None
        try:
            pending = deliver(batch)
        except Exception as error:
            return failing(error)
        if pending is None:
            self.last_sent = batch.events[-1].sequence_number
        return pending

    async def send(self, batch: Batch) -> None:
        """Send the events that were given to `set_unsent`, and wait until the client can be sent more."""
        pending = self.write(batch)
        if pending is None:
            self._unsent = []
        else:
            await self.drain(pending, batch)

    async def drain(self, pending: Awaitable[None], batch: Batch) -> None:
        """Wait until the client has been sent this batch, whose events were given to `set_unsent`."""
        if self._behind is not None:
            self.set_sending_task()
        try:
            await pending
            self.last_sent = batch.events[-1].sequence_number
        except BridgeError:
            raise
        except asyncio.CancelledError:
            if not self._cancelled_as_slow():
                raise
        except Exception:
            if not self._may_leave:
                raise
            self.detach()
        finally:
            self._sending_task = None
        self._unsent = []

    async def send_last(self, batch: Batch, seconds: float) -> None:
        """Send the last batch, with the unsent events before it. A client that does not read for `seconds` is
        detached, so that the run can end."""
        if self._unsent:
            batch = Batch([*self._unsent, *batch.events], last=True)
        pending = self.write(batch)
        waiting = None if pending is None else start_eagerly(self.drain(pending, batch))
        if waiting is None:  # the usual case: no timer is needed
            self._unsent = []
            return
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            self.detach()

    def _schedule_check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE / 2, self._check_patience)

    def _check_patience(self) -> None:
        """Cancel the task that waits for the client if it has waited too long. One timer that checks now and
        then costs less than one for each batch."""
        if self._sending_task is not None and self._loop.time() - self._sending_since >= _PATIENCE:
            self._cancel_requests = self._sending_task.cancelling()
            self._sending_task.cancel()
        else:
            self._schedule_check()

    def _cancelled_as_slow(self) -> bool:
        """Whether the task was cancelled because the client is too slow, and for no other reason."""
        if self._cancel_requests is None or self._sending_task is None or self._behind is None:
            return False
        self.detach()
        if not self._behind.done():
            self._behind.set_result(None)
        return self._sending_task.uncancel() <= self._cancel_requests


# Batches are sent one after the other, some of them without waiting.


class FifoLock:
    """A lock that is acquired in the order of asking, without waiting if it is `free`. It passes from one
    holder to the next waiter without becoming free in between."""

    __slots__ = ("_waiters", "free")

    def __init__(self) -> None:
        self.free = True
        self._waiters: deque[asyncio.Future[None]] | None = (
            None  # a deque takes 0.7 KB, and few locks need one
        )

    def acquire_nowait(self) -> None:
        """Acquire the lock, which is free."""
        self.free = False

    def release(self) -> None:
        """Pass the lock to the next waiter, if there is one."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.free = True

    async def acquire(self) -> None:
        """Acquire the lock, after those who asked before."""
        if self.free:
            self.free = False
            return
        waiter = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = deque()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.release()  # it was acquired just before the cancellation
            else:
                waiter.cancel()
            raise

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()


T = TypeVar("T")

OnEnd = Callable[[Event | None], None]
"""Called when the end of a run is known and, if the response is stored, durable; with the event that replaces
the last one if that could not be stored."""

OnSent = Callable[[SuspendedCoroutine | None], None]
"""Called with None when a batch that waited for the event log has been sent, else with what to await for it.
"""


class ClientStream:
    """Stores the batches of one run with `persistence`, if it is given, and sends them to `client`."""

    def __init__(self, client: Client, persistence: ResponseSessionPersistenceTransformer | None) -> None:
        self._client = client
        self._persistence = persistence
        self._lock = FifoLock()
        self._left: list[Event] = []
        self.storing = False
        """The run waits for the store."""
        self.waits_for_log = False
        """A batch is sent as soon as the event log has it."""

    @property
    def busy(self) -> bool:
        """A batch is being stored or sent."""
        return not self._lock.free

    @property
    def can_send_now(self) -> bool:
        """`send` may be called in a callback of the event loop: a batch would wait for nothing but the client
        and the event log."""
        return (
            self._lock.free
            and self._client.can_send_from_callback
            and (self._persistence is None or self._persistence.can_send_now)
        )

    def send(self, events: list[Event], on_sent: OnSent | None = None) -> SuspendedCoroutine | None:
        """Store and send these events. Returns None if that is done, else what to await.

        In a callback of the event loop, call it only if `can_send_now`, with `on_sent`; if it returns None
        and `waits_for_log` is set, `on_sent` is called later. What it returns then is for `drain`."""
        if not self._lock.free:
            return start_eagerly(self._send_in_order(events))
        batch = Batch(events)
        if self._persistence is not None:
            kept = self._persist(self._persistence, events)
            batch = Batch(events, self._persistence.batch.data)
            if kept is not None:
                return self._send_when_persisted(kept, batch, on_sent)
        pending = self._client.write(batch)
        if pending is None:
            return None
        self._lock.acquire_nowait()
        return start_eagerly(self._drain(pending, batch))

    async def drain(self, pending: SuspendedCoroutine) -> None:
        """Wait for a batch that was sent in a callback of the event loop."""
        self._client.set_sending_task()
        await pending

    async def send_last(self, events: list[Event], seconds: float, on_end: OnEnd) -> None:
        """Law S1: the end is durable before it is sent, or a failure is sent in its place. Events that an
        interruption kept from the client are sent with it. The client has `seconds` to read it."""
        async with self._lock:
            given = [*self._left, *events] if self._left else events
            batch = Batch(given, last=True)
            if self._persistence is not None:
                kept = await self._while_storing(self._persistence.persist(given))
                batch = Batch(kept, self._persistence.batch.data, last=True)
            on_end(batch.events[-1] if batch.events is not given else None)
            await self._client.send_last(batch, seconds)

    def _persist(
        self, persistence: ResponseSessionPersistenceTransformer, events: list[Event]
    ) -> Awaitable[None] | None:
        """What to await before these events may be sent, if anything."""
        try:
            return persistence.append(events)
        except Exception as error:
            return failing(error)  # to be raised in the task of the run

    def _send_when_persisted(
        self, kept: Awaitable[None], batch: Batch, on_sent: OnSent | None
    ) -> SuspendedCoroutine | None:
        self._lock.acquire_nowait()
        if on_sent is None or not isinstance(kept, asyncio.Future):
            return start_eagerly(self._persist_and_send(kept, batch))
        self.waits_for_log = True
        kept.add_done_callback(partial(self._send_persisted, batch, on_sent))
        return None

    def _send_persisted(self, batch: Batch, on_sent: OnSent, _persist: asyncio.Future[None]) -> None:
        self.waits_for_log = False
        pending = self._client.write(batch)
        if pending is None:
            self._lock.release()
            on_sent(None)
        else:
            on_sent(start_eagerly(self._drain(pending, batch)))

    async def _send_in_order(self, events: list[Event]) -> None:
        try:
            await self._lock.acquire()
        except BaseException:
            self._left += events  # they were neither stored nor sent
            raise
        kept = None if self._persistence is None else self._persist(self._persistence, events)
        batch = Batch(events, None if self._persistence is None else self._persistence.batch.data)
        await self._persist_and_send(kept, batch)

    async def _persist_and_send(self, kept: Awaitable[None] | None, batch: Batch) -> None:
        try:
            self._client.set_unsent(batch.events)
            if kept is not None:
                await self._while_storing(kept)
            await self._client.send(batch)
        finally:
            self._lock.release()

    async def _drain(self, pending: Awaitable[None], batch: Batch) -> None:
        try:
            self._client.set_unsent(batch.events)
            await self._client.drain(pending, batch)
        finally:
            self._lock.release()

    async def _while_storing(self, kept: Awaitable[T]) -> T:
        self.storing = True
        try:
            return await kept
        finally:
            self.storing = False
