"""What a client that fell behind its run has still to be sent: read from what is kept, as any reader does."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from typing import Final

from openresponses_server.limits.gate import Gate
from openresponses_server.runs.follow import Follower
from openresponses_server.runs.run import Run
from openresponses_server.store.base import Lease, Standing

_BEING_MADE: Final = Lease("", math.inf)


async def rest_of(run: Run, gate: Gate, follower: Follower) -> AsyncGenerator[bytes]:
    """The bytes of the run's stream behind the last event that its client was sent, to the end; they may be
    cut anywhere. They end early when the response is deleted meanwhile or its store stays out of reach: the
    client can ask again. Raises HttpError 429 when the client would be one reader too many."""
    after = run.client.last_sent
    found = Standing(run.translation.response_id, run.owner, _BEING_MADE, after)
    async with gate.readers.shared(run.owner):
        async for data in follower.follow(found, after):
            yield data
