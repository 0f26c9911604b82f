"""Which route a request takes: the states of routes and their transitions as a table, fed with outcomes and
the time. Nothing here waits or asks.

A route is an upstream, one of its keys and a model there. What is known of it is kept for the part of it that
it is about: a limit for all of it, a refused key for the key with any model, a lost connection for the
upstream.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from openresponses_server.settings import CircuitSettings

Balance = Literal["order", "round_robin", "least_busy"]
"""How the upstreams that name the same model share its requests."""

LONGEST: Final = 600.0
"""The most seconds for which a route is left out, whatever an upstream says."""
PROBE_SECONDS: Final = 60.0
"""Seconds after which a probe that has had no outcome is made again."""
_FIRST_LIMIT: Final = (
    1.0  # seconds, where an upstream does not say for how long it refuses; then twice as long
)
_LONGEST_UNSAID: Final = 60.0
_MOST: Final = 4096  # parts of routes that something is known of
_MOST_DOUBLINGS: Final = 16
_SCALE: Final = 2.0**64


class Route(NamedTuple):
    """A route, or the part of routes that have these in common."""

    upstream: str
    key: int | None = None
    """The number of its key, from 0; None for any."""
    model: str | None = None
    """The model's name there; None for any."""

    @property
    def parts(self) -> tuple[Route, Route, Route]:
        """The parts whose condition is known: this model with this key, the key, the upstream."""
        return self, Route(self.upstream, self.key), Route(self.upstream)


class State(Enum):
    CLOSED = "closed"
    """It is asked."""
    LIMITED = "limited"
    """It has refused because of a limit, and is left out until that is over."""
    OPEN = "open"
    """It has failed, and is left out until it may be probed."""
    HALF_OPEN = "half_open"
    """One request probes it."""


class Outcome(Enum):
    """The outcomes of a request on a route, or of time that passes."""

    BEGUN = "begun"
    """Its answer has begun."""
    ENDED = "ended"
    """Its answer ended as it should."""
    FAILED = "failed"
    """It failed, but less often in a row than the threshold."""
    TRIPPED = "tripped"
    """It failed as often in a row as the threshold, or will fail every time."""
    LIMITED = "limited"
    """It was refused because of a limit."""
    LEFT = "left"
    """The outcome is unknown, since its client disconnected."""
    DUE = "due"
    """The time of its state has expired, and a request is about to be made."""


TRANSITIONS: Final[Mapping[State, Mapping[Outcome, State]]] = MappingProxyType(
    {
        State.CLOSED: {
            Outcome.BEGUN: State.CLOSED,
            Outcome.ENDED: State.CLOSED,
            Outcome.FAILED: State.CLOSED,
            Outcome.TRIPPED: State.OPEN,
            Outcome.LIMITED: State.LIMITED,
            Outcome.LEFT: State.CLOSED,
            Outcome.DUE: State.CLOSED,
        },
        # answers of requests that were made before say nothing about the limit
        State.LIMITED: {
            Outcome.BEGUN: State.LIMITED,
            Outcome.ENDED: State.LIMITED,
            Outcome.FAILED: State.LIMITED,
            Outcome.TRIPPED: State.OPEN,
            Outcome.LIMITED: State.LIMITED,
            Outcome.LEFT: State.LIMITED,
            Outcome.DUE: State.CLOSED,
        },
        # it is asked all the same when every other is out: an answer that begins then is as good as a probe's
        State.OPEN: {
            Outcome.BEGUN: State.CLOSED,
            Outcome.ENDED: State.OPEN,
            Outcome.FAILED: State.OPEN,
            Outcome.TRIPPED: State.OPEN,
            Outcome.LIMITED: State.LIMITED,
            Outcome.LEFT: State.OPEN,
            Outcome.DUE: State.HALF_OPEN,
        },
        State.HALF_OPEN: {
            Outcome.BEGUN: State.CLOSED,
            Outcome.ENDED: State.HALF_OPEN,
            Outcome.FAILED: State.OPEN,
            Outcome.TRIPPED: State.OPEN,
            Outcome.LIMITED: State.LIMITED,
            Outcome.LEFT: State.OPEN,
            Outcome.DUE: State.HALF_OPEN,
        },
    }
)


