"""A response is never completed before it was created, whatever clocks and upstreams say."""

from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode
from tests.support.machines import machine, plain

CREATED = 1_700_000_000


def ticking(*times: float) -> ResponseStreamStateMachine:
    clock: Iterator[float] = iter(times)
    return ResponseStreamStateMachine("m", clock=lambda: next(clock))


@pytest.mark.parametrize(
    ("times", "completed"), [((5.9, 7.2), 7), ((9.0, 3.0), 9), ((9.0, 0.0), 9), ((9.0, -4.0), 9)]
)
def test_a_clock_that_goes_back_does_not_complete_before_the_beginning(
    times: tuple[float, float], completed: int
) -> None:
    subject = ticking(*times)
    subject.start()
    subject.finish()
    assert (subject.snapshot.created_at, subject.snapshot.completed_at) == (int(times[0]), completed)


def fed(created: Any, completed: Any, times: dict[str, Any] | None = None) -> ResponseStreamStateMachine:
    """What comes of an upstream's response with these times, adopted; absent where None."""
    subject = ResponseStreamStateMachine("m", clock=lambda: 0)
    inbound = Inbound(subject, adopt=True)
    response = plain(machine().snapshot) | {"created_at": created}
    if created is None:
        del response["created_at"]
    ended = response | {"status": "completed", "completed_at": completed}
    if completed is None:
        del ended["completed_at"]
    inbound.feed(encode({"type": "response.created", "sequence_number": 0, "response": response}))
    inbound.feed(encode({"type": "response.completed", "sequence_number": 1, "response": ended}))
    inbound.close()
    return subject


@pytest.mark.parametrize(
    ("created", "completed", "taken", "repairs"),
    [
        (CREATED, CREATED + 4, (CREATED, CREATED + 4), []),
        (CREATED, None, (CREATED, CREATED), ["response"]),
        (CREATED, 0, (CREATED, CREATED), ["completed_at"]),
        (CREATED, CREATED - 1, (CREATED, CREATED), ["completed_at"]),
        (CREATED + 0.75, CREATED + 4.5, (CREATED, CREATED + 4), ["created_at", "completed_at"]),
        (float(CREATED), None, (CREATED, CREATED), ["created_at", "response"]),
        (None, CREATED + 4, (0, CREATED + 4), ["response"]),
    ],
)
def test_an_upstreams_times_are_taken_and_put_right(
    created: Any, completed: Any, taken: tuple[int, int], repairs: list[str]
) -> None:
    subject = fed(created, completed)
    assert subject.phase == "completed"
    assert (subject.snapshot.created_at, subject.snapshot.completed_at) == taken
    noted = {case.where.rpartition(".")[2] for case in subject.diagnostics.of("repair")}
    assert noted == set(repairs)
