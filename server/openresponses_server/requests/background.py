"""Responses in the background: queued, made whether a client reads or not, taken up by another worker if need
be."""

from __future__ import annotations

import secrets
import time
from functools import partial

import structlog

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.response import Response
from openresponses_server.requests.prepare import Taken, prepare
from openresponses_server.requests.service import Service
from openresponses_server.runs.run import Run
from openresponses_server.runs.stored_request import wire_of
from openresponses_server.store.base import Lease, StoredResponse
from openresponses_server.store.endings import failed
from openresponses_server.store.errors import StoreError, UnreadableRecord
from openresponses_server.store.logs.base import LogError

_log = structlog.get_logger(__name__)


async def begin(service: Service, run: Run) -> Response:
    """Store the response as queued and have it made; the queued response to answer with at once.
    Raises StoreError, and HttpError 429 when as many wait as may."""
    keeping, queue = run.keeping, service.runs.queue
    assert keeping is not None
    queued = run.translation.snapshot
    waiting, owner = service.gate.waiting, run.owner
    shared = queue is not None and not run.personal
    if shared:  # what waits for any worker is in the store
        waiting.check(owner, elsewhere=await service.store.waiting(owner, service.settings.limits.background))
    with waiting.held(owner):
        if queue is not None and shared:
            await keeping.queue(for_anybody=True)
            try:
                await queue.put(queued.id, owner)
            except LogError:
                _log.warning("queue.failed", response_id=queued.id)
                await take(service, queued.id)
        else:
            await keeping.queue()
            await service.runs.begin(run)
    return queued


async def take(service: Service, response_id: str) -> None:
    """Make a response that waits for a worker, unless another one was quicker. Raises StoreError."""
    worker = service.runs.new_worker()
    now = await service.store.now()
    record = await service.store.acquire(response_id, Lease(worker, now + service.settings.lease), now)
    if record is not None:
        await service.runs.settler.take_up(record, worker)


async def rerun(service: Service, record: StoredResponse, worker: str, makings: int) -> None:
    """Make a response that was queued, or whose output nobody can have seen though it was begun `makings`
    times. It is held as `worker`."""
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
            taken=Taken(response, worker, wire_of(record), makings),
        )
        run = prepared.run()
    except BridgeError as error:
        if isinstance(error, StoreError) and not isinstance(error, UnreadableRecord):
            raise  # it is tried again when this lease is over
        await service.runs.settler.end(record, worker, partial(failed, error=error))
        return
    if makings:
        _log.warning("run.restarted", response_id=response.id, request_id=request_id, attempt=makings + 1)
    else:
        service.metrics.taken(time.time() - record.created_at)
        _log.info("run.taken", response_id=response.id, request_id=request_id)
    run.start()
