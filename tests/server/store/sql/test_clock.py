"""The clock of a server, from answers that take their time."""

import time
from types import SimpleNamespace

import pytest

from openresponses_server.store.sql.postgres import ServerClock


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """This machine's monotonic clock, which a test moves."""
    monotonic = SimpleNamespace(now=50.0)
    module = SimpleNamespace(monotonic=lambda: monotonic.now)
    monkeypatch.setattr("openresponses_server.store.sql.postgres.time", module)
    return monotonic


def test_time_goes_on_from_what_was_reported(here: SimpleNamespace) -> None:
    clock = ServerClock()
    assert clock.doubtful
    here.now += 0.2
    clock.set(1_000.1, asked_at=50.0)
    assert clock.now() == pytest.approx(1_000.2)
    assert not clock.doubtful
    here.now += 6
    assert clock.doubtful
    assert clock.now() == pytest.approx(1_006.2)


def test_answer_that_took_long_does_not_move_the_clock(here: SimpleNamespace) -> None:
    """It may be wrong by as much: a process without CPU would put its leases, or others' ends, far off."""
    clock = ServerClock()
    clock.set(1_000.0, asked_at=50.0)
    here.now += 10
    clock.set(1_006.1, asked_at=56.0)
    assert clock.now() == pytest.approx(1_010.0)
    assert not clock.doubtful


def test_step_of_the_servers_clock_is_followed(here: SimpleNamespace) -> None:
    clock = ServerClock()
    clock.set(1_000.0, asked_at=50.0)
    here.now += 6
    clock.set(2_000.0, asked_at=here.now)
    assert clock.now() == pytest.approx(2_000.0)


def test_step_is_followed_at_once_by_an_answer_that_is_slower_than_those_before(
    here: SimpleNamespace,
) -> None:
    """Else workers would differ by the step for as long: one would find the leases of another over."""
    clock = ServerClock()
    clock.set(1_000.0, asked_at=50.0)
    here.now += 6
    clock.set(4_606.0, asked_at=here.now - 0.05)
    assert clock.now() == pytest.approx(4_606.0, abs=0.05)
    here.now += 6
    clock.set(1_012.0, asked_at=here.now - 0.2)
    assert clock.now() == pytest.approx(1_012.0, abs=0.2)


def test_first_answer_is_taken_however_long_it_took(here: SimpleNamespace) -> None:
    clock = ServerClock()
    here.now += 10
    clock.set(time.time(), asked_at=50.0)
    assert clock.now() == pytest.approx(time.time() + 5, abs=1)
