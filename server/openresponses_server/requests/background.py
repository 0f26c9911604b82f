"""Background responses: queued, claimed by a worker, resumed by another one when that stops."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import structlog

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError, Outage
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import LeasedResponse, Received
from openresponses_server.requests.service import Service
from openresponses_server.runs.run import Run
from openresponses_server.runs.support import lacks_secrets, wire_of
from openresponses_server.store.base import Lease, StoredResponse, StoreError, UnreadableRecord
from openresponses_server.store.endings import cancelled, failed, is_cancelled
from openresponses_server.store.logs.base import LogError
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.tasks import OWNER

_log = structlog.get_logger(__name__)


def _secrets_not_stored() -> HttpError:
    """Report that another worker can't make the response again."""
    return HttpError(
        503,
        "The worker of this response stopped, and the secrets of its tools, or fields that only its client's "
        "API has, were not stored: send it again.",
        code="secrets_not_stored",
    )


async def enqueue(service: Service, run: Run) -> Response:
    """Store the response as queued, schedule its run, and return the queued response.
    Raises StoreError, and HttpError 429 when the queue is full."""
    persistence, queue = run.persistence, service.runs.queue
    assert persistence is not None
    queued = run.translation.snapshot
    waiting, owner = service.gate.waiting, run.owner
    shared = queue is not None and not run.personal
    if shared:  # the store counts what any worker may claim
        waiting.check(owner, elsewhere=await service.store.waiting(owner, service.settings.limits.background))
    with waiting.held(owner), _retracting(service, persistence):
        if queue is not None and shared:
            await persistence.queue(for_anybody=True)
            try:
                await queue.put(queued.id, owner)
            except LogError as error:
                _log.warning("queue.failed", response_id=queued.id, error=type(error).__name__)
                await _claim_here(service, queued.id)
        else:
            await persistence.queue()
            await service.runs.start(run)
    return queued


async def _claim_here(service: Service, response_id: str) -> None:
    """Claim a response that is queued in the store alone. If that fails as well, an idle worker finds it
    there: it is queued, whatever happens here."""
    try:
        await claim(service, response_id)
    except Outage as error:
        _log.warning("queue.failed", response_id=response_id, error=type(error).__name__)


@contextmanager
def _retracting(service: Service, persistence: ResponseSessionPersistenceTransformer) -> Iterator[None]:
    try:
        yield
    except BaseException:
        service.keeper.retract(persistence)
        raise


async def reserve(service: Service, run: Run) -> None:
    """Store that the response begins, before its upstream is asked, so that its key stands for it. Raises
    StoreError, and KeyTaken."""
    assert run.persistence is not None
    with _retracting(service, run.persistence):
        await run.persistence.queue()


async def claim(service: Service, response_id: str) -> None:
    """Claim a queued response and run it, unless another worker has claimed it. Raises StoreError."""
    worker = service.runs.new_worker()
    now = await service.store.now()
    record = await service.store.acquire(response_id, Lease(worker, now + service.settings.lease), now)
    if record is not None:
        await service.runs.settler.resume(record, worker)


async def run_stored(service: Service, record: StoredResponse, worker: str, previous_attempts: int) -> None:
    """Run a stored request: of a queued response, or of one of whose output no client can have seen anything
    after `previous_attempts` attempts. `worker` holds its lease. A request whose tools had secrets fails."""
    token = OWNER.set(record.owner)  # whose turn on threads it takes
    try:
        await _run_stored(service, record, worker, previous_attempts)
    finally:
        OWNER.reset(token)


async def _run_stored(service: Service, record: StoredResponse, worker: str, previous_attempts: int) -> None:
    assert record.request is not None
    response = record.response
    request_id = f"req_{secrets.token_hex(12)}"
    try:
        if lacks_secrets(record.request):
            raise _secrets_not_stored()
        leased = LeasedResponse(response, worker, wire_of(record), previous_attempts)
        request = Received(decode_request(record.request), {}, request_id, record.owner, leased=leased)
        run = RunAssembly(await prepare(request, service), service).run()
    except BridgeError as error:
        if isinstance(error, StoreError) and not isinstance(error, UnreadableRecord):
            raise  # retried when this lease expires
        await service.runs.settler.end(record, worker, partial(failed, error=error))
        return
    if previous_attempts:
        _log.warning(
            "run.restarted", response_id=response.id, request_id=request_id, attempt=previous_attempts + 1
        )
    else:
        service.metrics.collected(time.time() - record.created_at)
        _log.info("run.taken", response_id=response.id, request_id=request_id)
    run.start()


# Cancelling a response that any worker may be running.

_CANCEL_TIMEOUT: Final = 10.0  # seconds for the worker that runs it to respond
_POLL_INTERVAL: Final = 0.1  # seconds
_SIGNAL_INTERVAL: Final = 1.0  # seconds: a worker that connects again to Redis misses what is sent meanwhile


def _worker_unreachable() -> HttpError:
    """The worker that makes the response does not answer."""
    return HttpError(
        503,
        "The worker that makes this response could not be reached.",
        code="worker_unreachable",
        headers={"retry-after": "1"},
    )


async def cancel_response(service: Service, response_id: str, owner: str) -> Response | None:
    """Cancel a response and return it as it ended; None when this owner has no such response.

    Raises HttpError 400 when it has ended in another way, 503 when its worker can't be reached.
    """
    deadline = time.monotonic() + _CANCEL_TIMEOUT
    signalled, signal_at = False, -math.inf
    while True:
        running = service.running.get(response_id, owner)
        if running is not None:
            return _check_cancelled(await running.cancel())
        record = await service.store.get(response_id, owner)
        if record is None:
            return None
        if record.lease is None:
            return _check_cancelled(record.response)
        ours = service.runs.new_worker()
        now = await service.store.now()
        waiting = await service.store.acquire(response_id, Lease(ours, now + _CANCEL_TIMEOUT), now)
        if waiting is not None:
            # A response with output whose worker has stopped is settled with that output, not as cancelled.
            unseen = await service.runs.settler.previous_attempts(waiting) is not None
            ending = partial(cancelled, wire=wire_of(waiting)) if unseen else None
            ended = await service.runs.settler.end(waiting, ours, ending)
            return None if ended is None else _check_cancelled(ended)
        if time.monotonic() >= signal_at:
            signalled = await service.runs.signals.cancel(response_id, record.lease.worker) or signalled
            signal_at = time.monotonic() + _SIGNAL_INTERVAL
        if not signalled or time.monotonic() > deadline:
            raise _worker_unreachable()
        await asyncio.sleep(_POLL_INTERVAL)


def _check_cancelled(response: Response) -> Response:
    if is_cancelled(response):
        return response
    raise HttpError(
        400,
        f"The response has ended as {response.status}: it can't be cancelled.",
        code="response_not_cancellable",
    )


def cancel_on_signal(service: Service, response_id: str) -> None:
    """Cancel the run of this response, if it runs here: another worker has signalled it."""
    running = service.running.find(response_id)
    if running is not None:
        running.stop()
