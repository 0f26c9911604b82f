"""What all runs of this process share: store, event log, keeper, and settling the runs of workers that have
stopped."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.beyond import put_back
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import OURS
from openresponses_bridge.state import WIRES
from openresponses_server.limits.gate import Gate
from openresponses_server.observation.metrics import Metrics
from openresponses_server.runs.follow import Follower
from openresponses_server.runs.keeper import Keeper
from openresponses_server.runs.queue import RunQueue, Take
from openresponses_server.runs.run import ActiveRuns, Run
from openresponses_server.runs.settle import Rerun, Settler
from openresponses_server.runs.signals import OnCancel, open_signals
from openresponses_server.runs.translation import Translation
from openresponses_server.settings import Settings, seconds_of
from openresponses_server.store.base import NO_ID, ResponseStore, StoredResponse, StoreError, UpstreamResponse
from openresponses_server.store.history import own_input
from openresponses_server.store.logs.base import MARKED, LogError
from openresponses_server.store.measured import measured_log
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.store.stores import open_event_log
from openresponses_server.tasks import end_tasks

# Background runs that wait for their turn in a process that is to leave, given to the other workers.

_log = structlog.get_logger(__name__)


def is_anybodys(run: Run) -> bool:
    """It is stored, and another worker can make it instead."""
    return run.keeping is not None and run.keeping.held and not run.personal


async def hand_over(runs: Iterable[Run], store: ResponseStore, queue: RunQueue | None) -> None:
    """Stop those that wait here, or were stored and have not begun to, and let go of them in the store, where
    others take them: at once by the queue, else at their next look. What is not anybody's stays."""
    held, owners = {}, {}
    for run in runs:
        if run.keeping is not None and is_anybodys(run):
            held[run.keeping.response_id] = run.keeping.worker
            owners[run.keeping.response_id] = run.owner
            if run.in_line:
                run.making.cancel()
                await asyncio.wait([run.making])
    if not held:
        return
    try:
        await store.give_back(held, await store.now())
        for response_id, owner in owners.items():
            if queue is not None:
                await queue.put(response_id, owner)
    except (StoreError, LogError) as error:  # they are found when their leases are over
        _log.warning("shutdown.not_handed_over", responses=len(held), code=error.code)
        return
    _log.info("shutdown.handed_over", responses=len(held))


# The request of a response in the background, as it is stored for the worker that will make it.

WIRE: Final = f"{OURS}wire"
"""The field that says which wire its client reads."""

_USUAL_WIRE: Final = "openresponses"


def stored_request(request: CreateResponse, wire: str) -> bytes:
    """The request as JSON, with its client's wire."""
    body = decode_json(encode(replace(request, beyond=UNSET, native=UNSET)))
    put_back(body, request.beyond)
    return encode({**body, WIRE: wire})


def wire_of(record: StoredResponse) -> str:
    """The wire that the client of this response reads; the usual one when its request does not say."""
    try:
        wire = decode_json(record.request or b"{}").get(WIRE)
    except WireError:
        wire = None
    return wire if wire in WIRES else _USUAL_WIRE


_SWEPT_EVERY: Final = 300.0  # seconds between two looks for responses that have expired, at most
_WATCHED_EVERY: Final = 1.0  # seconds between two looks for processes that have stopped
_DISCARD_PATIENCE: Final = 1.0  # seconds that a deletion waits for the event log
_DISCARD_PAUSE: Final = 5.0  # seconds until an event log that failed is asked again


def _nothing() -> None:
    return None


