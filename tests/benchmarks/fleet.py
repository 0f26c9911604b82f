"""A simulation of many workers over one PostgreSQL and Redis: discrete events, the same for the same seed.

    python -m tests.benchmarks.fleet [--write]

The costs of each operation are read from docs/capacity/measured.json, and their frequencies from the
constants of the server, so that a change of either one changes the results. `--write` writes
docs/capacity/simulated.json, from which docs/capacity.md is made. The workers start within some seconds and
work. Then one of them is killed, Redis and PostgreSQL stop answering for two seconds, a key is changed, and
an upstream fails.
"""

from __future__ import annotations

import argparse
import heapq
import inspect
import itertools
import math
import random
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from openresponses_server.limits.shared_redis import SharedRedis
from openresponses_server.observation import metrics
from openresponses_server.runs import queue, support
from openresponses_server.settings import CircuitSettings, Settings
from openresponses_server.store import keys, readiness, usage_keeper
from openresponses_server.store.base import WRITTEN_TOGETHER
from openresponses_server.store.sql import postgres
from openresponses_server.store.sql import store as sql_store
from openresponses_server.tasks import jittered
from tests.benchmarks.bearing import MEASURED, Measurement, Spent
from tests.support.shared import REPOSITORY

SIMULATED: Final = REPOSITORY / "docs" / "capacity" / "simulated.json"
SIZES: Final = (10, 100, 1000)
SEED: Final = 31

_BEAT: Final[float] = inspect.signature(SharedRedis.__init__).parameters["heartbeat"].default
_SETTINGS: Final = Settings()
_TIMEOUT: Final = max(postgres._SHORTEST, _SETTINGS.lease * postgres._OF_A_LEASE)
_STARTED_WITHIN: Final = 5.0  # seconds
_STEADY: Final = (10.0, 30.0)
_KILLED, _REDIS_OUT, _POSTGRES_OUT, _KEY_CHANGED, _UPSTREAM_FAILS = 30.0, 55.0, 75.0, 95.0, 100.0
_END: Final = 105.0
_OUT: Final = 2.0  # seconds for which a database does not answer
_HERD: Final = (2.0, 12.0)  # seconds after an outage, in which all workers may still ask at the same time
_SLOT: Final = 0.1  # seconds over which simultaneous calls are counted
_FULL: Final = 0.7  # the share of its cores that a database may use
_CLAIMED_AT_ONCE: Final = 100
_COMMIT: Final = 0.002  # seconds for which a batch of usage locks its rows: assumed, mostly for the disk


class Load(NamedTuple):
    """The load of each worker: `rate` streams a second with so many `tokens`, at `speed` tokens a second
    each; the share of them that is `cancelled` from another worker. With `keyed`, all requests have one key,
    with limits, and there are `keys` managed keys."""

    rate: float = 25.0
    tokens: int = 120
    speed: float = 30.0
    cancelled: float = 0.01
    keyed: bool = True
    keys: int = 1000

    @property
    def open(self) -> float:
        """The number of streams that are open at once."""
        return self.rate * self.tokens / self.speed


LOAD: Final = Load()


class Rules(NamedTuple):
    """The improvements of the server, each of which can be turned off: jitter in pauses; only a few processes
    that look and check; costs of a slot that do not depend on the number of workers; messages to one worker
    instead of all; reading only the keys that have changed instead of all of them."""

    jitter: bool = True
    few_look: bool = True
    slots_quick: bool = True
    messages_to_one: bool = True
    changed_keys_alone: bool = True


NOW: Final = Rules()
BEFORE: Final = Rules(False, False, False, False, False)
_SLOT_BEFORE: Final = (
    33.0,
    1.70,
)  # µs of Redis, and for each worker: measured on 2026-11-24, before it changed


class Outcome(msgspec.Struct):
    """The result for so many workers. `redis` and `postgres` are the cores that each cause keeps busy; the
    numbers below them are per second, in steady state."""

    workers: int
    before: bool
    redis: dict[str, float]
    postgres: dict[str, float]
    commands: float
    statements: float
    commits: float
    wal: float
    connections: int
    usage_row_busy: float
    takeover_seconds: float
    takeover_postgres: float
    """Seconds of a core until the runs of a killed worker are settled by all workers."""
    redis_herd: float
    """Commands of idle workers in the busiest tenth of a second between 2 and 12 seconds after Redis is back,
    as multiples of a usual tenth of a second."""
    postgres_herd: float
    """The same for PostgreSQL and its statements."""
    key_change_postgres: float
    """Seconds of a core."""
    route_messages: int
    """Messages that workers publish about one upstream that fails."""
    route_redis: float
    """Seconds that Redis takes to send them."""


