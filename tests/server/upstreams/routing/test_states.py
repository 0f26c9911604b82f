"""The choice of routes: never one that is out while another is in, by weights, and nobody is left out."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_server.settings import CircuitSettings
from openresponses_server.upstreams.routing.routes import session_name
from openresponses_server.upstreams.routing.states import (
    LONGEST,
    PROBE_SECONDS,
    TRANSITIONS,
    Availability,
    Balance,
    Candidate,
    Change,
    Outcome,
    Route,
    Routes,
    State,
)

A, B = Route("a", 0, "m"), Route("b", 0, "m")
QUICK = {name: CircuitSettings(failures=2, seconds=10.0) for name in "abc"}
BALANCES: tuple[Balance, ...] = ("order", "round_robin", "least_busy")


def candidates(*weights: float, keys: int = 1, tiers: bool = False) -> list[Candidate]:
    return [
        Candidate(Route("abcdefgh"[number], key, "m"), number if tiers else 0, weight)
        for number, weight in enumerate(weights)
        for key in range(keys)
    ]


def test_the_table_has_each_state_and_outcome() -> None:
    assert set(TRANSITIONS) == set(State)
    assert all(set(row) == set(Outcome) for row in TRANSITIONS.values())


happening = st.one_of(
    st.tuples(st.just("pass"), st.floats(0, 40)),
    st.tuples(st.just("choose"), st.sampled_from(["", "one", "two"])),
    st.tuples(
        st.sampled_from([Outcome.BEGUN, Outcome.ENDED, Outcome.FAILED, Outcome.TRIPPED, Outcome.LEFT]),
        st.tuples(st.sampled_from("abc"), st.integers(0, 1), st.sampled_from(["route", "key", "upstream"])),
    ),
    st.tuples(
        st.just(Outcome.LIMITED),
        st.tuples(
            st.sampled_from("abc"),
            st.integers(0, 1),
            st.one_of(st.none(), st.floats(-1e300, 1e300), st.just(math.inf)),
        ),
    ),
)


@given(st.lists(happening, max_size=60), st.sampled_from(BALANCES), st.booleans())
def test_never_one_that_is_out_while_another_is_in(
    script: list[object], balance: Balance, tiers: bool
) -> None:
    routes, now = Routes(balance, QUICK), 1000.0
    offered = candidates(1, 2, 3, keys=2, tiers=tiers)
    for what, value in script:  # type: ignore[misc]
        if what == "pass":
            now += value
        elif what == "choose":
            chosen = routes.choose(offered, now, session=value)
            how = {each.route: routes.availability(each.route, now) for each in offered}
            if chosen is None:
                assert set(how.values()) == {Availability.LIMITED}
                continue
            assert how[chosen] is not Availability.LIMITED
            if how[chosen] is Availability.OUT:
                assert not {Availability.IN, Availability.DUE} & set(how.values())
            elif tiers:
                usable = [each for each in offered if how[each.route] in (Availability.IN, Availability.DUE)]
                assert chosen.upstream == usable[0].route.upstream
            if how[chosen] is Availability.DUE:
                routes.probe(chosen, now)
                assert routes.availability(chosen, now) is Availability.OUT  # one request probes it
        elif what is Outcome.LIMITED:
            upstream, key, seconds = value
            routes.record(Route(upstream, key, "m"), what, now, cause="429", seconds=seconds)
        else:
            upstream, key, part = value
            parts = {
                "route": Route(upstream, key, "m"),
                "key": Route(upstream, key),
                "upstream": Route(upstream),
            }
            routes.record(parts[part], what, now, cause="5xx")
        for each in offered:
            assert routes.until(each.route) <= now + LONGEST


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(20, 200))
def test_weights_are_met_and_nobody_starves(weights: list[int], rounds: int) -> None:
    routes, offered = Routes("round_robin"), candidates(*weights)
    chosen = [routes.choose(offered, 0.0) for _ in range(rounds)]
    counts = Counter(each.upstream for each in chosen if each is not None)
    for name, weight in zip("abcdefgh", weights, strict=False):
        assert abs(counts[name] - rounds * weight / sum(weights)) <= len(weights)
    heaviest = math.ceil(sum(weights) / min(weights))
    for stretch in range(0, rounds - 2 * heaviest, heaviest):
        window = {each.upstream for each in chosen[stretch : stretch + 2 * heaviest] if each is not None}
        assert len(window) == len(weights)


def test_sessions_meet_the_weights_and_stay() -> None:
    routes, offered = Routes("round_robin"), candidates(1, 3, keys=2)
    sessions = [session_name("owner", "session", str(number)) for number in range(4000)]
    first = {name: routes.choose(offered, 0.0, session=name) for name in sessions}
    counts = Counter(route.upstream for route in first.values() if route is not None)
    assert abs(counts["a"] - 1000) < 120
    keys = Counter(route.key for route in first.values() if route is not None)
    assert abs(keys[0] - 2000) < 180
    assert all(routes.choose(offered, 0.0, session=name) == route for name, route in first.items())
    # another worker gives them the same ones, and when one is out only its own go elsewhere
    other = Routes("least_busy", QUICK)
    other.record(Route("a", 0, "m"), Outcome.LIMITED, 0.0, cause="429", seconds=30)
    moved = {name for name in sessions if other.choose(offered, 1.0, session=name) != first[name]}
    assert moved == {name for name, route in first.items() if route == Route("a", 0, "m")}
    assert all(other.choose(offered, 31.0, session=name) == route for name, route in first.items())


def test_the_least_busy_is_chosen_by_its_weight() -> None:
    routes, offered = Routes("least_busy"), candidates(1, 2)
    routes.busy = {"a": 1, "b": 1}
    assert routes.choose(offered, 0.0) == B
    routes.busy = {"a": 1, "b": 3}
    assert routes.choose(offered, 0.0) == A
    routes.busy = {"a": 1, "b": 2}
    assert {routes.choose(offered, 0.0) for _ in range(6)} == {A, B}


def test_the_key_that_was_limited_longest_ago_is_taken() -> None:
    routes, offered = Routes(), candidates(1, keys=3)
    seen = []
    for now in range(6):
        chosen = routes.choose(offered, float(10 * now))
        assert chosen is not None
        assert routes.choose(offered, float(10 * now)) == chosen
        seen.append(chosen.key)
        routes.record(chosen, Outcome.LIMITED, float(10 * now), cause="429", seconds=5)
    assert seen == [0, 1, 2, 0, 1, 2]


def test_a_tier_is_left_only_when_nobody_in_it_is_in() -> None:
    routes, offered = Routes("order", QUICK), candidates(1, 1, tiers=True)
    assert routes.choose(offered, 0.0) == A
    assert routes.choose(offered, 0.0, preferred=B) == A
    routes.record(A, Outcome.LIMITED, 0.0, cause="429", seconds=3)
    assert routes.choose(offered, 0.0) == B
    assert routes.choose(offered, 3.0) == A
    assert routes.choose(offered, 3.0, tried=[A]) == B
    assert routes.choose(offered, 3.0, avoided=["a"]) == B
    assert routes.choose(offered, 3.0, tried=[B], avoided=["a"]) == A


def test_a_circuit_opens_is_probed_by_one_and_closes() -> None:
    routes, now = Routes("order", QUICK), 0.0
    offered = candidates(1, 1, tiers=True)
    assert not routes.record(A, Outcome.FAILED, now, cause="5xx")
    assert [change.state for change in routes.record(A, Outcome.FAILED, now, cause="5xx")] == [State.OPEN]
    assert not routes.record(A, Outcome.FAILED, now, cause="5xx")  # a request made before
    assert routes.choose(offered, 9.9) == B
    assert routes.choose(offered, 10.0) == A
    routes.probe(A, 10.0)
    assert routes.choose(offered, 10.0) == B
    routes.record(A, Outcome.FAILED, 11.0, cause="5xx")
    assert routes.choose(offered, 30.9) == B  # for twice as long
    assert routes.choose(offered, 31.0) == A
    routes.probe(A, 31.0)
    assert routes.choose(offered, 31.0 + PROBE_SECONDS - 1) == B
    routes.record(A, Outcome.BEGUN, 32.0)
    assert routes.choose(offered, 32.0) == A
    # until an answer has ended well, one failure is enough
    assert routes.record(A, Outcome.FAILED, 33.0, cause="5xx")
    routes.record(A, Outcome.BEGUN, 34.0)
    routes.record(A, Outcome.ENDED, 35.0)
    assert not routes.conditions


def test_a_probe_whose_client_left_is_made_again_at_once() -> None:
    routes = Routes("order", QUICK)
    routes.record(A, Outcome.TRIPPED, 0.0, cause="401")
    routes.probe(A, 10.0)
    assert routes.is_probed(A)
    routes.record(A, Outcome.LEFT, 11.0)
    assert routes.availability(A, 11.0) is Availability.DUE


@pytest.mark.parametrize("seconds", [1e300, math.inf, -1e300, -math.inf, math.nan, 0.0, None])
def test_a_hostile_wait_is_bounded(seconds: float | None) -> None:
    routes = Routes()
    for now in range(40):
        routes.record(A, Outcome.LIMITED, float(now), cause="429", seconds=seconds)
        assert 0.0 <= routes.until(A) <= now + LONGEST
    assert routes.availability(A, 40.0 + LONGEST) is Availability.IN


def test_a_dead_key_is_out_for_all_models_and_a_connection_for_all_keys() -> None:
    routes = Routes("order", QUICK)
    routes.record(Route("a", 0), Outcome.TRIPPED, 0.0, cause="401")
    assert routes.availability(Route("a", 0, "other"), 1.0) is Availability.OUT
    assert routes.availability(Route("a", 1, "m"), 1.0) is Availability.IN
    for _ in range(2):
        routes.record(Route("a"), Outcome.FAILED, 1.0, cause="connection")
    assert routes.availability(Route("a", 1, "m"), 1.0) is Availability.OUT


def test_what_another_worker_says_is_bounded_too() -> None:
    routes = Routes()
    routes.apply(Change(A, State.LIMITED, 1e12, 1e12, "429"), 5.0)
    assert routes.until(A) == 5.0 + LONGEST
    routes.apply(Change(A, State.CLOSED, 0.0, -math.inf, ""), 6.0)
    assert routes.availability(A, 6.0) is Availability.IN
    assert not list(routes.changes(6.0))


def test_what_is_known_is_bounded() -> None:
    routes = Routes()
    for number in range(5000):
        routes.record(Route("a", 0, f"made up {number}"), Outcome.LIMITED, 0.0, cause="429", seconds=9)
    assert len(routes.conditions) == 4096
