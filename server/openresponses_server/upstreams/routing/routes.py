"""The routes of a process as its requests use them, with the outcomes that they report and what other workers
know."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

import structlog

from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.refusals import seconds_of
from openresponses_server.upstreams.routing.states import (
    Availability,
    Candidate,
    Change,
    Outcome,
    Route,
    Routes,
    State,
)
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
    """The knowledge that the workers of a server share."""

    def publish(self, changes: Sequence[Change]) -> None:
        """Send these changes to the other workers, soon."""
        ...

    async def claim(self, part: Route) -> bool:
        """Return True if this worker is the one that probes."""
        ...

    def release(self, part: Route) -> None:
        """Soon release a claim that may have been made: the request that was to probe has ended."""
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


class Affinity:
    """The routes that answered the last `most` sessions, so that a session stays on its route. Keys name
    their owners, so that no client steers the requests of another."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._routes: OrderedDict[str, Route] = OrderedDict()

    def __len__(self) -> int:
        return len(self._routes)

    def get(self, name: str) -> Route | None:
        return self._routes.get(name)

    def put(self, name: str, route: Route) -> None:
        self._routes[name] = route
        self._routes.move_to_end(name)
        while len(self._routes) > self._most:
            self._routes.popitem(last=False)


def session_name(owner: str, kind: str, value: str) -> str:
    """The name of a session for `Routes.choose` and `Affinity`: bounded, and of one owner alone."""
    text = f"{len(owner)}\0{owner}\0{kind}\0{value}".encode(errors="surrogatepass")
    return blake2b(text, digest_size=16).hexdigest()


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
        fields: dict[str, str | int | float] = {**shown}
        if part.key is not None:
            fields["key"] = part.key + 1
        if part.model is not None:
            fields["model"] = part.model[:_LONGEST_MODEL]
        if change.state is not State.CLOSED:
            fields |= {"cause": change.cause, "seconds": round(max(change.until - self.clock(), 0.0), 1)}
        return fields

    def outs(self) -> list[Change]:
        """The parts of routes that are out."""
        return list(self.routes.changes(self.clock()))

    def counts(self) -> Iterator[tuple[str, str, int]]:
        """Yield (upstream, state, how many parts of its routes are in it), for all states but `closed`."""
        totals = Counter((each.part.upstream, each.state.value) for each in self.outs())
        for name in self._names:
            for state in State:
                if state is not State.CLOSED:
                    yield name, state.value, totals[name, state.value]

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
        route = self.affinity.get(name)
        if route is None and self.shared is not None:
            route = await self.shared.recall(name)
        return route

    def remember(self, name: str, route: Route) -> None:
        """Remember that this route has answered what a session may continue."""
        self.affinity.put(name, route)
        if self.shared is not None:
            self.shared.remember(name, route)


