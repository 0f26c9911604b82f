"""An exchange that is cancelled at any await leaves nothing: no request in progress, claim or open reply."""

from collections.abc import Generator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pytest

from openresponses_bridge.seal import Sealer
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import Retries, Settings, UpstreamSettings
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.routing.attempts import Attempt, Attempts
from openresponses_server.upstreams.routing.models import build_router
from openresponses_server.upstreams.routing.routes import RouteChoice, RouteTable
from openresponses_server.upstreams.routing.states import Outcome, Route, Routes
from openresponses_server.upstreams.targets import Target

BROKEN = UpstreamError(500, "x")
LIMITED = UpstreamError(429, "x")
ASKED = UpstreamRequest("/x", b"{}", "req_1")


class Cancelled(BaseException):
    """As asyncio's, without a loop."""


class Pause:
    """One await that something else may happen in."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Played:
    """An upstream that answers as it is told to, then well. `open_replies` are those that were not closed."""

    forwards = False

    def __init__(self, name: str, outcomes: Sequence[UpstreamError | None]) -> None:
        self.name, self.outcomes, self.open_replies = name, list(outcomes), 0

    def open(self, _request: UpstreamRequest) -> Any:
        return self

    def clean(self, text: str, _key: str | None = None) -> str:
        return text

    async def __aenter__(self) -> object:
        await Pause()
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        self.open_replies += 1
        return SimpleNamespace(losses="", whole=False)

    async def __aexit__(self, *_: object) -> None:
        self.open_replies -= 1
        await Pause()


class Claims:
    """Other workers, which let this one probe."""

    def __init__(self) -> None:
        self.held: set[Route] = set()

    def publish(self, changes: Sequence[Any]) -> None:
        self.held -= {each.part for each in changes if each.state.value != "half_open"}

    async def claim(self, part: Route) -> bool:
        self.held.add(part)
        await Pause()
        return True

    def release(self, part: Route) -> None:
        self.held.discard(part)

    def remember(self, name: str, route: Route) -> None:
        """Not asked for."""

    async def recall(self, name: str) -> Route | None:
        return None


@cache
def targets(names: str) -> tuple[Target, ...]:
    upstreams = [UpstreamSettings(name=name, url="http://127.0.0.1:9", models=["m"]) for name in names]
    first = build_router(Settings(upstreams=upstreams), Sealer()).resolve("m")
    return first, *first.fallbacks


class Bench:
    """An exchange over routes whose first one may be due for a probe."""

    def __init__(self, names: str, outcomes: Sequence[UpstreamError | None], *, due: bool) -> None:
        self.now = 100.0
        self.table = RouteTable(Routes(), list(names), clock=lambda: self.now)
        self.claims = self.table.shared = Claims()
        self.upstreams = [Played(name, outcomes if not number else ()) for number, name in enumerate(names)]
        candidates = [
            each._replace(upstream=cast(Any, upstream), fallbacks=(), failover_on=frozenset({"5xx", "429"}))
            for each, upstream in zip(targets(names), self.upstreams, strict=True)
        ]
        self.target = candidates[0]._replace(
            fallbacks=tuple(candidates[1:]), retries=Retries(times=1, first_wait=1.0)
        )
        if due:
            self.table.record(self.target.candidate.route, Outcome.TRIPPED, "5xx")
            self.now += 700.0

    async def use(self, *, refused_late: bool) -> None:
        """Ask; if the answer is `refused_late`, ask again as it begins."""

        async def prepare(target: Target) -> Attempt:
            await Pause()
            return Attempt(target, ASKED, [])

        async def wait(_seconds: float) -> None:
            await Pause()

        def ignore(*_: object) -> None:
            return None

        choice = RouteChoice(self.table, (self.target, *self.target.fallbacks))
        attempts = Attempts(self.target, prepare, ignore, ignore, choice, wait=wait)
        async with attempts:
            await Pause()
            if refused_late and attempts.replaceable is not None:
                await attempts.ask_instead(BROKEN)
            attempts.commit()
            await Pause()


def cancel_at(awaits: int, coroutine: Any) -> bool:
    """Cancel the coroutine at this one of its awaits; return True if it has so many."""
    try:
        for _ in range(awaits):
            coroutine.send(None)
    except (StopIteration, UpstreamError):
        return False
    try:
        coroutine.throw(Cancelled())
        while True:
            coroutine.send(None)
    except Cancelled:
        return True


@pytest.mark.parametrize("due", [False, True])
@pytest.mark.parametrize("names", ["a", "ab", "abc"])
@pytest.mark.parametrize(
    "outcomes", [(), (BROKEN, BROKEN), (LIMITED, LIMITED), (BROKEN, None), (BROKEN, BROKEN, BROKEN)]
)
@pytest.mark.parametrize("refused_late", [False, True])
def test_nothing_is_left_wherever_an_exchange_is_cancelled(
    names: str, outcomes: Sequence[UpstreamError | None], due: bool, refused_late: bool
) -> None:
    awaits, goes_on = 0, True
    while goes_on:
        awaits += 1
        bench = Bench(names, outcomes, due=due)
        goes_on = cancel_at(awaits, bench.use(refused_late=refused_late))
        assert set(bench.table.routes.busy.values()) <= {0}
        assert [each.open_replies for each in bench.upstreams] == [0] * len(names)
        assert not bench.claims.held
    assert awaits > 3
