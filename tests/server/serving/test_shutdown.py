"""How soon a server shuts down, by signals and requests."""

import math
import signal

import pytest

from openresponses_server.serving.shutdown import ShutdownDeadline, ShutdownMode

DRAIN, GRACE = 600.0, 10.0
TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.mark.parametrize(
    ("signals", "mode", "deadline"),
    [
        ([], None, math.inf),
        ([TERM], ShutdownMode.DRAIN, DRAIN),
        ([INT], ShutdownMode.GRACE, GRACE),
        ([TERM, TERM], ShutdownMode.GRACE, 1 + GRACE),
        ([TERM, INT], ShutdownMode.GRACE, 1 + GRACE),
        ([INT, TERM], ShutdownMode.CUT, 1.0),
        ([INT, INT], ShutdownMode.CUT, 1.0),
        ([TERM, TERM, TERM], ShutdownMode.CUT, 2.0),
        ([TERM, TERM, TERM, TERM], ShutdownMode.CUT, 2.0),
    ],
)
def test_s8_each_signal_raises_the_mode(
    signals: list[signal.Signals], mode: ShutdownMode | None, deadline: float
) -> None:
    shutdown = ShutdownDeadline(DRAIN, GRACE)
    for second, number in enumerate(signals):
        shutdown.handle_signal(number, float(second))
    assert (shutdown.mode, shutdown.deadline) == (mode, deadline)


def test_s8_hurrying_never_gives_more_time() -> None:
    shutdown = ShutdownDeadline(5.0, GRACE)
    shutdown.request(ShutdownMode.DRAIN, 0.0)
    shutdown.request(ShutdownMode.GRACE, 1.0)
    assert shutdown.deadline == 5.0
    shutdown.request(ShutdownMode.DRAIN, 2.0)
    assert (shutdown.mode, shutdown.deadline) == (ShutdownMode.GRACE, 5.0)
