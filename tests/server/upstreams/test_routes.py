"""The choice of one request: what it reports of the routes that it has asked."""

import asyncio
from typing import Any

import pytest

from openresponses_bridge.seal import Sealer
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import CircuitSettings, Settings, UpstreamSettings
from openresponses_server.upstreams.choice import Availability, Outcome, Route, Routes, State
from openresponses_server.upstreams.routes import RouteTable, Tried, tried_header
from openresponses_server.upstreams.routing import build_router
from openresponses_server.upstreams.targets import Target

pytestmark = pytest.mark.anyio
BROKEN = UpstreamError(500, "x")
LOST = UpstreamError(502, "x", code=UpstreamError.UNREACHABLE)


class Bench:
    """Two upstreams with two keys each, whose circuits open after two failures."""

    def __init__(self, **more: Any) -> None:
        circuit = CircuitSettings(failures=2, seconds=10.0)
        upstreams = [
            UpstreamSettings(
                name=name,
                url="http://127.0.0.1:9",
                models=["m"],
                api_keys=["one", "two"],
                circuit=circuit,
                **more,
            )
            for name in ("a", "b")
        ]
        first = build_router(Settings(upstreams=upstreams), Sealer()).resolve("m")
        self.targets = (first._replace(fallbacks=()), *first.fallbacks)
        self.now = 100.0
        routes = Routes("order", dict.fromkeys("ab", circuit))
        self.table = RouteTable(routes, ["a", "b"], clock=lambda: self.now)

    def how(self, target: Target) -> Availability:
        return self.table.routes.availability(target.candidate.route, self.now)


async def test_after_a_broken_upstream_another_one_and_after_a_key_another_key() -> None:
    bench = Bench()
    choice = bench.table.choice(bench.targets)
    first = await choice.first(bench.targets[0])
    second = await choice.after(first, BROKEN)
    assert second is not None
    third = await choice.after(second, UpstreamError(429, "x"))
    assert third is not None
    fourth = await choice.after(third, LOST)
    assert fourth is not None
    asked = [each.candidate.route[:2] for each in (first, second, third, fourth)]
    assert asked == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    assert await choice.after(fourth, BROKEN) is None
    assert tried_header(choice.tried) == {"openresponses-tried": "a 5xx, b 429, b connection, a 5xx"}
    assert bench.table.routes.busy == {"a": 0, "b": 0}


async def test_what_fails_counts_when_another_has_answered() -> None:
    bench = Bench()
    for failures in (1, 2):
        choice = bench.table.choice(bench.targets)
        first = await choice.first(bench.targets[0])
        second = await choice.after(first, LOST)
        assert second is not None
        assert Route("a") not in bench.table.routes.conditions or failures == 2
        choice.begin(second)
        choice.end(None)
    assert bench.how(bench.targets[0]) is bench.how(bench.targets[1]) is Availability.OUT
    assert bench.table.routes.conditions[Route("a")].state is State.OPEN
    # one request probes it, and its failure keeps it out though nobody has answered
    bench.now += 10
    probe = bench.table.choice(bench.targets)
    target = await probe.first(bench.targets[0])
    assert target.candidate.route.upstream == "a"
    assert bench.how(bench.targets[1]) is Availability.OUT
    await probe.after(target, LOST)
    probe.end(asyncio.CancelledError())
    bench.now += 10
    assert bench.how(bench.targets[0]) is Availability.OUT
    bench.now += 10
    assert bench.how(bench.targets[0]) is Availability.DUE


async def test_a_client_that_leaves_gives_the_probe_back() -> None:
    bench = Bench()
    for target in bench.targets[:2]:
        bench.table.record(Route("a", target.candidate.route.key), Outcome.TRIPPED, "401")
    bench.table.record(Route("b"), Outcome.TRIPPED, "connection")
    bench.now += 10
    choice = bench.table.choice(bench.targets)
    first = await choice.first(bench.targets[0])
    second = await choice.after(first, BROKEN)
    assert second is not None
    assert second.candidate.route.upstream == "b"
    assert bench.table.routes.is_probed(second.candidate.route)
    choice.end(asyncio.CancelledError())
    assert bench.how(second) is Availability.DUE


async def test_an_answer_that_is_cut_counts_and_one_that_ends_well_forgives() -> None:
    bench = Bench()
    route = bench.targets[0].candidate.route
    for error in (UpstreamError(502, "x", code=UpstreamError.DISCONNECTED, failover="5xx"), None) * 3:
        choice = bench.table.choice(bench.targets)
        choice.begin(await choice.first(bench.targets[0]))
        choice.end(error)
    assert route not in bench.table.routes.conditions
    for _ in range(2):
        choice = bench.table.choice(bench.targets)
        choice.begin(await choice.first(bench.targets[0]))
        choice.end(UpstreamError(504, "x", code=UpstreamError.TIMEOUT))
    assert bench.how(bench.targets[0]) is Availability.OUT


async def test_choices_of_one_request_are_counted_once_and_ask_the_same() -> None:
    bench = Bench(options={"takes_n": True})
    shared = [target.for_choices(3) for target in bench.targets]
    for number in range(3):
        targets = [target.of_choice(number) for target in shared]
        choice = bench.table.choice(targets)
        first = await choice.first(targets[0])
        second = await choice.after(first, BROKEN)
        assert second is targets[1]
        choice.begin(second)
        choice.end(None)
    assert bench.table.routes.conditions[bench.targets[0].candidate.route].failures == 1


async def test_a_limit_of_all_says_when_the_first_is_over() -> None:
    bench = Bench()
    for seconds, target in enumerate(bench.targets, 7):
        bench.table.record(target.candidate.route, Outcome.LIMITED, "429", float(seconds))
    with pytest.raises(UpstreamError) as raised:
        await bench.table.choice(bench.targets).first(bench.targets[0])
    assert (raised.value.http_status, raised.value.headers["retry-after"]) == (429, "7")
    assert not raised.value.counts


def test_names_that_no_header_takes_are_replaced() -> None:
    found = tried_header([Tried("östlich\r\nx: y", "429")] * 100)["openresponses-tried"]
    assert found.isascii()
    assert found.isprintable()
    assert len(found) <= 500