class Condition(Struct):
    """The condition of a part of routes. Times are those of the clock."""

    state: State = State.CLOSED
    until: float = 0.0
    """The end of its time in this state; for `HALF_OPEN`, when it may be probed again."""
    failures: int = 0
    """Failures in a row."""
    trips: int = 0
    """How often it was opened in a row."""
    limits: int = 0
    """How often it was limited in a row without saying for how long."""
    limited_at: float = -math.inf
    """When it was limited the last time."""
    cause: str = ""
    """Why it is in this state, as in the setting `failover_on`."""


class Change(NamedTuple):
    """A part of routes is in another state, or for another time."""

    part: Route
    state: State
    until: float
    limited_at: float
    cause: str


class Availability(Enum):
    IN = 0
    DUE = 1
    """It may be probed."""
    OUT = 2
    """It has failed: it is asked only when every other is out."""
    LIMITED = 3
    """It is asked only when every route is limited."""


class Candidate(NamedTuple):
    """A route that a request may take. Routes of a lower tier are taken before others; those of one tier
    share the requests by the weights of their upstreams."""

    route: Route
    tier: int = 0
    weight: float = 1.0


class Routes:
    """The routes of a process. `circuits` are the settings of upstreams by their names."""

    def __init__(
        self, balance: Balance = "order", circuits: Mapping[str, CircuitSettings] | None = None
    ) -> None:
        self.balance = balance
        self.conditions: dict[Route, Condition] = {}
        """The conditions of the parts about which something is known; any other part is `CLOSED`."""
        self.busy: Counter[str] = Counter()
        """Requests in progress, by the names of upstreams."""
        self._circuits = circuits or {}
        self._turns: dict[tuple[str, ...], dict[str, float]] = {}

    def availability(self, route: Route, now: float) -> Availability:
        """Return the availability of the route."""
        if not self.conditions:
            return Availability.IN
        result = Availability.IN
        for part in route.parts:
            known = self.conditions.get(part)
            if known is None or known.state is State.CLOSED:
                continue
            if known.state is State.LIMITED:
                if known.until > now:
                    return Availability.LIMITED
            elif known.until > now:
                result = Availability.OUT
            elif result is Availability.IN:
                result = Availability.DUE
        return result

    def until(self, route: Route) -> float:
        """Return the time at which the route may be asked again, a past one if it may be asked now."""
        known = [each for part in route.parts if (each := self.conditions.get(part)) is not None]
        return max((each.until for each in known if each.state is not State.CLOSED), default=0.0)

    def choose(
        self,
        candidates: Sequence[Candidate],
        now: float,
        *,
        session: str = "",
        preferred: Route | None = None,
        tried: Collection[Route] = (),
        avoided: Collection[str] = (),
    ) -> Route | None:
        """The route for a request; None if all are limited or `tried`. One that is out is chosen only when
        none is in; `soonest` returns one where all are limited.

        `preferred` is chosen if it is in and no lower tier is. Requests of one `session` get the same route
        as long as the same ones are in. Upstreams that are `avoided` come after the others.
        """
        eligible = candidates
        if self.conditions or tried:
            usable = self._usable(candidates, now, tried, avoided)
            if not isinstance(usable, list):
                return usable
            eligible = usable
        tier, ready = math.inf, list[Candidate]()
        for each in eligible:
            if each.tier < tier:
                tier, ready = each.tier, [each]
            elif each.tier == tier:
                ready.append(each)
        if len(ready) == 1:
            return ready[0].route
        if self.conditions:
            due = (each.route for each in ready if self.availability(each.route, now) is Availability.DUE)
            probed = next(due, None)
            if probed is not None:
                return probed
        if preferred is not None and any(each.route == preferred for each in ready):
            return preferred
        if session:
            return self._of_session(ready, session, candidates)
        return self._in_turn(ready, candidates)

    def soonest(self, candidates: Sequence[Candidate]) -> Route:
        """The route whose limit is over first: an upstream that is alone is asked within its limit, too."""
        return min((each.route for each in candidates), key=self.until)

    def _usable(
        self,
        candidates: Sequence[Candidate],
        now: float,
        tried: Collection[Route],
        avoided: Collection[str],
    ) -> list[Candidate] | Route | None:
        """Return the routes that are in or may be probed; if there are none, the one that may be probed
        first, if any is not limited."""
        left = [(each, self.availability(each.route, now)) for each in candidates if each.route not in tried]
        usable = [each for each, how in left if how in (Availability.IN, Availability.DUE)]
        if not usable:
            out = [each.route for each, how in left if how is Availability.OUT]
            return min(out, key=self.until) if out else None
        return [each for each in usable if each.route.upstream not in avoided] or usable

    def due(self, route: Route, now: float) -> Route | None:
        """The part of this route that has to be probed; None if there is none."""
        due_part = None
        for part in route.parts:
            known = self.conditions.get(part)
            if known is not None and known.state in (State.OPEN, State.HALF_OPEN) and known.until <= now:
                due_part = part
        return due_part

    def is_probed(self, route: Route) -> bool:
        """Return True if a request probes the route."""
        known = (self.conditions.get(part) for part in route.parts)
        return any(each is not None and each.state is State.HALF_OPEN for each in known)

    def probe(self, route: Route, now: float) -> list[Change]:
        """A request is about to be made: it is the probe of the parts that are due."""
        changes = []
        for part in route.parts:
            known = self.conditions.get(part)
            if known is not None and known.state is not State.CLOSED and known.until <= now:
                known.state = TRANSITIONS[known.state][Outcome.DUE]
                if known.state is State.HALF_OPEN:
                    known.until = now + PROBE_SECONDS
                    changes.append(self._change(part, known))
        return changes

    def record(
        self, part: Route, outcome: Outcome, now: float, *, cause: str = "", seconds: float | None = None
    ) -> list[Change]:
        """Apply an outcome of a route, or of a part of it. Returns the changes that it causes. `seconds` is
        how long the upstream refuses, if it says so."""
        if outcome in (Outcome.BEGUN, Outcome.ENDED, Outcome.LEFT):
            return [
                change
                for each in part.parts
                if (known := self.conditions.get(each)) is not None
                for change in self._improved(each, known, outcome, now)
            ]
        known = self._known(part)
        return self._worsened(part, known, outcome, now, cause, seconds)

    def apply(self, change: Change, now: float) -> None:
        """Apply what another process has found out about this part of routes."""
        known = self._known(change.part)
        known.state, known.cause = change.state, change.cause
        known.until = min(change.until, now + LONGEST)
        known.limited_at = max(known.limited_at, min(change.limited_at, now))
        if known.state is State.CLOSED:
            known.failures = known.trips = 0

    def changes(self, now: float) -> Iterator[Change]:
        """Yield the parts that are out or being probed."""
        for part, known in self.conditions.items():
            if known.state is State.LIMITED and known.until <= now:
                continue
            if known.state is not State.CLOSED:
                yield self._change(part, known)

    def _known(self, part: Route) -> Condition:
        known = self.conditions.get(part)
        if known is None:
            if len(self.conditions) >= _MOST:
                del self.conditions[next(iter(self.conditions))]
            known = self.conditions[part] = Condition()
        return known

    def _improved(self, part: Route, known: Condition, outcome: Outcome, now: float) -> Iterator[Change]:
        before = known.state
        known.state = TRANSITIONS[before][outcome]
        if outcome is Outcome.BEGUN:
            if before in (State.OPEN, State.HALF_OPEN):
                # one more failure opens it again, until an answer has ended as it should
                known.failures = self._circuit(part).failures - 1
            known.limits = 0
        elif outcome is Outcome.ENDED and known.state is State.CLOSED:
            known.failures = known.trips = 0
            if known.limited_at == -math.inf:
                del self.conditions[part]
        elif outcome is Outcome.LEFT and before is State.HALF_OPEN:
            known.until = now
        if known.state is not before:
            yield self._change(part, known)

    def _worsened(
        self, part: Route, known: Condition, outcome: Outcome, now: float, cause: str, seconds: float | None
    ) -> list[Change]:
        before, circuit = known.state, self._circuit(part)
        if outcome is Outcome.FAILED:
            known.failures += 1
            if known.failures >= circuit.failures:
                outcome = Outcome.TRIPPED
        known.state = TRANSITIONS[before][outcome]
        if outcome is Outcome.LIMITED:
            if seconds is None:
                seconds = min(_FIRST_LIMIT * 2 ** min(known.limits, _MOST_DOUBLINGS), _LONGEST_UNSAID)
                known.limits += 1
            over = now + (seconds if 0.0 < seconds < LONGEST else LONGEST if seconds > 0.0 else 0.0)
            known.until = max(known.until, over) if before is State.LIMITED else over
            known.limited_at, known.cause = now, cause
        elif known.state is not State.OPEN or (before is State.OPEN and known.until > now):
            return []  # requests that were made before it was opened
        else:
            known.until = now + min(circuit.seconds * 2 ** min(known.trips, _MOST_DOUBLINGS), LONGEST)
            known.trips += 1
            known.cause = cause
        return [self._change(part, known)]

    @staticmethod
    def _change(part: Route, known: Condition) -> Change:
        return Change(part, known.state, known.until, known.limited_at, known.cause)

    def _circuit(self, part: Route) -> CircuitSettings:
        return self._circuits.get(part.upstream) or CircuitSettings()

    @staticmethod
    def _of_session(ready: Sequence[Candidate], session: str, candidates: Sequence[Candidate]) -> Route:
        """Weighted rendezvous hashing: when a route is out, only its own sessions go elsewhere."""
        keys: dict[str, int] = {}
        for each in candidates:
            keys[each.route.upstream] = keys.get(each.route.upstream, 0) + 1

        def score(each: Candidate) -> float:
            name = f"{session}\0{each.route.upstream}\0{each.route.key}".encode(errors="surrogatepass")
            number = int.from_bytes(blake2b(name, digest_size=8).digest())
            return -each.weight / keys[each.route.upstream] / math.log((number + 1) / (_SCALE + 2))

        return max(ready, key=score).route

    def _in_turn(self, ready: Sequence[Candidate], candidates: Sequence[Candidate]) -> Route:
        weights: dict[str, float] = {}
        for each in ready:
            weights[each.route.upstream] = each.weight
        if self.balance == "least_busy" and len(weights) > 1:
            loads = {name: self.busy[name] / weight for name, weight in weights.items()}
            least = min(loads.values())
            weights = {name: weight for name, weight in weights.items() if loads[name] == least}
        name = next(iter(weights)) if len(weights) == 1 else self._next_in_turn(weights, candidates)
        keys = [each.route for each in ready if each.route.upstream == name]
        return min(keys, key=self._limited_at) if self.conditions else keys[0]

    def _next_in_turn(self, weights: Mapping[str, float], candidates: Sequence[Candidate]) -> str:
        """Smooth weighted round robin: each has its share of any stretch of requests."""
        turns = self._turns.setdefault(tuple(dict.fromkeys(each.route.upstream for each in candidates)), {})
        for name, weight in weights.items():
            turns[name] = turns.get(name, 0.0) + weight
        chosen = max(weights, key=turns.__getitem__)
        turns[chosen] -= sum(weights.values())
        return chosen

    def _limited_at(self, route: Route) -> float:
        """Return the time at which the route was last limited: the one limited longest ago is asked first."""
        known = (self.conditions.get(part) for part in route.parts)
        return max((each.limited_at for each in known if each is not None), default=-math.inf)
