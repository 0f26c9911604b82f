"""Ending a response that is being made, by whichever worker."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError
from openresponses_server.requests.service import Service
from openresponses_server.runs.stored_request import wire_of
from openresponses_server.store.base import Lease
from openresponses_server.store.endings import cancelled, is_cancelled

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
            unseen = await service.runs.settler.makings(waiting) is not None
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
