"""The total of a key's slots beside the counts that it is the sum of, whatever workers and Redis do."""

import random
from collections import defaultdict
from collections.abc import Iterator

import pytest
import redis

from openresponses_server.limits import redis_counts
from tests.support.scale import FACTOR
from tests.support.services import own_redis

ALIVE, GONE = "l:alive", "l:gone"
KEYS = ["l:held:runs:a", "l:held:runs:b", "l:held:readers:a"]
LEASE, MOST = 1_000_000, 6
UNKNOWN = 2
Report = tuple[str, str, int, int]  # a key, a worker, its count and the report's number


class Fleet:
    """Workers that do what `SharedCounts` does, in an order that the test chooses."""

    def __init__(self, client: "redis.Redis[bytes]", rng: random.Random) -> None:
        self._client = client
        self._rng = rng
        scripts = (redis_counts.AGREE, redis_counts.REPORT, redis_counts.HEARTBEAT, redis_counts.LEAVE)
        self._agree, self._report, self._heartbeat, self._leave = map(client.register_script, scripts)
        self._made = 0
        self._number = 0
        self._sent: list[Report] = []
        self.counts: dict[str, defaultdict[str, int]] = {}
        self.reported: dict[str, set[str]] = {}
        for _ in range(4):
            self.join()

    def join(self) -> None:
        self._made += 1
        worker = f"w{self._made}"
        self.counts[worker], self.reported[worker] = defaultdict(int), set()
        self.beat(worker)

    def beat(self, worker: str) -> None:
        if self._heartbeat([ALIVE, GONE], [worker, LEASE]):
            self.report_all(worker)

    def report_all(self, worker: str) -> None:
        for key in sorted({*self.counts[worker], *self.reported[worker]}):
            self.send(key, worker)

    def send(self, key: str, worker: str) -> None:
        report = self._arguments(key, worker)
        answer = self._report([ALIVE, GONE, key], [*report[1:], LEASE])
        if answer != UNKNOWN and not report[2]:
            self.reported[worker].discard(key)

    def take(self, worker: str, key: str, most: int = MOST) -> bool:
        self.counts[worker][key] += 1
        if self.agree(worker, key, most):
            return True
        self.give(worker, key)
        return False

    def agree(self, worker: str, key: str, most: int) -> bool:
        for _ in range(2):
            report = self._arguments(key, worker)
            answer = self._agree([ALIVE, GONE, key], [*report[1:], LEASE, most])
            if answer != UNKNOWN:
                return bool(answer)
            self.beat(worker)
        raise AssertionError("it has just sent a heartbeat")

    def give(self, worker: str, key: str) -> None:
        """Whose report may be lost, and is repeated then."""
        self.counts[worker][key] -= 1
        if self._rng.random() < 0.8:
            self.send(key, worker)
        else:
            self.reported[worker].add(key)

    def repeat(self) -> None:
        """An old report arrives late, whatever its worker has become."""
        if self._sent:
            key, worker, count, number = self._rng.choice(self._sent)
            self._report([ALIVE, GONE, key], [worker, count, number, LEASE])

    def freeze(self, worker: str) -> None:
        """Its lease ends, and it may go on later."""
        self._client.zadd(ALIVE, {worker: 1}, xx=True)

    def kill(self, worker: str) -> None:
        self.freeze(worker)
        del self.counts[worker], self.reported[worker]
        self.join()

    def leave(self, worker: str) -> None:
        self._leave([ALIVE, GONE], [worker])
        del self.counts[worker], self.reported[worker]
        self.join()

    def act(self) -> None:
        """Something happens."""
        worker, key = self._rng.choice(sorted(self.counts)), self._rng.choice(KEYS)
        kind = self._rng.choices(
            ("take", "give", "beat", "repeat", "freeze", "kill", "leave", "flush", "evict"),
            (40, 30, 10, 8, 4, 3, 2, 0.5, 0.5),
        )[0]
        if kind == "take":
            self.take(worker, key)
        elif kind == "give":
            if self.counts[worker][key]:
                self.give(worker, key)
        elif kind == "beat":
            self.beat(worker)
        elif kind == "repeat":
            self.repeat()
        elif kind == "freeze":
            self.freeze(worker)
        elif kind == "kill":
            self.kill(worker)
        elif kind == "leave":
            self.leave(worker)
        elif kind == "flush":
            self._client.flushall()
        else:
            self._client.delete(key)

    def check(self) -> None:
        """Each total is the sum of its counts."""
        for key in KEYS:
            fields = self._client.hgetall(key)
            if fields:
                counts = [int(each.split()[0]) for name, each in fields.items() if name.startswith(b"w")]
                assert int(fields[b"total"]) == sum(counts), (key, fields)

    def settle(self) -> None:
        """All go on, and each total is what the living workers have."""
        for worker in self.counts:
            self.beat(worker)
            self.report_all(worker)
        for key in KEYS:
            first = next(iter(self.counts))
            self.agree(first, key, 10**6)
            fields = self._client.hgetall(key)
            counts = {
                name.decode(): int(each.split()[0]) for name, each in fields.items() if name[:1] == b"w"
            }
            living = {worker: counts.get(worker, 0) for worker in self.counts}
            assert living == {worker: count[key] for worker, count in self.counts.items()}
            assert set(counts) <= set(self.counts)
            assert int(fields[b"total"]) == sum(living.values())

    def _arguments(self, key: str, worker: str) -> Report:
        self._number += 1
        report = (key, worker, self.counts[worker][key], self._number)
        self.reported[worker].add(key)
        self._sent.append(report)
        return report


