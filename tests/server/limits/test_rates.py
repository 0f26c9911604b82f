"""Requests and tokens a minute, counted in this process."""

import pytest

from openresponses_bridge.dialects.base import LimitState, openai_limit_headers
from openresponses_bridge.dialects.table import surfaces
from openresponses_server.limits.rates import LONGEST_DEBT, MINUTE, Buckets, Rates, Used, decision
from tests.support.clocks import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


def ask(buckets: Buckets, rates: Rates, owner: str = "k") -> float:
    """One request; the seconds to wait, 0 when it was admitted."""
    outcome = decision(rates, buckets.used(owner))
    if outcome.over is None:
        buckets.begin(owner)
        return 0.0
    return outcome.wait


@pytest.mark.parametrize("limit", [1, 3, 7, 59, 60, 1000])
def test_s8_exactly_as_many_requests_as_the_limit_says_at_once_then_evenly(clock: Clock, limit: int) -> None:
    rates = Rates(limit, None)
    buckets = Buckets(lambda _owner: rates, clock)
    assert [ask(buckets, rates) for _ in range(limit)] == [0.0] * limit
    wait = ask(buckets, rates)
    assert wait == pytest.approx(MINUTE / limit)
    clock.now += wait / 2
    assert ask(buckets, rates) == pytest.approx(wait / 2)
    clock.now += wait / 2
    assert ask(buckets, rates) == 0.0
    assert ask(buckets, rates) > 0


def test_s8_keys_do_not_take_from_each_other(clock: Clock) -> None:
    rates = Rates(1, None)
    buckets = Buckets(lambda _owner: rates, clock)
    assert (ask(buckets, rates, "a"), ask(buckets, rates, "b")) == (0.0, 0.0)
    assert ask(buckets, rates, "a") > 0


def test_s8_tokens_are_a_debt_that_has_to_be_worked_off(clock: Clock) -> None:
    rates = Rates(None, 600)
    buckets = Buckets(lambda _owner: rates, clock)
    assert ask(buckets, rates) == 0.0
    buckets.spend("k", 599)
    assert ask(buckets, rates) == 0.0
    buckets.spend("k", 601)
    assert ask(buckets, rates) == pytest.approx(60)
    clock.now += 59.9
    assert ask(buckets, rates) > 0
    clock.now += 0.2
    assert ask(buckets, rates) == 0.0


@pytest.mark.parametrize("reported", [10**30, 2**63, -5, 0])
def test_s8_reported_tokens_of_any_size_lock_nobody_out_for_ever(clock: Clock, reported: int) -> None:
    rates = Rates(None, 10)
    buckets = Buckets(lambda _owner: rates, clock)
    for _ in range(3):
        buckets.spend("k", reported)
    assert 0 <= ask(buckets, rates) <= LONGEST_DEBT
    clock.now += LONGEST_DEBT + 1
    assert ask(buckets, rates) == 0.0


def test_s8_the_limit_that_is_farther_off_is_named(clock: Clock) -> None:
    rates = Rates(60, 60)
    outcome = decision(rates, Used(60.0, 90.0))
    assert (outcome.over, outcome.wait) == (LimitState("tokens", 60, 0, 90.0), 30.0)
    outcome = decision(rates, Used(60.0, 60.5))
    assert outcome.over is not None
    assert (outcome.over.name, outcome.wait) == ("requests", 1.0)


def test_s8_a_flood_of_new_keys_leaves_nothing_behind(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = Rates(60, None)
    buckets = Buckets(lambda _owner: rates, clock)
    for number in range(1000):
        clock.now += 0.1
        buckets.begin(f"key-{number}")
    assert len(buckets) < 30
    monkeypatch.setattr("openresponses_server.limits.rates._MOST_KEYS", 50)
    for number in range(1000):
        buckets.begin(f"other-{number}")
    assert len(buckets) <= 50


def test_headers_say_limit_rest_and_time() -> None:
    standing = LimitState("requests", 60, 12, 63.2)
    assert dict(openai_limit_headers(standing, 0.0)) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "12",
        "x-ratelimit-reset-requests": "1m4s",
    }
    assert dict(surfaces()["anthropic"].limit_headers(standing, 0.0)) == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "12",
        "anthropic-ratelimit-requests-reset": "1970-01-01T00:01:04Z",
    }


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "0ms"), (0.0101, "11ms"), (1.0, "1s"), (59.2, "1m0s"), (3600, "60m0s")]
)
def test_durations_are_written_as_openai_does(seconds: float, said: str) -> None:
    state = LimitState("tokens", 1, 0, seconds)
    assert dict(openai_limit_headers(state, 0.0))["x-ratelimit-reset-tokens"] == said