class RouteChoice:
    """The routes of one request: which is asked first, which after a failure, and what becomes of each.

    The targets of choices that share requests are asked in their order, since all have to ask the same one.
    """

    def __init__(self, table: RouteTable, targets: Sequence[Target]) -> None:
        self.tried: list[Tried] = []
        """The upstreams that were asked in vain, if there was more than one to ask."""
        self.is_single = len(targets) == 1
        """True if there is only one target."""
        self.session = ""
        """The name of the request's session, "" without one."""
        self.preferred: Route | None = None
        """The route that has answered what the request continues."""
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
        self._failed: dict[Route, str] = {}
        self._without_end: list[tuple[Route, str]] = []
        self._avoided: set[str] = set()
        self._current: Route | None = None
        self._begun = False

    def peek(self) -> Target | None:
        """The target that a request would begin with now; None if all are limited."""
        route = self._table.routes.choose(
            self._candidates, self._table.clock(), session=self.session, preferred=self.preferred
        )
        return None if route is None else self._targets[route]

    def takes(self, default: Target) -> bool:
        """Return True if the `default` target is asked first: it is in, there is no other, or no other
        order."""
        routes, route = self._table.routes, default.candidate.route
        if (
            routes.conditions
            and not self.is_single
            and not self._in_order
            and routes.availability(route, self._table.clock()) is not Availability.IN
        ):
            return False
        self._current = route
        routes.busy[route.upstream] += 1
        return True

    async def first(self, default: Target) -> Target:
        """Return the target to ask first: the `default` one as long as it is in. If all are limited it is the
        one whose limit is over first."""
        if self.takes(default):
            return default
        target = await self._next()
        if target is None:
            target = self._hold(self._table.routes.soonest(self._candidates))
        return target

    async def after(self, target: Target, error: UpstreamError) -> Target | None:
        """The target to ask after this refusal; None if that is the answer."""
        route = target.candidate.route
        self._failed[route] = error.failover
        self._release()
        self._record(route, error)
        fallback = None
        if error.failover in target.failover_on:
            if error.failover not in _OF_KEYS:
                self._avoided.add(route.upstream)
            fallback = await self._next()
        if fallback is not None or self.tried:
            self.tried.append(Tried(route.upstream, error.failover or str(error.http_status)))
        if fallback is not None:
            self._table.moved(route.upstream, error.failover)
        return fallback

    async def after_unfit(self, target: Target) -> Target | None:
        """The target to ask instead of one that the request can't be translated for."""
        self._failed[target.candidate.route] = ""
        self._release()
        self._table.record(target.candidate.route, Outcome.LEFT)
        return await self._next()

    def has_other(self, target: Target) -> bool:
        """Return True if another route has not failed."""
        return bool(self._targets.keys() - self._failed.keys() - {target.candidate.route})

    def has_other_key(self, target: Target, error: UpstreamError) -> bool:
        """Return True if the refusal is about the key, and another key of the upstream is in."""
        if error.failover not in _OF_KEYS:
            return False
        routes, current, now = self._table.routes, target.candidate.route, self._table.clock()
        return any(
            route not in self._failed
            and route != current
            and route.upstream == current.upstream
            and routes.availability(route, now) is Availability.IN
            for route in self._targets
        )

    def fields(self, target: Target) -> dict[str, Any]:
        """Return the fields of the log line: the number of the target's key, from 1, if its upstream has
        several, and the upstreams that were asked in vain."""
        current, details = target.candidate.route, dict[str, Any]()
        if current.key is not None:
            for route in self._targets:
                if route.upstream == current.upstream and route.key != current.key:
                    details["key"] = current.key + 1
                    break
        if self.tried:
            details["tried"] = list(map(str, self.tried))
        return details

    def begin(self, target: Target) -> None:
        """Record that the answer has begun: the routes that failed before it did so by themselves, and not
        because of the request."""
        self._begun = True
        if self._is_one_of_many or not (self._without_end or self._table.routes.conditions):
            return  # nothing is known that it could change
        for route, cause in self._without_end:
            self._table.record(_failed_part(route, cause), Outcome.FAILED, cause)
        self._without_end = []
        self._table.record(target.candidate.route, Outcome.BEGUN)

    def end(self, error: BaseException | None) -> None:
        """The exchange with the target that was asked last is over; `error` has ended it."""
        route, self._current = self._current, None
        if route is None:
            return
        routes, is_good = self._table.routes, self._begun and error is None
        routes.busy[route.upstream] -= 1
        if self._is_one_of_many or (is_good and not routes.conditions):
            return
        if is_good:
            self._table.record(route, Outcome.ENDED)
        elif not self._begun or not isinstance(error, UpstreamError):
            self._table.record(route, Outcome.LEFT)
        elif error.failover:
            self._table.record(_failed_part(route, error.failover), Outcome.FAILED, error.failover)

    def _release(self) -> None:
        """No longer count the failed request as in progress."""
        if self._current is not None:
            self._table.routes.busy[self._current.upstream] -= 1
            self._current = None

    def _hold(self, route: Route) -> Target:
        """Count a request on this route as in progress; return its target."""
        self._current = route
        self._table.routes.busy[route.upstream] += 1
        return self._targets[route]

    async def _next(self) -> Target | None:
        routes, shared = self._table.routes, self._table.shared
        if self._in_order:
            left = (route for route in self._targets if route not in self._failed)
            first = next(left, None)
            return None if first is None else self._targets[first]
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
            is_ours = due is None or shared is None or await _claim(shared, due)
            if due is not None:
                changes = routes.probe(route, self._table.clock())
                if not is_ours:
                    continue  # another worker probes it
                self._table.changed(changes)
            return self._hold(route)

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


async def _claim(shared: Shared, part: Route) -> bool:
    """Return True if this request is the one that probes. Cancelled, it leaves no claim behind."""
    try:
        return await shared.claim(part)
    except BaseException:
        shared.release(part)
        raise


def _failed_part(route: Route, cause: str) -> Route:
    """The part of a route that this failure is about."""
    return Route(route.upstream) if cause == "connection" else route
