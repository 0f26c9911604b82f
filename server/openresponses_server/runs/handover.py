"""Background runs that wait for their turn in a process that is to leave, given to the other workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog

from openresponses_server.store.base import ResponseStore
from openresponses_server.store.errors import StoreError
from openresponses_server.store.logs.base import LogError

if TYPE_CHECKING:
    from openresponses_server.runs.queue import RunQueue
    from openresponses_server.runs.run import Run

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