@pytest.fixture(scope="module")
def client() -> Iterator["redis.Redis[bytes]"]:
    with own_redis() as server, redis.Redis.from_url(server.url) as connection:
        yield connection


@pytest.fixture
def empty(client: "redis.Redis[bytes]") -> "redis.Redis[bytes]":
    client.flushall()
    return client


def test_s8_totals_are_the_sums_of_their_counts_whatever_happens(empty: "redis.Redis[bytes]") -> None:
    for seed in range(60 * FACTOR):
        empty.flushall()
        fleet = Fleet(empty, random.Random(seed))
        for _ in range(120):
            fleet.act()
            fleet.check()
        fleet.settle()


def test_s8_a_stopped_worker_is_subtracted_once_whoever_finds_it(empty: "redis.Redis[bytes]") -> None:
    fleet = Fleet(empty, random.Random(1))
    one, *others = list(fleet.counts)
    for _ in range(3):
        assert fleet.take(one, KEYS[0])
    assert fleet.take(others[0], KEYS[0])
    fleet.freeze(one)
    for other in others:  # at the limit, each looks for workers that have stopped
        assert fleet.take(other, KEYS[0], most=4)
        fleet.beat(other)
    assert empty.hget(KEYS[0], "total") == b"4"
    assert empty.zrange(GONE, 0, -1) == [one.encode()]
    assert not fleet.take(others[0], KEYS[0], most=4)
    fleet.beat(one)  # it goes on, and says what it has
    assert empty.hget(KEYS[0], "total") == b"7"


def test_s8_a_key_that_nobody_used_when_a_worker_stopped_is_corrected_when_it_is_used(
    empty: "redis.Redis[bytes]",
) -> None:
    fleet = Fleet(empty, random.Random(1))
    one, other, *_ = fleet.counts
    for key in KEYS:
        fleet.take(one, key)
    fleet.leave(one)
    fleet.kill(other)
    late = next(iter(fleet.counts))
    for key in KEYS:
        assert fleet.take(late, key, most=1)
        assert empty.hlen(key) == 3


def test_s8_a_clock_of_redis_that_steps_back_hides_no_stopped_worker(empty: "redis.Redis[bytes]") -> None:
    fleet = Fleet(empty, random.Random(1))
    one, other, late, _ = fleet.counts
    fleet.take(one, KEYS[0])
    fleet.take(other, KEYS[0])
    empty.zadd(GONE, {"before": 10**15})  # found gone when the clock was far ahead
    assert fleet.take(late, KEYS[0], most=3)
    fleet.leave(one)
    assert fleet.take(late, KEYS[0], most=3)
    assert not fleet.take(late, KEYS[0], most=3)
    empty.delete(GONE)  # all that was noted has expired
    fleet.leave(other)
    assert fleet.take(late, KEYS[0], most=3)


def test_s8_a_worker_is_known_for_longer_than_its_counts_last(empty: "redis.Redis[bytes]") -> None:
    fleet = Fleet(empty, random.Random(1))
    one, *_ = fleet.counts
    fleet.leave(one)
    for key in (ALIVE, GONE):
        assert empty.pttl(key) > 1.5 * redis_counts._COUNTS_EXPIRE


def test_s8_an_older_report_that_arrives_late_changes_nothing(empty: "redis.Redis[bytes]") -> None:
    fleet = Fleet(empty, random.Random(1))
    one, *_ = fleet.counts
    for _ in range(3):
        fleet.take(one, KEYS[0])
    for _ in range(30):
        fleet.repeat()
        assert empty.hget(KEYS[0], "total") == b"3"
        assert (empty.hget(KEYS[0], one) or b"").startswith(b"3 ")


def test_s8_a_slot_costs_the_same_whatever_the_number_of_workers(empty: "redis.Redis[bytes]") -> None:
    """Counted in commands that scripts call, and no command here takes longer the more there is."""

    def commands(workers: int) -> dict[str, int]:
        empty.flushall()
        fleet = Fleet(empty, random.Random(1))
        for _ in range(workers):
            fleet.join()
        for worker in fleet.counts:
            fleet.take(worker, KEYS[0], most=10**6)
        for worker in list(fleet.counts)[: workers // 3]:
            fleet.leave(worker)
        first = next(iter(fleet.counts))
        fleet.take(first, KEYS[0], most=10**6)  # which subtracts those that have left
        fleet.send(KEYS[0], first)  # from now on Redis knows all scripts
        empty.config_resetstat()
        assert fleet.take(first, KEYS[0], most=10**6)
        assert not fleet.take(first, KEYS[0], most=1)
        return {
            name.removeprefix("cmdstat_"): each["calls"] for name, each in empty.info("commandstats").items()
        }

    few, many = commands(3), commands(300)
    assert few == many
    assert not {"hgetall", "hvals", "hkeys", "zrange"} & set(many)
