"""The last events of a run that can't send its own: valid streams, on either wire (laws E8, S1)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import IncompleteDetails, Response
from openresponses_server.errors import HttpError
from openresponses_server.store.endings import cancelled, closing_events, failed, interrupted, is_cancelled

WIRES: Any = ["openresponses", "openai"]
FAILURES: dict[str, Callable[[Response], Response]] = {
    "failed": partial(failed, error=HttpError(503, "No.")),
    "interrupted": partial(interrupted, whole=True),
    "cut off": partial(interrupted, whole=False),
}


def queued(wire: Any) -> Response:
    return replace(ResponseStreamStateMachine("m", wire=wire).snapshot, status="queued")


def violations(events: list[Event], wire: Any) -> list[str]:
    validator = StreamValidator(wire)
    for event in events:
        validator.feed(event)
    validator.close()
    return [str(each) for each in validator.violations]


@pytest.mark.parametrize(
    ("wire", "status", "details"),
    [("openresponses", "incomplete", IncompleteDetails("cancelled")), ("openai", "cancelled", None)],
)
def test_e8_queued_response_that_is_cancelled_ends_as_its_wire_says(
    wire: Any, status: str, details: object
) -> None:
    ended = cancelled(queued(wire), wire)
    assert (ended.status, ended.incomplete_details) == (status, details)
    assert is_cancelled(ended)
    machine = ResponseStreamStateMachine("m", wire=wire)
    machine.start()
    machine.cancel()
    assert (machine.snapshot.status, machine.snapshot.incomplete_details) == (status, details)
    events = closing_events(ended, -1)
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.incomplete",
    ]
    assert violations(events, wire) == []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("sent", [-1, 0, 1])
def test_e8_failure_is_a_valid_end_of_what_was_sent(wire: Any, how: str, sent: int) -> None:
    begun = ResponseStreamStateMachine("m", wire=wire)
    before = begun.start()[: sent + 1]
    response = replace(queued(wire), id=begun.response_id)
    # whatever it was before it failed
    response = replace(response, incomplete_details=IncompleteDetails("cancelled"), completed_at=3)
    events = before + closing_events(FAILURES[how](response), sent)
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]
    assert violations(events, wire) == []
