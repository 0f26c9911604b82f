"""The routes of a process as its requests use them, with the outcomes that they report and what other workers
know."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import structlog

from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.base import called
from openresponses_server.upstreams.choice import (
    Affinity,
    Availability,
    Candidate,
    Change,
    Outcome,
    Route,
    Routes,
    State,
)
from openresponses_server.upstreams.refusals import seconds_of
from openresponses_server.upstreams.targets import Configured, Target

TRIED_HEADER: Final = "openresponses-tried"
"""The header of an answer that names the upstreams that were asked before, with the cause of each."""
_OF_KEYS: Final = frozenset({"401", "402", "403", "429"})  # another key of the same upstream may do
_DEAD_KEY: Final = frozenset({"401", "402"})
_LONGEST_HEADER: Final = 500  # characters
_LONGEST_MODEL: Final = 200
_MOST_LISTED: Final = 200  # models of an upstream that are out
_log = structlog.get_logger(__name__)


class Shared(Protocol):
    """What the workers of a server know together."""

    def publish(self, changes: Sequence[Change]) -> None:
        """Send these changes to the other workers, soon."""
        ...

    async def claim(self, part: Route) -> bool:
        """Whether this worker is the one that probes."""
        ...

    def remember(self, name: str, route: Route) -> None:
        """Keep the route of what a session may continue, soon."""
        ...

    async def recall(self, name: str) -> Route | None:
        """The route that a worker has kept under this name."""
        ...


class Tried(NamedTuple):
    """An upstream that was asked in vain, and why, as in the setting `failover_on`."""

    upstream: str
    cause: str

    def __str__(self) -> str:
        return f"{self.upstream} {self.cause}"


def tried_header(tried: Sequence[Tried]) -> dict[str, str]:
    """The header, when there is something to say: bounded, and printable ASCII whatever the names."""
    if not tried:
        return {}
    text = ", ".join(map(str, tried))[:_LONGEST_HEADER]
    shown = "".join(char if char.isascii() and char.isprintable() else "?" for char in text)
    return {TRIED_HEADER: shown}


def _ignore(_upstream: str, _cause: str) -> None:
    return None


class RouteTable:
    """One per process. `names` are those of the upstreams; `clock` gives seconds; `moved` is called with the
    name of each upstream in whose place another route is asked, and the cause."""

    def __init__(
        self,
        routes: Routes,
        names: Sequence[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
        moved: Callable[[str, str], None] = _ignore,
    ) -> None:
        self.routes = routes
        self._names = names
        self.clock = clock
        self.moved = moved
        self.affinity = Affinity()
        self.shared: Shared | None = None
        """What other workers know; None: there are no others."""

    def choice(self, targets: Sequence[Target], asked: Target | None = None) -> RouteChoice:
        """The choice of one request among these targets, of which one may have been asked already, and is
        counted as busy."""
        return RouteChoice(self, targets, asked)

    def record(self, part: Route, outcome: Outcome, cause: str = "", seconds: float | None = None) -> None:
        """An outcome of a route, or of a part of it."""
        self.changed(self.routes.record(part, outcome, self.clock(), cause=cause, seconds=seconds))

    def changed(self, changes: Sequence[Change]) -> None:
        """Log these changes, and share them."""
        for each in changes:
            write = _log.info if each.state in (State.CLOSED, State.HALF_OPEN) else _log.warning
            write(f"route.{each.state.value}", **self._shown(each))
        if changes and self.shared is not None:
            self.shared.publish(changes)

    def _shown(self, change: Change) -> dict[str, str | int | float]:
        part, shown = change.part, {"upstream": change.part.upstream}
        found: dict[str, str | int | float] = {**shown}
        if part.key is not None:
            found["key"] = part.key + 1
        if part.model is not None:
            found["model"] = part.model[:_LONGEST_MODEL]
        if change.state is not State.CLOSED:
            found |= {"cause": change.cause, "seconds": round(max(change.until - self.clock(), 0.0), 1)}
        return found

    def outs(self) -> list[Change]:
        """The parts of routes that are out."""
        return list(self.routes.changes(self.clock()))

    def counts(self) -> Iterator[tuple[str, str, int]]:
        """(upstream, state, how many parts of its routes are in it), for all states but `closed`."""
        found = Counter((each.part.upstream, each.state.value) for each in self.outs())
        for name in self._names:
            for state in State:
                if state is not State.CLOSED:
                    yield name, state.value, found[name, state.value]

    def listed(self, configured: Iterable[Configured]) -> list[dict[str, Any]]:
        """Each key of each upstream, then the models with a key that are out, as objects for operators."""
        rows: list[dict[str, Any]] = []
        outs = {each.part: each for each in self.outs()}
        for each in configured:
            ends = [end() for end in each.key_ends] or [""]
            for number in range(len(each.upstreams)):
                parts = (Route(each.name, number), Route(each.name))
                known = next((outs[part] for part in parts if part in outs), None)
                rows.append(self._row(Route(each.name, number), known, ends[number]))
            models = [part for part in outs if part.upstream == each.name and part.model is not None]
            for part in models[:_MOST_LISTED]:
                rows.append(self._row(part, outs[part], ends[part.key or 0]))
        return rows

    def _row(self, part: Route, known: Change | None, key_end: str) -> dict[str, Any]:
        until = None if known is None else math.ceil(time.time() + known.until - self.clock())
        return {
            "upstream": part.upstream,
            "key": (part.key or 0) + 1,
            "key_end": key_end,
            "model": None if part.model is None else part.model[:_LONGEST_MODEL],
            "state": State.CLOSED.value if known is None else known.state.value,
            "cause": None if known is None else known.cause,
            "cooldown_until": until,
            "in_progress": self.routes.busy.get(part.upstream, 0),
        }

    async def recall(self, name: str) -> Route | None:
        """The route of what a session continues."""
        found = self.affinity.get(name)
        if found is None and self.shared is not None:
            found = await self.shared.recall(name)
        return found

    def remember(self, name: str, route: Route) -> None:
        """This route has answered what a session may continue."""
        self.affinity.put(name, route)
        if self.shared is not None:
            self.shared.remember(name, route)


class RouteChoice:
    """The routes of one request: which is asked first, which after a failure, and what becomes of each.

    The targets of choices that share requests are asked in their order, since all have to ask the same one.
    """

    def __init__(self, table: RouteTable, targets: Sequence[Target], asked: Target | None) -> None:
        self.tried: list[Tried] = []
        """The upstreams that were asked in vain, if there was more than one to ask."""
        self._table = table
        self._targets: dict[Route, Target] = {}
        self._candidates: list[Candidate] = []
        self._in_order = self._is_one_of_many = False
        for each in targets:
            candidate, choice = each.candidate, each.choice
            self._targets[candidate.route] = each
            self._candidates.append(candidate)
            if choice is not None:
                self._in_order = True
                self._is_one_of_many = self._is_one_of_many or choice > 0  # the first choice reports for all
        self.session = ""
        """The name of its session, "" without one."""
        self.preferred: Route | None = None
        """The one that has answered what the request continues."""
        self._failed: dict[Route, str] = {}
        self._without_end: list[tuple[Route, str]] = []
        self._avoided: set[str] = set()
        self._current = None if asked is None else asked.candidate.route
        self._begun = False

    def peek(self) -> Target | None:
        """The target that a request would begin with now; None if all are limited."""
        found = self._table.routes.choose(
            self._candidates, self._table.clock(), session=self.session, preferred=self.preferred
        )
        return None if found is None else self._targets[found]

    def takes(self, wanted: Target) -> bool:
        """Whether the `wanted` target is asked first: it is in, or there is no other order."""
        routes, route = self._table.routes, wanted.candidate.route
        if (
            routes.conditions
            and not self._in_order
            and routes.availability(route, self._table.clock()) is not Availability.IN
        ):
            return False
        self._hold(route)
        return True

    async def first(self, wanted: Target) -> Target:
        """The target to ask first: the `wanted` one as long as it is in. Raises UpstreamError 429 if all are
        limited."""
        if self.takes(wanted):
            return wanted
        found = await self._next()
        if found is None:
            raise self._limited()
        return found

    async def after(self, target: Target, error: UpstreamError) -> Target | None:
        """The target to ask after this refusal; None if that is the answer."""
        route = target.candidate.route
        self._failed[route] = error.failover
        self.release()
        self._record(route, error)
        found = None
        if error.failover in target.failover_on:
            if error.failover not in _OF_KEYS:
                self._avoided.add(route.upstream)
            found = await self._next()
        if found is not None or self.tried:
            self.tried.append(Tried(route.upstream, error.failover or str(error.http_status)))
        if found is not None:
            self._table.moved(route.upstream, error.failover)
        return found

    async def after_unfit(self, target: Target) -> Target | None:
        """The target to ask in the place of one that the request can't be translated for."""
        self._failed[target.candidate.route] = ""
        self.release()
        self._table.record(target.candidate.route, Outcome.LEFT)
        return await self._next()

    def has_other(self, target: Target) -> bool:
        """Whether another route has not failed."""
        return bool(self._targets.keys() - self._failed.keys() - {target.candidate.route})

    def has_other_key(self, target: Target, error: UpstreamError) -> bool:
        """Whether this refusal is one of the key, and another key of the upstream is in."""
        if error.failover not in _OF_KEYS:
            return False
        routes, asked, now = self._table.routes, target.candidate.route, self._table.clock()
        return any(
            route not in self._failed
            and route != asked
            and route.upstream == asked.upstream
            and routes.availability(route, now) is Availability.IN
            for route in self._targets
        )

    def fields(self, target: Target) -> dict[str, Any]:
        """What the log says of it: the number of the target's key, from 1, if its upstream has several, and
        the upstreams that were asked in vain."""
        asked, found = target.candidate.route, dict[str, Any]()
        if asked.key is not None:
            for route in self._targets:
                if route.upstream == asked.upstream and route.key != asked.key:
                    found["key"] = asked.key + 1
                    break
        if self.tried:
            found["tried"] = list(map(str, self.tried))
        return found

    def begin(self, target: Target) -> None:
        """Its answer has begun: what failed before it has failed by itself, and not because of the
        request."""
        self._begun = True
        if self._is_one_of_many or not (self._without_end or self._table.routes.conditions):
            return  # nothing is known that it could change
        if self._current is None:
            self._hold(target.candidate.route)
        for route, cause in self._without_end:
            self._table.record(_failed_part(route, cause), Outcome.FAILED, cause)
        self._without_end = []
        self._table.record(target.candidate.route, Outcome.BEGUN)

    def end(self, error: BaseException | None) -> None:
        """The exchange with the target that was asked last is over; `error` has ended it."""
        route = self._current
        self.release()
        is_good = self._begun and error is None
        if route is None or self._is_one_of_many or (is_good and not self._table.routes.conditions):
            return
        if is_good:
            self._table.record(route, Outcome.ENDED)
        elif not self._begun or not isinstance(error, UpstreamError):
            self._table.record(route, Outcome.LEFT)
        elif error.failover:
            self._table.record(_failed_part(route, error.failover), Outcome.FAILED, error.failover)

    def release(self) -> None:
        """No request is in progress any more."""
        if self._current is not None:
            self._table.routes.busy[self._current.upstream] -= 1
            self._current = None

    def _hold(self, route: Route) -> None:
        self._current = route
        busy = self._table.routes.busy
        busy[route.upstream] = busy.get(route.upstream, 0) + 1

    async def _next(self) -> Target | None:
        routes, shared = self._table.routes, self._table.shared
        if self._in_order:
            left = (route for route in self._targets if route not in self._failed)
            found = next(left, None)
            return None if found is None else self._targets[found]
        while True:
            now = self._table.clock()
            route = routes.choose(
                self._candidates,
                now,
                session=self.session,
                preferred=self.preferred,
                tried=self._failed,
                avoided=self._avoided,
            )
            if route is None:
                return None
            due = routes.due(route, now) if routes.conditions else None
            is_ours = due is None or shared is None or await shared.claim(due)
            if due is not None:
                changes = routes.probe(route, self._table.clock())
                if not is_ours:
                    continue  # another worker probes it
                self._table.changed(changes)
            self._hold(route)
            return self._targets[route]

    def _record(self, route: Route, error: UpstreamError) -> None:
        if self._is_one_of_many:
            return
        cause = error.failover
        if cause == "429" and error.counts:
            self._table.record(route, Outcome.LIMITED, cause, seconds_of(error.headers.get("retry-after")))
        elif cause in _DEAD_KEY and error.counts:
            self._table.record(Route(route.upstream, route.key), Outcome.TRIPPED, cause)
        elif cause and error.counts:
            if self._table.routes.is_probed(route):
                self._table.record(_failed_part(route, cause), Outcome.FAILED, cause)
            else:
                self._without_end.append((route, cause))
        self._table.record(route, Outcome.LEFT)

    def _limited(self) -> UpstreamError:
        routes, now = self._table.routes, self._table.clock()
        wait = min(routes.until(each.route) for each in self._candidates) - now
        names = list(dict.fromkeys(each.route.upstream for each in self._candidates))
        what = (
            f"the {called(names[0])} is limited"
            if len(names) == 1
            else "all upstreams of the model are limited"
        )
        return UpstreamError(
            429,
            f"{what} at the moment",
            code="rate_limit_exceeded",
            headers={"retry-after": str(max(math.ceil(wait), 1))},
            cause="each route is within its cooldown",
            counts=False,
        )


def _failed_part(route: Route, cause: str) -> Route:
    """The part of a route that this failure is about."""
    return Route(route.upstream) if cause == "connection" else route
