"""How soon a server leaves, by what it was asked."""

import math
import signal

import pytest

from openresponses_server.serving.leaving import Leaving, Pace

DRAIN, GRACE = 600.0, 10.0
TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.mark.parametrize(
    ("signals", "pace", "deadline"),
    [
        ([], None, math.inf),
        ([TERM], Pace.DRAIN, DRAIN),
        ([INT], Pace.HURRY, GRACE),
        ([TERM, TERM], Pace.HURRY, 1 + GRACE),
        ([TERM, INT], Pace.HURRY, 1 + GRACE),
        ([INT, TERM], Pace.CUT, 1.0),
        ([INT, INT], Pace.CUT, 1.0),
        ([TERM, TERM, TERM], Pace.CUT, 2.0),
        ([TERM, TERM, TERM, TERM], Pace.CUT, 2.0),
    ],
)
def test_s8_each_signal_raises_the_pace(
    signals: list[signal.Signals], pace: Pace | None, deadline: float
) -> None:
    leaving = Leaving(DRAIN, GRACE)
    for second, number in enumerate(signals):
        leaving.signalled(number, float(second))
    assert (leaving.pace, leaving.deadline) == (pace, deadline)


def test_s8_hurrying_never_gives_more_time() -> None:
    leaving = Leaving(5.0, GRACE)
    leaving.ask(Pace.DRAIN, 0.0)
    leaving.ask(Pace.HURRY, 1.0)
    assert leaving.deadline == 5.0
    leaving.ask(Pace.DRAIN, 2.0)
    assert (leaving.pace, leaving.deadline) == (Pace.HURRY, 5.0)
