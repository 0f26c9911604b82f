"""Responses in the background: queued, made whether a client reads or not, taken up by another worker if need
be."""

from __future__ import annotations

import asyncio
import secrets
import time
from functools import partial
from typing import Final

import structlog

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError
from openresponses_server.requests.prepare import Taken, prepare
from openresponses_server.requests.service import Service
from openresponses_server.runs.run import Run
from openresponses_server.runs.support import wire_of
from openresponses_server.store.base import Lease, StoredResponse, StoreError, UnreadableRecord
from openresponses_server.store.endings import cancelled, failed, is_cancelled
from openresponses_server.store.logs.base import LogError

_log = structlog.get_logger(__name__)


async def begin(service: Service, run: Run) -> Response:
    """Store the response as queued and have it made; the queued response to answer with at once.
    Raises StoreError, and HttpError 429 when as many wait as may."""
    persistence, queue = run.persistence, service.runs.queue
    assert persistence is not None
    queued = run.translation.snapshot
    waiting, owner = service.gate.waiting, run.owner
    shared = queue is not None and not run.personal
    if shared:  # what waits for any worker is in the store
        waiting.check(owner, elsewhere=await service.store.waiting(owner, service.settings.limits.background))
    with waiting.held(owner):
        if queue is not None and shared:
            await persistence.queue(for_anybody=True)
            try:
                await queue.put(queued.id, owner)
            except LogError:
                _log.warning("queue.failed", response_id=queued.id)
                await take(service, queued.id)
        else:
            await persistence.queue()
            await service.runs.start(run)
    return queued


async def take(service: Service, response_id: str) -> None:
    """Make a response that waits for a worker, unless another one was quicker. Raises StoreError."""
    worker = service.runs.new_worker()
    now = await service.store.now()
    record = await service.store.acquire(response_id, Lease(worker, now + service.settings.lease), now)
    if record is not None:
        await service.runs.settler.resume(record, worker)


async def rerun(service: Service, record: StoredResponse, worker: str, previous_attempts: int) -> None:
    """Make a response that was queued, or whose output nobody can have seen though it was begun
    `previous_attempts` times. It is held as `worker`."""
    assert record.request is not None
    response = record.response
    request_id = f"req_{secrets.token_hex(12)}"
    try:
        prepared = await prepare(
            service,
            decode_request(record.request),
            {},
            request_id,
            owner=record.owner,
            taken=Taken(response, worker, wire_of(record), previous_attempts),
        )
        run = prepared.run()
    except BridgeError as error:
        if isinstance(error, StoreError) and not isinstance(error, UnreadableRecord):
            raise  # it is tried again when this lease is over
        await service.runs.settler.end(record, worker, partial(failed, error=error))
        return
    if previous_attempts:
        _log.warning(
            "run.restarted", response_id=response.id, request_id=request_id, attempt=previous_attempts + 1
        )
    else:
        service.metrics.taken(time.time() - record.created_at)
        _log.info("run.taken", response_id=response.id, request_id=request_id)
    run.start()


# Ending a response that is being made, by whichever worker.

_PATIENCE: Final = 10.0  # seconds that the worker which makes it may take
_LOOK_AGAIN: Final = 0.1
_OUT_OF_REACH: Final = HttpError(
    503,
    "The worker that makes this response could not be reached.",
    code="worker_unreachable",
    headers={"retry-after": "1"},
)


async def cancel_response(service: Service, response_id: str, owner: str) -> Response | None:
    """The response as it ended; None when this owner does not have it.

    Raises HttpError 400 when it has ended otherwise, 503 when its worker can't be reached.
    """
    deadline = time.monotonic() + _PATIENCE
    asked = False
    while True:
        running = service.running.get(response_id, owner)
        if running is not None:
            return _as_cancelled(await running.cancel())
        record = await service.store.get(response_id, owner)
        if record is None:
            return None
        if record.lease is None:
            return _as_cancelled(record.response)
        ours = service.runs.new_worker()
        now = await service.store.now()
        waiting = await service.store.acquire(response_id, Lease(ours, now + _PATIENCE), now)
        if waiting is not None:
            # One of which there is output is not ended by this: its worker has stopped.
            unseen = await service.runs.settler.previous_attempts(waiting) is not None
            ending = partial(cancelled, wire=wire_of(waiting)) if unseen else None
            ended = await service.runs.settler.end(waiting, ours, ending)
            return None if ended is None else _as_cancelled(ended)
        asked = asked or await service.runs.signals.cancel(response_id)
        if not asked or time.monotonic() > deadline:
            raise _OUT_OF_REACH
        await asyncio.sleep(_LOOK_AGAIN)


def _as_cancelled(response: Response) -> Response:
    if is_cancelled(response):
        return response
    raise HttpError(
        400,
        f"The response has ended as {response.status}: it can't be cancelled.",
        code="response_not_cancellable",
    )


def hear(service: Service, response_id: str) -> None:
    """Another worker says that this response is to be cancelled."""
    running = service.running.find(response_id)
    if running is not None:
        running.stop()
