"""The choice of one request: what it reports of the routes that it has asked."""

import asyncio
from collections.abc import Iterator
from itertools import cycle, repeat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer
from openresponses_server.errors import FailureFacts, UpstreamError
from openresponses_server.settings import CircuitSettings, Settings, UpstreamSettings
from openresponses_server.upstreams.refusals import refusal
from openresponses_server.upstreams.routing.models import build_router
from openresponses_server.upstreams.routing.routes import RouteChoice, RouteTable, Tried, tried_header
from openresponses_server.upstreams.routing.states import Availability, Outcome, Route, Routes, State
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
    choice = RouteChoice(bench.table, bench.targets)
    first = await choice.first(bench.targets[0])
    second = await choice.after(first, BROKEN)
    assert second is not None
    third = await choice.after(second, UpstreamError(429, "x"))
    assert third is not None
    fourth = await choice.after(third, LOST)
    assert fourth is not None
    routes = [each.candidate.route[:2] for each in (first, second, third, fourth)]
    assert routes == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    assert await choice.after(fourth, BROKEN) is None
    assert tried_header(choice.tried) == {"openresponses-tried": "a 5xx, b 429, b connection, a 5xx"}
    assert bench.table.routes.busy == {"a": 0, "b": 0}


async def test_what_fails_counts_when_another_has_answered() -> None:
    bench = Bench()
    for failures in (1, 2):
        choice = RouteChoice(bench.table, bench.targets)
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
    probe = RouteChoice(bench.table, bench.targets)
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
    choice = RouteChoice(bench.table, bench.targets)
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
    for error in (
        UpstreamError(502, "x", code=UpstreamError.DISCONNECTED, facts=FailureFacts(failover="5xx")),
        None,
    ) * 3:
        choice = RouteChoice(bench.table, bench.targets)
        choice.begin(await choice.first(bench.targets[0]))
        choice.end(error)
    assert route not in bench.table.routes.conditions
    for _ in range(2):
        choice = RouteChoice(bench.table, bench.targets)
        choice.begin(await choice.first(bench.targets[0]))
        choice.end(UpstreamError(504, "x", code=UpstreamError.TIMEOUT))
    assert bench.how(bench.targets[0]) is Availability.OUT


async def test_choices_of_one_request_are_counted_once_and_ask_the_same() -> None:
    bench = Bench(options={"takes_n": True})
    shared = [target.for_choices(3) for target in bench.targets]
    for number in range(3):
        targets = [target.of_choice(number) for target in shared]
        choice = RouteChoice(bench.table, targets)
        first = await choice.first(targets[0])
        second = await choice.after(first, BROKEN)
        assert second is targets[1]
        choice.begin(second)
        choice.end(None)
    assert bench.table.routes.conditions[bench.targets[0].candidate.route].failures == 1


async def test_when_all_are_limited_the_one_whose_limit_is_over_first_is_asked() -> None:
    bench = Bench()
    for seconds, target in zip((9, 8, 7, 10), bench.targets, strict=True):
        bench.table.record(target.candidate.route, Outcome.LIMITED, "429", float(seconds))
    choice = RouteChoice(bench.table, bench.targets)
    first = await choice.first(bench.targets[0])
    assert first is bench.targets[2]
    assert await choice.after(first, UpstreamError(429, "x")) is None, "and no other"
    assert not any(bench.table.routes.busy.values())


# ── what one owner's requests take from another owner ─────────────────────────────────────────────────────

