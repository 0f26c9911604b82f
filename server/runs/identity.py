"""What makes a stored response ours, whoever's model answers."""

from __future__ import annotations

from bridge.emitter.machine import ResponseStreamStateMachine
from bridge.protocol.response import Response, replace


def keep_identity(machine: ResponseStreamStateMachine, queued: Response | None = None) -> None:
    """An upstream's own response may be adopted but for what the store goes by: the id under which a
    client may know it already, its time and its link to the turn before, which the upstream is not told
    of. `queued` is the response as it was told before its run began."""
    if queued is not None:
        machine.adopt(queued)
    ours = machine.snapshot
    adopt = machine.adopt

    def adopt_the_rest(response: Response) -> None:
        adopt(
            replace(
                response,
                id=ours.id,
                created_at=ours.created_at,
                previous_response_id=ours.previous_response_id,
                store=ours.store,
                background=ours.background,
            )
        )

    machine.adopt = adopt_the_rest  # type: ignore[method-assign]
