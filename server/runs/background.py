"""Responses in the background: queued, made whoever listens, taken up by another worker if need be."""

from __future__ import annotations

import secrets
from functools import partial

import structlog

from bridge.errors import BridgeError
from bridge.protocol.codec import decode_request
from bridge.protocol.response import Response
from server.runs.generation import Generation
from server.runs.prepare import Taken, prepare
from server.service import Service
from server.sessions.base import StoredResponse
from server.sessions.endings import failed

_log = structlog.get_logger(__name__)


async def begin(generation: Generation) -> Response:
    """Store the response as queued and set its run going; the response as it is told at once. Raises
    StoreError."""
    assert generation.keeping is not None
    await generation.keeping.queue()
    queued = generation.run.snapshot
    generation.start()
    return queued


async def rerun(service: Service, record: StoredResponse, worker: str) -> None:
    """Make a response that was queued by a worker that died before it began. It is held as `worker`."""
    assert record.request is not None
    response = record.response
    request_id = f"req_{secrets.token_hex(12)}"
    try:
        generation, _ = await prepare(
            service,
            decode_request(record.request),
            {},
            request_id,
            owner=record.owner,
            taken=Taken(response, worker),
        )
    except BridgeError as error:
        await service.runs.settler.end(record, worker, partial(failed, error=error))
        return
    _log.info("run.taken_over", response_id=response.id, request_id=request_id)
    generation.start()