class RunSupport:
    """One per application. It works while `going` lasts."""

    def __init__(self, settings: Settings, store: ResponseStore, metrics: Metrics | None = None) -> None:
        self.store = store
        event_log = open_event_log(settings.event_log)
        self.event_log = event_log if metrics is None else measured_log(event_log, metrics.called)
        self.signals = open_signals(settings.event_log)
        self.keeper = Keeper(store, settings.checkpoint_interval, settings.lease)
        self._worker = secrets.token_hex(8)
        self.settler = Settler(
            store,
            self.event_log,
            settings.lease,
            self.keeper.renew,
            process=self._worker,
            shares=settings.event_log.startswith("redis"),
        )
        self._on_lost: Callable[[], None] = _nothing
        if metrics is not None:
            self.settler.count, self._on_lost = metrics.settled, metrics.lost
        self.presence = store.presence(self._worker, settings.lease)
        self._interval = settings.checkpoint_interval
        self.follower = Follower(
            store, self.event_log, self.settler, most=settings.limits.output_bytes, interval=self._interval
        )
        self._lease = settings.lease
        self._restart = settings.background_restart
        self._retention = seconds_of(settings.retention)
        self._number = 0
        self._shared = not settings.store.startswith("memory")
        self._caring: asyncio.Task[None] | None = None
        self.queue: RunQueue | None = None
        if settings.event_log.startswith("redis"):
            self.queue = RunQueue(settings.event_log, store.name, self._worker, settings.lease)
        self._outage = False
        self._swept_at = 0.0
        self._swept_every = min(_SWEPT_EVERY, (self._retention or math.inf) / 2)

    async def check_store(self) -> None:
        """Raise StoreError when the store was out lately and still is: what could not be stored is refused
        before an upstream is asked for it."""
        if self._outage:
            await self.store.get(NO_ID)
            self._outage = False

    def new_worker(self) -> str:
        """A name for one run of this process (see `Lease`)."""
        self._number += 1
        return f"{self._worker}-{self._number}"

    def expires_at(self, now: float) -> float | None:
        """Until when what is stored now is kept (Unix seconds); None for ever."""
        return None if self._retention is None else now + self._retention

    def keeping(
        self,
        translation: Translation,
        request: CreateResponse,
        owner: str,
        wire: str,
        taken: str | None = None,
        upstream: Callable[[], UpstreamResponse | None] = _nothing,
    ) -> ResponseSessionPersistenceTransformer:
        """What keeps this run's response. `taken` is the name under which its record is held already;
        `upstream` gives the upstream's own response, where it keeps one."""
        now = time.time()
        record = StoredResponse(
            response=translation.snapshot,
            input=own_input(request),
            owner=owner,
            request=stored_request(request, wire) if request.background else None,
            created_at=now,
            expires_at=self.expires_at(now),
        )
        return ResponseSessionPersistenceTransformer(
            record,
            lambda: translation.snapshot,
            self.store,
            self.event_log,
            taken or self.new_worker(),
            wire=wire,
            interval=self._interval,
            lease=self._lease,
            stored=taken is not None,
            shared=self._shared,
            withheld=(request.restart or self._restart) == "always",
            wake=self.keeper.wake,
            on_lost=self._on_lost,
            upstream=upstream,
        )

    async def forget(self, response_id: str) -> None:
        """The response was deleted: its frames go too, and the run that makes it is soon ended."""
        self.keeper.look_at(response_id)
        discarding = self.keeper.start(self._discard(response_id))
        await asyncio.wait([discarding], timeout=_DISCARD_PATIENCE)

    async def _discard(self, response_id: str) -> None:
        """For as long as the log could stay without it."""
        deadline = time.monotonic() + MARKED
        while time.monotonic() < deadline:
            try:
                return await self.event_log.discard(response_id)
            except LogError:
                _log.warning("event_log.failed", response_id=response_id)
                await asyncio.sleep(_DISCARD_PAUSE)

    @asynccontextmanager
    async def going(self, gate: Gate, rerun: Rerun, take: Take, on_cancel: OnCancel) -> AsyncIterator[None]:
        """Keep the checkpoints going, settle what stopped workers left, now and then, and receive the other
        workers' messages; at the end, wait for what runs."""
        self.settler.rerun = rerun
        at_hand = self.store.is_loaded
        if at_hand:
            await self._care()
        await self.presence.appear()
        if at_hand:
            await self._look_for_departed()
        keeping = _started(self.keeper.keep(), self.keeper.keep_leases(), self.signals.listen(on_cancel))
        taking = _started(
            _for_ever(self._care, self._lease / 4, begun=at_hand),
            _for_ever(self._look_for_departed, _WATCHED_EVERY, begun=at_hand),
            *([self.queue.serve(take, self.settler.take_waiting, gate)] if self.queue else []),
        )
        self._caring = taking[0]
        try:
            yield
        finally:
            await end_tasks(taking)  # first, or they would take what is handed over
            await self.keeper.drain()
            await end_tasks(keeping)
            await self.signals.close()
            if self.queue is not None:
                await self.queue.close()
            await self.presence.leave()
            await self.event_log.shutdown()

    async def leave(self, running: ActiveRuns) -> None:
        """This process is to leave: what waits for its turn here goes to the other workers at once, and
        nothing is taken up here any more. What only this process can make stays."""
        self.settler.leaving = True
        if self._caring is not None:
            self._caring.cancel()
        if self._shared:
            await hand_over(running.in_line(), self.store, self.queue)

    async def begin(self, run: Run) -> None:
        """Have it made that was stored just now: by another worker when this process is to leave."""
        if self.settler.leaving and self._shared and is_anybodys(run):
            await hand_over([run], self.store, self.queue)
        else:
            run.start()

    async def _look_for_departed(self) -> None:
        """Settle what processes have left that are known to have stopped, leases or not."""
        try:
            for process in await self.presence.departed():
                settled = await self.settler.settle_all_of(process)
                await self.presence.forget(process)
                _log.info("process.departed", process=process, runs=settled)
        except StoreError as error:
            _log.warning("store.failed", code=error.code, reason=error.in_full)
        except Exception:
            _log.exception("runs.care_failed")

    async def _care(self) -> None:
        """Law S1: nothing stays in progress for ever; and nothing longer than it is to be kept."""
        for work in (self.settler.sweep, self._forget_expired):
            try:
                await work()
                self._outage = False
            except StoreError as error:
                self._outage = True
                _log.warning("store.failed", code=error.code, reason=error.in_full)
                return
            except Exception:
                _log.exception("runs.care_failed")

    async def _forget_expired(self) -> None:
        if time.time() - self._swept_at > self._swept_every:
            forgotten = await self.store.sweep(time.time())
            self._swept_at = time.time()
            if forgotten:
                _log.info("store.swept", responses=forgotten)


async def _for_ever(work: Callable[[], Awaitable[None]], every: float, *, begun: bool) -> None:
    """Do it every so many seconds; at once where that has not `begun`."""
    while True:
        if not begun:
            await work()
        begun = False
        await asyncio.sleep(every)


def _started(*works: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(work) for work in works]
