"""How fast an answer comes is measured read by read, and at a price that is small beside a token's."""

from __future__ import annotations

from collections.abc import Callable

from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_server.observation.responses import GAPS, TokenTiming
from tests.support.costs import assert_at_most, seconds


def events() -> tuple[list[Event], list[list[Event]]]:
    """What begins a response, and a few reads of text."""
    machine = ResponseStreamStateMachine("m")
    begun = machine.start()
    return begun, [machine.text("a"), machine.text("b"), machine.text("c") + machine.text("d")]


def test_the_first_output_counts_and_not_what_begins_the_response() -> None:
    begun, (first, *_) = events()
    timing = TokenTiming([10.0, 11.0, 12.5])
    timing.read(begun)
    assert timing.first is None
    timing.read(first)
    assert timing.first == 2.5
    assert not any(timing.gaps)


def test_tokens_of_one_read_share_its_time() -> None:
    _, (first, second, both) = events()
    timing = TokenTiming([0.0, 1.0, 1.04, 1.058])
    for read in (first, [], second, both):
        timing.read(read)
    assert {GAPS[at]: count for at, count in enumerate(timing.gaps) if count} == {0.05: 1, 0.01: 2}
    assert round(timing.seconds, 6) == 0.058


def test_a_long_silence_is_beyond_the_last_bound() -> None:
    _, (first, second, _) = events()
    timing = TokenTiming([0.0, 1.0, 61.0])
    timing.read(first)
    timing.read(second)
    assert timing.gaps[-1] == 1


def test_a_read_costs_little_beside_a_token() -> None:
    """Beside the machine's own work on the same token, in the same run."""

    def often(work: Callable[[], object]) -> float:
        return seconds(lambda: [work() for _ in range(5_000)])

    begun, (first, second, _) = events()
    machine, timing = ResponseStreamStateMachine("m"), TokenTiming()
    machine.start()
    timing.read(begun)
    timing.read(first)
    assert_at_most(3, lambda: often(lambda: timing.read(second)), lambda: often(lambda: machine.text("b")))