class Costs:
    """The measured costs: units by their names, and costs that grow, linear between the smallest and the
    largest measured size."""

    def __init__(self, found: Measurement) -> None:
        self._found = found

    def unit(self, name: str) -> Spent:
        return self._found.units[name]

    def of(self, name: str, size: float) -> Spent:
        """The costs at this size."""
        by = {int(many): spent for many, spent in self._found.growth[name].items()}
        least, most = min(by), max(by)
        if least == most:
            return by[least]
        part = (size - least) / (most - least)
        return by[least].over(1 / (1 - part)).less(by[most], -part) if part != 1 else by[most]


class Server:
    """A database with so many cores, which handles its calls in order."""

    def __init__(self, cores: int) -> None:
        self.free = [0.0] * cores
        self.out = (math.inf, math.inf)
        self.busy: defaultdict[str, float] = defaultdict(float)
        self.slots: defaultdict[int, float] = defaultdict(float)
        self.spent: defaultdict[str, float] = defaultdict(float)
        """µs of CPU by cause, over all of the time."""

    def do(self, now: float, cause: str, micros: float, calls: float = 1.0) -> float:
        """Handle a call, and return when it is finished; calls during an outage wait."""
        if self.out[0] <= now < self.out[1]:
            now = self.out[1]
        begin = max(now, heapq.heappop(self.free))
        end = begin + micros / 1e6
        heapq.heappush(self.free, end)
        self.spent[cause] += micros
        if _STEADY[0] <= now < _STEADY[1]:
            self.busy[cause] += micros
        self.slots[int(now / _SLOT)] += calls
        return end

    def herd(self, at: float) -> float:
        """Calls in the busiest tenth of a second of the period after this time, as a multiple of a usual
        one."""
        first, last, start, end = (int(each / _SLOT) for each in (*_STEADY, *_HERD))
        usual = sum(self.slots[each] for each in range(first, last)) / (last - first)
        after = int(at / _SLOT)
        return max(self.slots[each] for each in range(after + start, after + end)) / usual


class Worker(NamedTuple):
    """One process; `name` puts it in order among the others."""

    name: float
    number: int


