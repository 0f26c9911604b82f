"""What all runs of a process share: store, event log, keeper, and settling the runs of stopped workers."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import structlog
from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.beyond import restore_fields
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.request import CreateResponse, conversation_of
from openresponses_bridge.protocol.secrets import items_without_secrets, request_without_secrets
from openresponses_bridge.protocol.unknown import OURS
from openresponses_bridge.state import WIRES
from openresponses_server.limits.gate import Gate
from openresponses_server.observation.metrics import Metrics
from openresponses_server.runs.exchange import Translation
from openresponses_server.runs.follow import Follower
from openresponses_server.runs.keeper import Keeper
from openresponses_server.runs.queue import Claim, RunQueue
from openresponses_server.runs.run import ActiveRuns, Run
from openresponses_server.runs.settle import Rerun, Settler
from openresponses_server.runs.signals import OnCancel, open_signals
from openresponses_server.settings import Settings, seconds_of
from openresponses_server.store.base import NO_ID, ResponseStore, StoredResponse, StoreError, UpstreamResponse
from openresponses_server.store.history import own_input
from openresponses_server.store.idempotency import IdempotencyKey
from openresponses_server.store.logs.base import MARKED, LogError
from openresponses_server.store.measured import measured_log
from openresponses_server.store.persistence import RecordOptions, ResponseSessionPersistenceTransformer
from openresponses_server.store.stores import open_event_log
from openresponses_server.store.writers import StoringTimes
from openresponses_server.tasks import end_tasks, jittered

_log = structlog.get_logger(__name__)


def can_be_resumed_elsewhere(run: Run) -> bool:
    """Return True if the response is stored and another worker can make it instead."""
    return run.persistence is not None and run.persistence.held and not run.personal


async def release_to_other_workers(runs: Iterable[Run], store: ResponseStore, queue: RunQueue | None) -> None:
    """Stop these background runs, which wait for a slot or have just been stored, and release their leases.
    The other workers find them in the queue at once, or in the store at their next look. Runs that only this
    process can make stay."""
    leases, owners = {}, {}
    for run in runs:
        if run.persistence is not None and can_be_resumed_elsewhere(run):
            leases[run.persistence.response_id] = run.persistence.worker
            owners[run.persistence.response_id] = run.owner
            if run.is_queued:
                run.task.cancel()
                await asyncio.wait([run.task])
    if not leases:
        return
    try:
        await store.release(leases, await store.now())
        for response_id, owner in owners.items():
            if queue is not None:
                await queue.put(response_id, owner)
    except (StoreError, LogError) as error:  # they are found when their leases are over
        _log.warning("shutdown.not_handed_over", responses=len(leases), code=error.code)
        return
    _log.info("shutdown.handed_over", responses=len(leases))


# The request of a background response, as it is stored for the worker that will make it.

WIRE: Final = f"{OURS}wire"
"""The field for the wire that the client reads."""
_LACKS_SECRETS: Final = f"{OURS}lacks_secrets"
_USUAL_WIRE: Final = "openresponses"


def is_personal(request: CreateResponse) -> bool:
    """Return True if the request has what is not stored: secrets of its tools, or fields of its client's API
    that the protocol does not have."""
    native = request.native
    has_own = native is not UNSET and bool(native.names or native.needed)
    return has_own or request_without_secrets(request) is not request


def stored_request(request: CreateResponse, wire: str) -> bytes:
    """The request as JSON, with the wire of its client, and without what `is_personal` names."""
    redacted = request_without_secrets(request)
    body = decode_json(encode(replace(redacted, beyond=UNSET, native=UNSET)))
    restore_fields(body, redacted.beyond)
    if is_personal(request):
        body[_LACKS_SECRETS] = True
    return encode({**body, WIRE: wire})


def lacks_secrets(stored: bytes) -> bool:
    """Return True if this stored request had what is not stored, so that it can't be sent to an upstream."""
    return _LACKS_SECRETS in decode_json(stored)