OF_THE_REQUEST = [
    (429, {"error": {"type": "rate_limit_error", "message": words}})
    for words in (
        "Extra usage is required for long context requests.",
        "Request too large for m on tokens per min (TPM): Limit 9, Requested 99",
        "You're out of extra usage.",
    )
]
OF_THE_REQUEST += [
    (402, {"error": {"message": "requires more credits, or fewer max_tokens. You can only afford 3"}}),
    (400, {"error": {"message": "Incorrect API key provided: Extra inputs are not permitted"}}),
    (400, {"error": {"message": "Your credit balance is too low: Extra inputs are not permitted"}}),
    (413, {"error": {"message": "Request too large"}}),
    (422, {"detail": [{"loc": ["body", "insufficient balance"], "msg": "Extra inputs are not permitted"}]}),
    (404, {"error": {"code": "model_not_found", "message": "x"}}),
    (403, {"error": {"code": "permission_denied", "message": "x"}}),
]
OF_ANYTHING = [
    *OF_THE_REQUEST,
    (429, {"error": {"message": "slow down"}}),
    (401, {"error": {"message": "no"}}),
    (402, {"error": {"message": "no"}}),
    (500, {}),
    (400, {"error": {"code": "invalid_api_key", "message": "no"}}),
    (529, {"error": {"type": "overloaded_error", "message": "no"}}),
]


async def refuse_all(bench: Bench, refusals: Iterator[tuple[int, Any]]) -> None:
    """One request, which each upstream that it is sent to refuses."""
    choice = RouteChoice(bench.table, bench.targets)
    target: Target | None = await choice.first(bench.targets[0])
    while target is not None:
        status, body = next(refusals)
        headers = {"retry-after": "600"} if status == 429 else {}
        target = await choice.after(target, refusal(status, headers, encode(body), str, "no"))
    choice.end(None)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(OF_THE_REQUEST), max_size=40), st.floats(0.0, 30.0))
def test_s10_a_request_that_is_refused_for_what_it_asks_leaves_no_route_out(
    refused: list[tuple[int, Any]], pause: float
) -> None:
    async def run() -> None:
        bench = Bench()
        for each in refused:
            await refuse_all(bench, repeat(each))
            bench.now += pause
        assert bench.table.outs() == []
        assert all(bench.how(each) is Availability.IN for each in bench.targets)

    asyncio.run(run())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(OF_ANYTHING), max_size=40), st.floats(0.0, 30.0))
def test_s10_another_owner_s_request_is_sent_to_an_upstream_whatever_was_refused_before(
    refused: list[tuple[int, Any]], pause: float
) -> None:
    """As it is where there is one upstream, which is always asked."""

    async def run() -> None:
        bench = Bench()
        for number in range(len(refused)):
            await refuse_all(bench, cycle(refused[number:]))
            bench.now += pause
            other = RouteChoice(bench.table, bench.targets)
            assert await other.first(bench.targets[0]) in bench.targets
            other.end(None)

    asyncio.run(run())


class Claiming:
    """Other workers, whose claims hang."""

    def __init__(self) -> None:
        self.released: list[Route] = []
        self.asked = asyncio.Event()

    def publish(self, changes: Any) -> None:
        """Nobody hears of it."""

    async def claim(self, part: Route) -> bool:
        self.asked.set()
        await asyncio.Event().wait()
        return True

    def release(self, part: Route) -> None:
        self.released.append(part)

    def remember(self, name: str, route: Route) -> None:
        """It is forgotten."""

    async def recall(self, name: str) -> Route | None:
        return None


async def test_a_probe_that_is_cancelled_while_it_is_claimed_gives_the_claim_back() -> None:
    bench = Bench()
    part = bench.targets[0].candidate.route
    bench.table.record(part, Outcome.TRIPPED, "401")
    bench.now += 11.0
    shared = bench.table.shared = Claiming()
    asking = asyncio.create_task(RouteChoice(bench.table, bench.targets).first(bench.targets[0]))
    await shared.asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert shared.released == [part]
    assert bench.how(bench.targets[0]) is Availability.DUE


def test_names_that_no_header_takes_are_replaced() -> None:
    header = tried_header([Tried("östlich\r\nx: y", "429")] * 100)["openresponses-tried"]
    assert header.isascii()
    assert header.isprintable()
    assert len(header) <= 500