class Fleet:
    """One simulated run."""

    def __init__(
        self,
        costs: Costs,
        count: int,
        load: Load,
        rules: Rules,
        seed: int,
        cores: tuple[int, int] = (10_000, 10_000),
    ) -> None:
        self._random = random.Random(seed)
        self._costs, self._count, self._load, self._rules = costs, count, load, rules
        self.redis, self.postgres = Server(cores[0]), Server(cores[1])
        self.row = Server(1)
        self.counts: defaultdict[str, float] = defaultdict(float)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()
        self._workers = sorted(Worker(self._random.random(), number) for number in range(count))
        self._living = set(self._workers)
        self._names = [each.name for each in self._workers]
        self._orphans = 0.0
        self._orphans_until = math.inf
        self._killed: Worker | None = None
        self.settled_at = math.inf
        self.route_messages = 0
        self.route_redis = 0.0
        self._heard_at = math.inf

    def run(self, until: float = _END) -> None:
        """Simulate everything that happens until this second."""
        for each in self._workers:
            self._start(each, self._random.uniform(0.0, _STARTED_WITHIN))
        for at, happen in (
            (_KILLED, self._kill),
            (_REDIS_OUT, lambda now: setattr(self.redis, "out", (now, now + _OUT))),
            (_POSTGRES_OUT, lambda now: setattr(self.postgres, "out", (now, now + _OUT))),
            (_KEY_CHANGED, self._change_key),
            (_UPSTREAM_FAILS, self._fail_upstream),
        ):
            self._at(at, happen)
        while self._events and self._events[0][0] < until:
            now, _, happen = heapq.heappop(self._events)
            happen(now)

    def _at(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), happen))

    def _pause(self, seconds: float) -> float:
        return jittered(seconds, self._random.uniform) if self._rules.jitter else seconds

    def _ask_redis(self, now: float, cause: str, spent: Spent, times: float = 1.0) -> float:
        done = self.redis.do(now, cause, spent.redis * times, spent.commands * times)
        if _STEADY[0] <= now < _STEADY[1]:
            self.counts["commands"] += spent.commands * times
        return done

    def _ask_postgres(self, now: float, cause: str, spent: Spent, times: float = 1.0) -> float:
        done = self.postgres.do(now, cause, spent.postgres * times, spent.statements * times)
        if _STEADY[0] <= now < _STEADY[1]:
            for name in ("statements", "commits", "wal"):
                self.counts[name] += getattr(spent, name) * times
        return done

    def _repeat(self, worker: Worker, at: float, every: float, work: Callable[[float], float]) -> None:
        """Call `work` again so many seconds after each call has finished, while the worker lives."""

        def happen(now: float) -> None:
            if worker in self._living:
                self._at(work(now) + self._pause(every), happen)

        self._at(at, happen)

    def _start(self, worker: Worker, at: float) -> None:
        """Start each worker's tasks, as often as the server's constants say."""
        unit, load = self._costs.unit, self._load
        read, ping = unit("the state of managed keys"), unit("a ping")
        write = unit("a stored answer, the store's part")
        beat, waits, look = (
            unit("a heartbeat of the limits"),
            unit("waiting runs counted"),
            unit("a look for waiting runs"),
        )
        every: list[tuple[float, Callable[[float], float]]] = [
            (_BEAT, lambda now: self._ask_redis(now, "heartbeats", beat)),
            (readiness._INTERVAL, lambda now: self._ask_redis(now, "readiness", ping)),
            (readiness._INTERVAL, lambda now: self._ask_postgres(now, "readiness", read)),
            (sql_store._WRITTEN_EVERY, lambda now: self._ask_postgres(now, "readiness", write, 2.5)),
            (metrics._REFRESHED_EVERY, lambda now: self._ask_postgres(now, "the queue's length", waits)),
            (postgres._HOLDS, lambda now: self._ask_postgres(now, "the server's time", read)),
            (_SETTINGS.lease / 4, self._sweep),
            (usage_keeper._EVERY, self._add_usage),
            (1.0, self._work),
        ]
        if load.keyed:
            every.append((keys._EVERY, lambda now: self._ask_postgres(now, "managed keys polled", read)))
        for seconds, work in every:
            self._repeat(worker, at, seconds, work)

        def wait_for_a_run(now: float) -> None:
            if worker not in self._living:
                return
            done = self._ask_redis(now, "the queue polled", ping, 2)
            self._at(done + queue._BLOCK, look_for_a_run)

        def look_for_a_run(now: float) -> None:
            self._at(self._ask_postgres(now, "the queue polled", look), wait_for_a_run)

        self._at(at, wait_for_a_run)
        self._watch(worker, at)

    def _work(self, now: float) -> float:
        """Simulate a second of the clients' load: the streams and other operations that begin, and the
        tokens, checkpoints and renewals of the open streams."""
        load, unit = self._load, self._costs.unit
        begun = load.rate
        if load.keyed:
            slot = self._costs.of("a slot of a key, by workers that have used it", self._count)
            if not self._rules.slots_quick:
                slot = msgspec.structs.replace(slot, redis=_SLOT_BEFORE[0] + _SLOT_BEFORE[1] * self._count)
            self._ask_redis(now, "slots of a key", slot, begun)
            self._ask_redis(now, "rate limits", unit("a request's rate limit"), begun)
        heard = self._count if not self._rules.messages_to_one else 1
        message = self._costs.of("a message to all, by workers that listen", heard)
        self._ask_redis(now, "cancellations", message, begun * load.cancelled)
        ping = unit("a ping")
        self._ask_redis(now, "logs begun and ended", ping, begun * 6)
        # an upper bound of the commands: tokens that arrive in one read share a command
        token = msgspec.structs.replace(unit("a paced token"), commands=1.0)
        self._ask_redis(now, "tokens", token, begun * load.tokens)
        self._ask_postgres(now, "beginnings and ends", unit("a stored answer, the store's part"), begun * 2)
        checkpoints = max(load.tokens / load.speed / _SETTINGS.checkpoint_interval - 0.5, 0.0)
        # the keeper looks twice per interval, and writes everything that is due together
        together = min(max(load.open / 2, 1.0), float(WRITTEN_TOGETHER))
        written = self._costs.of("checkpoints written together, by their number", together)
        self._ask_postgres(now, "checkpoints", written, begun * checkpoints / together)
        renewed = unit("a lease renewed, of 100 together")
        often = load.open / (_SETTINGS.lease / 4)
        self._ask_postgres(now, "leases renewed", renewed, often)
        return now

    def _sweep(self, now: float) -> float:
        done = self._ask_postgres(now, "sweeps", self._costs.unit("a look for leases that are over"))
        if now >= self._orphans_until:
            self._claim(done, _CLAIMED_AT_ONCE)
        return done

    def _add_usage(self, now: float) -> float:
        if not self._load.rate:
            return now
        done = self._ask_postgres(now, "usage", self._costs.unit("a batch of usage"))
        return self.row.do(done, "usage", _COMMIT * 1e6)

    def _claim(self, now: float, most: float) -> None:
        if self._orphans:
            self._orphans = max(self._orphans - most, 0.0)
            if not self._orphans:
                self.settled_at = now

    def _watch(self, worker: Worker, at: float) -> None:
        """Look for processes that have stopped: at a fixed interval or, in a large fleet, at one that grows
        with it."""
        few = self._rules.few_look and self._count > postgres.LOOKS
        every = self._count / postgres.LOOKS if few else support._WATCHED_EVERY
        if few:
            alive = self._costs.unit("the state of managed keys")
            self._repeat(
                worker,
                at,
                support._WATCHED_EVERY,
                lambda now: self._ask_postgres(now, "processes watched", alive),
            )
        missed_at, settled = math.inf, False

        def look(now: float) -> float:
            nonlocal missed_at, settled
            spent = self._costs.of("a look at the processes, by their number", self._count)
            done = self._ask_postgres(now, "processes watched", spent)
            if settled or self._killed is None or not self._checks(worker):
                return done
            running = self._count * self._load.open
            last = self._costs.of("the last lease of a process, by running responses", running)
            if missed_at == math.inf:
                missed_at = now
                done = self._ask_postgres(done, "stopped processes", last)
                if few:
                    self._at(now + _TIMEOUT + _SLOT, lambda then: (look(then), None)[1])
            elif now - missed_at > _TIMEOUT:
                settled = True
                claimed = self._costs.of("the runs of a process claimed, by running responses", running)
                self._ask_postgres(now, "stopped processes", last)
                done = self._ask_postgres(now, "stopped processes", claimed)
                self._claim(done, math.inf)
            return done

        self._repeat(worker, at + self._random.uniform(0.0, every if few else 0.0), every, look)

    def _checks(self, worker: Worker) -> bool:
        assert self._killed is not None
        if not self._rules.few_look:
            return True
        order = [each for each in self._workers if each in self._living]
        place = bisect(order, self._killed)
        return worker in (order[place:] + order)[: postgres.SUCCESSORS]

    def _kill(self, now: float) -> None:
        self._killed = self._workers[self._count // 2]
        self._living.discard(self._killed)
        self._orphans = self._load.open
        self._orphans_until = now + _SETTINGS.lease * self._random.uniform(0.75, 1.0)

    def _change_key(self, now: float) -> None:
        alone = "a changed key read, by the number of keys"
        what = alone if self._rules.changed_keys_alone else "managed keys read, by their number"
        read = self._costs.of(what, self._load.keys)
        for _ in self._living:
            at = now + self._random.uniform(0, keys._EVERY)
            self._at(at, lambda then: (self._ask_postgres(then, "managed keys read", read), None)[1])

    def _fail_upstream(self, now: float) -> None:
        """Let each worker detect the failure after enough of its own requests have failed, unless another
        worker has told it before."""

        def find_out(then: float) -> None:
            if then < self._heard_at:
                spent = self._costs.of("a message to all, by workers that listen", self._count)
                done = self._ask_redis(then, "routes", spent)
                self.route_messages += 1
                self.route_redis += spent.redis / 1e6
                self._heard_at = min(self._heard_at, done)

        for _ in self._living if self._load.rate else ():
            failures = sum(
                self._random.expovariate(self._load.rate) for _ in range(CircuitSettings().failures)
            )
            self._at(now + failures, find_out)


def simulate(costs: Costs, count: int, load: Load = LOAD, rules: Rules = NOW, seed: int = SEED) -> Outcome:
    """Simulate so many workers: once to find out how many cores they need, and again with that number."""
    fleet = Fleet(costs, count, load, rules, seed)
    fleet.run(_STEADY[1])
    seconds = _STEADY[1] - _STEADY[0]
    cores = [
        max(math.ceil(sum(each.busy.values()) / 1e6 / seconds / _FULL), 1)
        for each in (fleet.redis, fleet.postgres)
    ]
    fleet = Fleet(costs, count, load, rules, seed, (cores[0], cores[1]))
    fleet.run()
    idle = Fleet(costs, count, Load(0.0, keyed=load.keyed), rules, seed)
    idle.run()

    def shares(server: Server) -> dict[str, float]:
        return {
            name: round(micros / 1e6 / seconds, 5)
            for name, micros in sorted(server.busy.items(), key=lambda each: -each[1])
        }

    return Outcome(
        count,
        rules != NOW,
        shares(fleet.redis),
        shares(fleet.postgres),
        round(fleet.counts["commands"] / seconds, 1),
        round(fleet.counts["statements"] / seconds, 1),
        round(fleet.counts["commits"] / seconds, 1),
        round(fleet.counts["wal"] / seconds),
        count * (2 * postgres._CONNECTIONS + 1),
        round(sum(fleet.row.busy.values()) / 1e6 / seconds, 4),
        round(fleet.settled_at - _KILLED, 2),
        round(fleet.postgres.spent["stopped processes"] / 1e6, 4),
        round(idle.redis.herd(_REDIS_OUT + _OUT), 2),
        round(idle.postgres.herd(_POSTGRES_OUT + _OUT), 2),
        round(fleet.postgres.spent["managed keys read"] / 1e6, 3),
        fleet.route_messages,
        round(fleet.route_redis, 4),
    )


class Compared(msgspec.Struct):
    """Real workers beside simulated ones: (counted, simulated) numbers per second for the same load."""

    workers: int
    rate: float
    commands: tuple[float, float]
    statements: tuple[float, float]
    commits: tuple[float, float]
    redis: tuple[float, float]
    postgres: tuple[float, float]
    """Cores."""


class Simulation(msgspec.Struct):
    """The results for all sizes."""

    seed: int
    load: dict[str, float | bool]
    outcomes: list[Outcome]
    compared: list[Compared]


def measured() -> Measurement:
    """The last measurement."""
    return msgspec.json.decode(MEASURED.read_bytes(), type=Measurement)


def compare(found: Measurement) -> list[Compared]:
    """Simulate each real fleet that was measured, idle and under its load, and return both results."""
    costs, lines = Costs(found), []
    for real in found.counted:
        for rate, spent in ((0.0, real.idle), (real.rate, real.loaded)):
            outcome = simulate(costs, real.workers, Load(rate, real.tokens, cancelled=0.0, keyed=False))
            lines.append(
                Compared(
                    real.workers,
                    round(rate, 2),
                    (round(spent.commands, 1), outcome.commands),
                    (round(spent.statements, 1), outcome.statements),
                    (round(spent.commits, 1), outcome.commits),
                    (round(spent.redis / 1e6, 4), round(sum(outcome.redis.values()), 4)),
                    (round(spent.postgres / 1e6, 4), round(sum(outcome.postgres.values()), 4)),
                )
            )
    return lines


def run(sizes: tuple[int, ...] = SIZES) -> Simulation:
    """Simulate all sizes, with the server as it is and as it was."""
    measurement = measured()
    costs = Costs(measurement)
    outcomes = [simulate(costs, size, LOAD, rules) for size in sizes for rules in (BEFORE, NOW)]
    return Simulation(SEED, LOAD._asdict(), outcomes, compare(measurement))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fleet")
    parser.add_argument("--write", action="store_true", help=f"write {SIMULATED.relative_to(REPOSITORY)}")
    return parser


def main() -> None:
    options = arguments().parse_args()
    simulation = run()
    text = msgspec.json.format(msgspec.json.encode(simulation)).decode() + "\n"
    if options.write:
        SIMULATED.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