def wire_of(record: StoredResponse) -> str:
    """The wire that the client of this response reads; `openresponses` if its request names none."""
    try:
        wire = decode_json(record.request or b"{}").get(WIRE)
    except WireError:
        wire = None
    return wire if wire in WIRES else _USUAL_WIRE


_SWEPT_EVERY: Final = 300.0  # seconds between two sweeps of expired responses, at most
_WATCHED_EVERY: Final = 1.0  # seconds between two looks for stopped processes
_DISCARD_PATIENCE: Final = 1.0  # seconds that a deletion waits for the event log
_DISCARD_PAUSE: Final = 5.0  # seconds between two tries at a failing event log


def _nothing() -> None:
    return None


class RunSupport:
    """One per application. It works for as long as its `lifespan` lasts."""

    def __init__(self, settings: Settings, store: ResponseStore, metrics: Metrics | None = None) -> None:
        self.store = store
        self._worker = secrets.token_hex(8)
        event_log = open_event_log(settings.event_log, store.folder, self._worker)
        self.event_log = event_log if metrics is None else measured_log(event_log, metrics.called)
        self.signals = open_signals(event_log, settings.redis, self._worker)
        self.keeper = Keeper(store, settings.checkpoint_interval, settings.lease)
        self.settler = Settler(
            store,
            self.event_log,
            settings.lease,
            self.keeper.renew,
            process=self._worker,
            has_queue=settings.redis is not None,
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
        self._times = StoringTimes(
            interval=settings.checkpoint_interval,
            lease=settings.lease,
            term=self.keeper.term,
            in_haste=lambda: self.settler.leaving,
        )
        self._restart = settings.background_restart
        self._retention = seconds_of(settings.retention)
        self._number = 0
        self._shared = not settings.store.startswith("memory")
        self._maintenance: asyncio.Task[None] | None = None
        self.queue: RunQueue | None = None
        if settings.redis is not None:
            self.queue = RunQueue(settings.redis, store.name, self._worker, settings.lease)
        self._outage = False
        self._swept_at = -math.inf
        self._swept_every = min(_SWEPT_EVERY, (self._retention or math.inf) / 2)

    async def check_store(self) -> None:
        """Raise StoreError if the last maintenance found the store out of reach and it still is, so that a
        request whose response could not be stored is refused before an upstream is asked."""
        if self._outage:
            await self.store.get(NO_ID)
            self._outage = False

    def new_worker(self) -> str:
        """A name for one run of this process (see `Lease`)."""
        self._number += 1
        return f"{self._worker}-{self._number}"

    def expires_at(self, now: float) -> float | None:
        """Return the time at which what is stored now expires (Unix seconds); None: never."""
        return None if self._retention is None else now + self._retention

    def new_persistence(
        self,
        translation: Translation,
        request: CreateResponse,
        owner: str,
        wire: str,
        held_as: str | None = None,
        upstream: Callable[[], UpstreamResponse | None] = _nothing,
        key: IdempotencyKey | None = None,
    ) -> ResponseSessionPersistenceTransformer:
        """The persistence of one run's response. `held_as` is the worker name that holds its record already;
        `upstream` returns the response that the upstream itself has stored, if any; `key` stands for it."""
        now = time.time()
        record = StoredResponse(
            response=translation.snapshot,
            input=items_without_secrets(own_input(request)),
            owner=owner,
            request=stored_request(request, wire) if request.background else None,
            created_at=now,
            expires_at=self.expires_at(now),
            conversation=None if request.conversation is None else conversation_of(request),
        )
        return ResponseSessionPersistenceTransformer(
            record,
            lambda: translation.snapshot,
            self.store,
            self.event_log,
            held_as or self.new_worker(),
            self._times,
            RecordOptions(
                wire=wire,
                stored=held_as is not None,
                shared=self._shared,
                withheld=(request.restart or self._restart) == "always",
                key=key,
                upstream=upstream,
                wake=self.keeper.wake,
                on_lost=partial(self._lost, record.response.id),
            ),
        )

    def _lost(self, response_id: str) -> None:
        """A run, possibly one that waits, has found that its record now belongs to another worker."""
        self._on_lost()
        self.keeper.recheck(response_id)

    async def discard(self, response_id: str) -> None:
        """The response was deleted: discard its frames, and have the run that makes it ended soon."""
        self.keeper.recheck(response_id)
        discarding = self.keeper.start(self._discard(response_id))
        await asyncio.wait([discarding], timeout=_DISCARD_PATIENCE)

    async def _discard(self, response_id: str) -> None:
        """Retry for as long as the event log could have the frames."""
        deadline = time.monotonic() + MARKED
        while time.monotonic() < deadline:
            try:
                return await self.event_log.discard(response_id)
            except LogError:
                _log.warning("event_log.failed", response_id=response_id)
                await asyncio.sleep(_DISCARD_PAUSE)

    @asynccontextmanager
    async def lifespan(
        self, gate: Gate, rerun: Rerun, claim: Claim, on_cancel: OnCancel
    ) -> AsyncIterator[None]:
        """Make checkpoints, settle the runs of stopped workers and receive the messages of other workers; at
        the end, wait for the runs."""
        self.settler.rerun = rerun
        at_hand = self.store.is_loaded
        if at_hand:
            await self._maintain()
        await self.presence.appear()
        if at_hand:
            await self._settle_departed()
        persistence = _create_tasks(
            self.keeper.make_checkpoints(), self.keeper.renew_leases(), self.signals.listen(on_cancel)
        )
        claiming = _create_tasks(
            _repeat(self._maintain, self._lease / 4, already_done=at_hand),
            _repeat(self._settle_departed, _WATCHED_EVERY, already_done=at_hand),
            *([self.queue.serve(claim, self.settler.resume_waiting, gate)] if self.queue else []),
        )
        self._maintenance = claiming[0]
        try:
            yield
        finally:
            await end_tasks(claiming)  # first, or they would claim what is released
            await self.keeper.drain()
            await end_tasks(persistence)
            await self.signals.close()
            if self.queue is not None:
                await self.queue.close()
            await self.presence.leave()
            await self.event_log.shutdown()

    async def stop_claiming(self, running: ActiveRuns) -> None:
        """Prepare to stop: release the queued runs to other workers, and resume no more here. Runs that only
        this process can make are kept."""
        self.settler.leaving = True
        if self._maintenance is not None:
            self._maintenance.cancel()
        if self._shared:
            await release_to_other_workers(running.is_queued(), self.store, self.queue)

    async def start(self, run: Run) -> None:
        """Start a run that was just stored; if this process is to stop, release it to other workers."""
        if self.settler.leaving and self._shared and can_be_resumed_elsewhere(run):
            await release_to_other_workers([run], self.store, self.queue)
        else:
            run.start()

    async def _settle_departed(self) -> None:
        """Settle the runs of processes that are known to have stopped, whatever their leases."""
        try:
            for process in await self.presence.departed():
                settled = await self.settler.settle_process(process)
                await self.presence.remove(process)
                _log.info("process.departed", process=process, runs=settled)
        except StoreError as error:
            _log.warning("store.failed", code=error.code, reason=error.in_full)
        except Exception:
            _log.exception("runs.care_failed")

    async def _maintain(self) -> None:
        """Settle the runs whose leases have expired (law S1: nothing stays in progress for ever), and delete
        what has expired."""
        for work in (self.settler.sweep, self._remove_expired):
            try:
                await work()
                self._outage = False
            except StoreError as error:
                self._outage = True
                _log.warning("store.failed", code=error.code, reason=error.in_full)
                return
            except Exception:
                _log.exception("runs.care_failed")

    async def _remove_expired(self) -> None:
        if time.monotonic() - self._swept_at > self._swept_every:
            forgotten = await self.store.sweep(time.time())
            self._swept_at = time.monotonic()
            if forgotten:
                _log.info("store.swept", responses=forgotten)


async def _repeat(work: Callable[[], Awaitable[None]], every: float, *, already_done: bool) -> None:
    """Call `work` about every `every` seconds, the first time at once unless it is `already_done`."""
    while True:
        if not already_done:
            await work()
        already_done = False
        await asyncio.sleep(jittered(every))


def _create_tasks(*works: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(work) for work in works]
