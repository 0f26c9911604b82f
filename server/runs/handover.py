"""Background runs that wait for their turn in a process that is to leave, given to the other workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from server.event_logs.base import LogError
from server.runs.active import ActiveRuns
from server.sessions.base import ResponseStore
from server.sessions.errors import StoreError

if TYPE_CHECKING:
    from server.runs.queue import RunQueue

_log = structlog.get_logger(__name__)


async def hand_over(running: ActiveRuns, store: ResponseStore, queue: RunQueue | None) -> None:
    """Stop what waits here and let go of it in the store, where others take it: at once by the queue,
    else at their next look. What needs its client's own key stays, since nobody else has that."""
    held, owners = {}, {}
    for run in running.in_line():
        if run.keeping is not None and run.keeping.held and not run.personal:
            held[run.keeping.response_id] = run.keeping.worker
            owners[run.keeping.response_id] = run.owner
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
