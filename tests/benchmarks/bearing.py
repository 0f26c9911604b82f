"""Measures the capacity of one worker, one Redis and one PostgreSQL: the CPU, commands, statements and bytes
that each operation of a server takes from them.

    python -m tests.benchmarks.bearing [--quick] [--write]

It starts both databases itself. CPU is the scheduler's own count for each process, which other work on the
machine changes little. `--write` writes docs/capacity/measured.json, from which `tests.benchmarks.fleet` and
docs/capacity.md are made.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import psycopg
import redis
import redis.asyncio
from sqlalchemy import make_url

from openresponses_server.http.managed_keys import KeyChange, ManagedKey
from openresponses_server.limits import redis_counts
from openresponses_server.limits.owners import KeyLimits
from openresponses_server.store.base import NOBODY, WRITTEN_TOGETHER, Lease, ResponseStore
from openresponses_server.store.keys import KeyStore
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.migrate import upgrade
from openresponses_server.store.sql.postgres import NAME, ProcessConnections, _one_connection
from openresponses_server.store.stores import open_store
from openresponses_server.store.usage import AgentCounts, Counts, DayUsage, UsageRows
from tests.benchmarks.served.clients import Found, Load
from tests.benchmarks.served.report import machine
from tests.benchmarks.served.subjects import Process, Subject, model_side, ours, running
from tests.support.services import own_postgres, own_redis
from tests.support.shared import REPOSITORY
from tests.support.stores import record, streamed

MEASURED: Final = REPOSITORY / "docs" / "capacity" / "measured.json"
_PATH: Final = "/v1/responses"
_TIMEOUT: Final = 240.0  # seconds for one load
_MOST_CONNECTIONS: Final = 1200
_CHECKPOINTS_OFF: Final = "checkpoint_interval = 3600\n"
_CHAIN: Final = 100  # turns
_OPEN: Final = 100  # leases that are renewed together


class Spent(msgspec.Struct):
    """The costs of one operation: µs of CPU of the server, of Redis and of PostgreSQL; commands of Redis,
    including those in scripts; statements and writing transactions of PostgreSQL, and the bytes of its
    write-ahead log."""

    worker: float
    redis: float
    postgres: float
    commands: float
    statements: float
    commits: float
    wal: float

    def less(self, other: Spent, times: float = 1.0) -> Spent:
        """These costs minus the other ones, which are multiplied by `times`."""
        return self._with(other, lambda mine, others: mine - others * times)

    def over(self, count: float) -> Spent:
        """The costs of one, if these are the costs of `count`."""
        return self._with(self, lambda mine, _: mine / count)

    def _with(self, other: Spent, how: Callable[[float, float], float]) -> Spent:
        names = self.__struct_fields__
        return Spent(*(how(getattr(self, name), getattr(other, name)) for name in names))


class Counted(msgspec.Struct):
    """The counted costs per second of so many workers, idle and at `rate` streams a second for each
    worker."""

    workers: int
    rate: float
    tokens: int
    idle: Spent
    loaded: Spent
    connections: int
    """The highest number of connections to PostgreSQL."""
    clients: int
    """The highest number of connections to Redis."""


class Measurement(msgspec.Struct):
    """The results of a run. `units` are by their names; `growth` has the costs by the name of the operation
    and then by the number of things with which they grow."""

    date: str
    machine: str
    versions: dict[str, str]
    units: dict[str, Spent]
    growth: dict[str, dict[str, Spent]]
    counted: list[Counted]
    stored: dict[str, float]


class Scale(NamedTuple):
    """The size of a run: `calls` of each kind, `requests` to a server, `streams` at once, `idle` in seconds,
    and the `sizes` of what may grow."""

    calls: int
    requests: int
    streams: int
    idle: float
    sizes: tuple[int, ...]
    rows: tuple[int, ...]
    fleets: tuple[int, ...]


FULL: Final = Scale(300, 1500, 60, 20.0, (1, 10, 100, 1000), (100, 1000, 10000), (1, 2, 4))
QUICK: Final = Scale(40, 100, 10, 3.0, (1, 10), (100,), (1,))


class Servers:
    """A Redis and a PostgreSQL, and the costs that they have had so far."""

    def __init__(self, postgres: str, cache: str) -> None:
        self.postgres, self.redis = postgres, cache
        self._admin = psycopg.connect(postgres.rpartition("/")[0].replace("+psycopg", "") + "/postgres")
        self._admin.autocommit = True
        self._admin.execute("CREATE EXTENSION pg_stat_statements")
        self._name = postgres.rpartition("/")[2]
        self._client = redis.Redis.from_url(cache)
        self._redis_pid = int(self._client.info("server")["process_id"])
        (backend,) = self._admin.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        self._backend = int(backend)
        self._postmaster = int(_stat(self._backend)[1])

    def close(self) -> None:
        self._admin.close()
        self._client.close()

    def versions(self) -> dict[str, str]:
        row = self._admin.execute("SHOW server_version").fetchone()
        assert row is not None
        return {
            "postgres": str(row[0]).split()[0],
            "redis": str(self._client.info("server")["redis_version"]),
        }

    def spent(self, worker: float) -> Spent:
        """The costs so far; `worker` is the CPU of the server, in seconds."""
        seen = self._admin.execute(
            "SELECT coalesce(sum(calls), 0)::float8, pg_snapshot_xmax(pg_current_snapshot())::text::float8,"
            " (pg_current_wal_insert_lsn() - '0/0')::float8 FROM pg_stat_statements s"
            " JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s"
            " AND query NOT IN ('BEGIN', 'COMMIT', 'ROLLBACK')",
            [self._name],
        ).fetchone()
        assert seen is not None
        stats: dict[str, dict[str, int]] = self._client.info("commandstats")
        own = ("cmdstat_info", "cmdstat_client|", "cmdstat_hello")
        commands = sum(each["calls"] for name, each in stats.items() if not name.startswith(own))
        return Spent(
            worker * 1e6, _on_core(self._redis_pid) / 1e3, self._postgres_cpu() / 1e3, commands, *seen
        )

    def connections(self) -> tuple[int, int]:
        """The numbers of connections to PostgreSQL's database and to Redis, without those of this object."""
        row = self._admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [self._name]
        ).fetchone()
        assert row is not None
        return int(row[0]), int(self._client.info("clients")["connected_clients"]) - 1

    def _postgres_cpu(self) -> float:
        """The CPU of all its processes except the one that runs this query, in nanoseconds; that of ended
        processes is exact to 10 ms."""
        pids = Path(f"/proc/{self._postmaster}/task/{self._postmaster}/children").read_text().split()
        living = sum(_on_core(int(pid)) for pid in pids if int(pid) != self._backend)
        return living + _on_core(self._postmaster) + sum(map(int, _stat(self._postmaster)[13:15])) * 1e7


def _stat(pid: int) -> list[str]:
    """The fields of a process after its name, from its `stat` file."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _on_core(pid: int) -> int:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((each / "schedstat").read_text().split()[0]) for each in tasks)
    except OSError:  # it has ended in the meantime
        return 0


@contextmanager
def servers() -> Iterator[Servers]:
    """A Redis and a PostgreSQL that are started for this run and stopped at its end."""
    with own_redis() as cache, own_postgres() as database:
        with psycopg.connect(f"{database.url}/postgres", autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
            admin.execute(f"ALTER SYSTEM SET max_connections = {_MOST_CONNECTIONS}")
            admin.execute("ALTER SYSTEM SET autovacuum = off")
        database.stop()
        database.start()
        url = f"{database.url}/test".replace("postgresql://", "postgresql+psycopg://")
        upgrade(database_url(url))
        backends = Servers(url, cache.url)
        try:
            yield backends
        finally:
            backends.close()


async def calls(at: Servers, call: Callable[[int], Awaitable[object]], count: int) -> Spent:
    """The costs of one of `count` calls in this process; an earlier call opens what the calls need."""
    await call(-1)
    before = at.spent(time.process_time())
    for number in range(count):
        await call(number)
    return at.spent(time.process_time()).less(before).over(count)


# The costs of calls that a worker makes, each measured separately.


async def units_of_the_store(at: Servers, store: ResponseStore, scale: Scale) -> dict[str, Spent]:
    response, frames = streamed("Hello and some more words ", 30)
    running = [record(f"run{number}", lease=Lease(f"me-{number}", 1e12)) for number in range(_OPEN)]
    for each in running:
        await store.put(each)
    leases = {f"run{number}": f"me-{number}" for number in range(_OPEN)}

    async def checkpoint(number: int) -> None:
        here = msgspec.structs.replace(frames, first=number * 100 + 200, last=number * 100 + 232)
        await store.checkpoint("run0", Lease("me-0", 1e12), response, here)

    async def whole(number: int) -> None:
        await store.put(record(f"whole{number}"))

    previous = None
    for number in range(_CHAIN):
        await store.put(record(f"turn{number}", previous, text="x" * 1000))
        previous = f"turn{number}"
    keys = _keys_of(store)
    await keys.add(ManagedKey("key", "0" * 64, "0000", "a key", "key", 1.0))
    rows = UsageRows(
        [DayUsage("key", "2026-11-24", "m", Counts(1, 0, 0, 10, 10))],
        [AgentCounts("key", "a", "m", 10, 100, 1.0, Counts(1))],
    )
    kinds: dict[str, tuple[Callable[[int], Awaitable[object]], float]] = {
        "a stored answer, the store's part": (whole, 1),
        "a checkpoint": (checkpoint, 1),
        "a lease renewed, of 100 together": (lambda _: store.renew(leases, 1e12), _OPEN),
        "a look for leases that are over": (
            lambda n: store.claim_orphans(Lease(f"s{n}", 1e12), 1.0, waiting=False),
            1,
        ),
        "a look for waiting runs": (lambda n: store.claim_waiting(Lease(f"s{n}", 1e12), 1.0), 1),
        "waiting runs counted": (lambda _: store.waiting(NOBODY, 5000), 1),
        "the state of managed keys": (lambda _: keys.version(), 1),
        "a batch of usage": (lambda n: store.usage.add_usage("w", n + 2, rows), 1),
        "a turn of a chain of 100": (lambda _: store.chain(f"turn{_CHAIN - 1}"), _CHAIN),
    }
    return {name: (await calls(at, call, scale.calls)).over(many) for name, (call, many) in kinds.items()}


async def _checkpoints(store: ResponseStore, count: int, number: int) -> None:
    """Make a checkpoint of each of the first `count` runs that `units_of_the_store` has begun."""
    response, frames = streamed("Hello and some more words ", 30)
    here = msgspec.structs.replace(frames, first=number * 100 + 100_200, last=number * 100 + 100_232)
    lease = Lease("me-0", 1e12)
    await asyncio.gather(
        *(
            store.checkpoint(f"run{n}", msgspec.structs.replace(lease, worker=f"me-{n}"), response, here)
            for n in range(count)
        )
    )


def _keys_of(store: ResponseStore) -> KeyStore:
    assert store.keys is not None
    return store.keys


async def units_of_redis(at: Servers, scale: Scale) -> dict[str, Spent]:
    client = redis.asyncio.Redis.from_url(at.redis)
    beat, accept = client.register_script(redis_counts.HEARTBEAT), client.register_script(redis_counts.ACCEPT)

    async def pong(_: int) -> None:
        await client.ping()

    kinds: dict[str, Callable[[int], Awaitable[object]]] = {
        "a ping": pong,
        "a heartbeat of the limits": lambda _: beat(["l:alive", "l:gone"], ["me", 4000]),
        "a request's rate limit": lambda _: accept(["l:bucket"], [0.001, 1, 60, 0.001]),
    }
    costs = {name: await calls(at, call, scale.calls) for name, call in kinds.items()}
    await client.aclose()
    return costs


# Costs that grow with the number of workers, or of the things that workers make.


async def growth_of_the_store(at: Servers, store: ResponseStore, scale: Scale) -> dict[str, dict[str, Spent]]:
    costs: dict[str, dict[str, Spent]] = {}
    url = make_url(at.postgres)
    plain = at.postgres.replace("+psycopg", "")
    few = max(scale.calls // 10, 5)
    with psycopg.connect(plain, autocommit=True) as admin, ExitStack() as stack:
        looking = ProcessConnections(partial(_one_connection, url), "me", 10.0)
        for size in (1, WRITTEN_TOGETHER):
            together = costs.setdefault("checkpoints written together, by their number", {})
            together[str(size)] = await calls(at, partial(_checkpoints, store, size), few)
        there = 0
        for size in scale.sizes:
            for number in range(there, min(size, _MOST_CONNECTIONS - 100)):
                named = f"{NAME}other{number}"
                stack.enter_context(psycopg.connect(plain, application_name=named, autocommit=True))
            there = size
            looks = costs.setdefault("a look at the processes, by their number", {})
            looks[str(size)] = await calls(at, lambda _: looking._looked(), few)
        await looking.leave()
        existing = 0
        for rows in scale.rows:
            _fill(admin, existing, rows)
            _fill_keys(admin, existing, rows)
            existing = rows
            admin.execute("ANALYZE responses, api_keys")
            changed = await _one_changed(store)
            kinds: dict[str, Callable[[int], Awaitable[object]]] = {
                "the last lease of a process, by running responses": lambda _: _last_lease(store),
                "the runs of a process claimed, by running responses": (
                    lambda n: store.claim_of("gone", Lease(f"s{n}", 1e12))
                ),
                "stored bytes of all keys, by responses": lambda _: store.stock(),
                "managed keys read, by their number": lambda _: _keys_of(store).all(),
                "a changed key read, by the number of keys": changed,
                "a look for leases that are over, by running responses": (
                    lambda n: store.claim_orphans(Lease(f"s{n}", 1e12), 1.0, waiting=False)
                ),
            }
            for name, call in kinds.items():
                costs.setdefault(name, {})[str(rows)] = await calls(at, call, few)
    return costs


async def _last_lease(store: Any) -> object:
    values = {"of_process": "gone-"}
    return await store._database.read(lambda connection: connection.scalar(queries.LAST_LEASE, values))


async def _one_changed(store: ResponseStore) -> Callable[[int], Awaitable[object]]:
    """Return a call that reads the one key that has changed since an earlier state."""
    keys, states = _keys_of(store), []
    for number in (1, 2):
        await keys.change("key1", KeyChange(limits=KeyLimits(concurrent=number)))
        states.append(await keys.version())

    async def call(_: int) -> None:
        changes = await keys.changed(*states)
        assert changes is not None
        assert [*changes] == ["key1"]

    return call


def _fill_keys(admin: psycopg.Connection[Any], start: int, end: int) -> None:
    admin.execute(
        "INSERT INTO api_keys (id, hash, last_four, name, owner, created_at, limits) SELECT 'key' || n,"
        " md5(n::text), '0000', 'a key', 'key' || n, n, '{}' FROM generate_series(%s::int, %s::int) n",
        [start + 1, end],
    )


def _fill(admin: psycopg.Connection[Any], start: int, end: int) -> None:
    """Insert running responses, whose numbers are from `start` to `end`, of many processes."""
    admin.execute(
        "INSERT INTO responses (id, owner, status, created_at, updated_at, lease_worker, lease_until,"
        " last_sequence, response) SELECT 'fill' || n, 'key' || n %% 10, 'in_progress', n, n,"
        " md5((n %% 100)::text) || '-' || n, 1e12, 0, decode(repeat('ab', 2000), 'hex')"
        " FROM generate_series(%s::int, %s::int) n",
        [start + 1, end],
    )


async def growth_of_redis(at: Servers, scale: Scale) -> dict[str, dict[str, Spent]]:
    costs: dict[str, dict[str, Spent]] = {}
    few = max(scale.calls // 3, 20)
    client = redis.asyncio.Redis.from_url(at.redis)
    agree = client.register_script(redis_counts.AGREE)
    for size in scale.sizes:
        await client.delete("l:held", "l:alive", "l:gone")
        await client.zadd("l:alive", {f"w{n}": 1e15 for n in range(size)})
        counts: dict[str, Any] = {f"w{n}": f"{n % 3} 1" for n in range(size)}
        total = sum(n % 3 for n in range(size))
        await client.hset("l:held", mapping={**counts, "total": total, "seen": 0})
        agreed = costs.setdefault("a slot of a key, by workers that have used it", {})
        agreed[str(size)] = await calls(
            at,
            lambda n: agree(["l:alive", "l:gone", "l:held"], ["w0", 1, n + 10, 60000, 10**6]),
            few,
        )
    for size in scale.sizes:
        waking = costs.setdefault("an entry of the queue, by workers that wait", {})
        waking[str(size)] = await _queued(at, client, size, few)
        heard = costs.setdefault("a message to all, by workers that listen", {})
        heard[str(size)] = await _published(at, client, size, few)
    await client.aclose()
    return costs


async def _raw(at: Servers, command: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection that sends a command and never reads the answer, so that only the costs of Redis
    count and not those of a client."""
    host, _, port = at.redis.removeprefix("redis://").partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"*{len(command)}\r\n".encode() + b"".join(b"$%d\r\n%b\r\n" % (len(c), c.encode()) for c in command)
    )
    return reader, writer


async def _queued(at: Servers, client: Any, size: int, count: int) -> Spent:
    """The costs of an entry in a queue that one of `size` waiting clients takes; a client that has taken one
    does not wait again before all are counted."""
    await client.delete("q")
    await client.xgroup_create("q", "workers", id="0", mkstream=True)
    writers = []
    for number in range(size + count):  # `count` more, because each entry wakes one
        command = [
            "XREADGROUP",
            "GROUP",
            "workers",
            f"w{number}",
            "BLOCK",
            "0",
            "COUNT",
            "1",
            "STREAMS",
            "q",
            ">",
        ]
        writers.append((await _raw(at, command))[1])
    await asyncio.sleep(0.5)
    before = at.spent(time.process_time())
    for _ in range(count):
        await client.xadd("q", {b"id": b"resp_1", b"owner": b""})
    spent = at.spent(time.process_time()).less(before).over(count)
    for writer in writers:
        writer.close()
    await asyncio.sleep(0.2)
    return spent


async def _published(at: Servers, client: Any, size: int, count: int) -> Spent:
    writers = [(await _raw(at, ["SUBSCRIBE", "c"]))[1] for _ in range(size)]
    await asyncio.sleep(0.5)
    before = at.spent(time.process_time())
    for _ in range(count):
        await client.publish("c", "x" * 100)
    spent = at.spent(time.process_time()).less(before).over(count)
    for writer in writers:
        writer.close()
    await asyncio.sleep(0.2)
    return spent


# The costs of a server process for the requests of clients.


def units_of_a_server(at: Servers, scale: Scale) -> tuple[dict[str, Spent], dict[str, float]]:
    """The costs of each unit, and the bytes that are stored."""
    units: dict[str, Spent] = {}
    stored: dict[str, float] = {}
    with _fleet(at, 1) as (_, (server,)):
        _ask(server, "burst-20", scale.requests // 4, stream=True)
        idle = units["an idle worker, a second"] = _idle(at, [server], scale.idle)

        def took(count: int, work: Callable[[], object], process: Process = server) -> Spent:
            begun, before = time.monotonic(), at.spent(process.cpu())
            work()
            spent = at.spent(process.cpu()).less(before)
            return spent.less(idle, time.monotonic() - begun).over(count)

        many = scale.requests
        units["a plain request, not stored"] = took(many, lambda: _ask(server, "x", many, store=False))
        size = _size_of(at)
        units["a stored answer"] = took(many, lambda: _ask(server, "x", many))
        stored["bytes of a stored answer in PostgreSQL"] = (_size_of(at) - size) / many
        size = _size_of(at)
        units["a stored stream of 20 tokens"] = took(
            many, lambda: _ask(server, "burst-20", many, stream=True)
        )
        stored["bytes of a stored stream of 20 tokens in PostgreSQL"] = (_size_of(at) - size) / many
        few = many // 4
        units["a background response of 20 tokens"] = took(few, lambda: _in_background(at, server, few))
        units["a resume of an ended stream"] = took(few, partial(_resume, at, server, few))
        short, long = (took(scale.streams, partial(_paced, server, n, scale)) for n in (30, 150))
        units["a paced token and its checkpoints"] = long.less(short).over(120)
    with _fleet(at, 1, _CHECKPOINTS_OFF) as (_, (server,)):
        _ask(server, "burst-20", scale.requests // 4, stream=True)
        short, long = (took(scale.streams, partial(_paced, server, n, scale), server) for n in (30, 150))
        units["a paced token"] = long.less(short).over(120)
    return units, stored


def counted(at: Servers, scale: Scale, workers: int) -> Counted:
    """Count the costs of so many workers, idle and then with streams of four seconds at each of them."""
    rate, tokens, seconds = 2.0, 120, max(scale.idle, 12.0)
    with _fleet(at, workers) as (_, processes):
        for each in processes:
            _ask(each, "burst-20", 20, stream=True)
        idle = _idle(at, processes, scale.idle)
        loads = []
        begun, before = time.monotonic(), at.spent(sum(each.cpu() for each in processes))
        count = round(rate * seconds)
        for each in processes:
            stream_load = Load(each.port, _PATH, _body(f"paced-{tokens}", stream=True), count, count, seconds)
            loads.append(_begin(stream_load))
        most = (0, 0)
        while any(load.poll() is None for load in loads):
            now = at.connections()
            most = max(most[0], now[0]), max(most[1], now[1])
            time.sleep(0.5)
        for load in loads:
            _end(load, count)
        elapsed = time.monotonic() - begun
        spent = at.spent(sum(each.cpu() for each in processes)).less(before)
        # the rate is the mean over the whole time, also after the last stream has begun
        return Counted(workers, count / elapsed, tokens, idle, spent.over(elapsed), *most)


def _idle(at: Servers, found: list[Process], seconds: float) -> Spent:
    """The costs per second of all these servers together while they are idle."""
    time.sleep(2)
    begun, before = time.monotonic(), at.spent(sum(each.cpu() for each in found))
    time.sleep(seconds)
    return at.spent(sum(each.cpu() for each in found)).less(before).over(time.monotonic() - begun)


@contextmanager
def _fleet(at: Servers, workers: int, config: str = "") -> Iterator[tuple[int, list[Process]]]:
    """So many servers over one model process."""
    with tempfile.TemporaryDirectory(prefix="orb-bearing-") as name, ExitStack() as stack:
        port = stack.enter_context(model_side(core=None))
        processes = []
        for number in range(workers):
            command = _command(at, config)
            subject = Subject(f"ours-{number}", command, _PATH)
            process = stack.enter_context(running(subject, port, Path(name) / subject.name, core=None))
            assert process is not None
            processes.append(process)
        yield port, processes


def _command(at: Servers, config: str) -> Callable[[int, int, Path], list[str]]:
    ask = ours("--store", at.postgres, "--event-log", at.redis)

    def command(port: int, model: int, folder: Path) -> list[str]:
        argv = ask(port, model, folder)
        file = folder / "config.toml"
        file.write_text(config + file.read_text())
        return argv

    return command


def _body(model: str, **more: object) -> str:
    return json.dumps({"model": model, "input": "Say something.", **more})


def _ask(server: Process, model: str, count: int, **more: object) -> None:
    _end(_begin(Load(server.port, _PATH, _body(model, **more), count, min(count, 16))), count)


def _paced(server: Process, tokens: int, scale: Scale) -> None:
    body = _body(f"paced-{tokens}", stream=True)
    _end(_begin(Load(server.port, _PATH, body, scale.streams, scale.streams)), scale.streams)


def _begin(asked: Load) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.benchmarks.served.clients", msgspec.json.encode(asked).decode()]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def _end(client: subprocess.Popen[bytes], count: int) -> None:
    output, _ = client.communicate(timeout=_TIMEOUT)
    result = msgspec.json.decode(output, type=Found)
    if result.failed:
        raise RuntimeError(f"{result.failed} of {count} requests failed")


def _in_background(at: Servers, server: Process, count: int) -> None:
    """Ask for `count` responses in the background, and wait until all of them have ended."""
    _ask(server, "burst-20", count, background=True)
    deadline = time.monotonic() + _TIMEOUT
    with psycopg.connect(at.postgres.replace("+psycopg", ""), autocommit=True) as admin:
        left = "SELECT count(*) FROM responses WHERE lease_until IS NOT NULL AND id LIKE 'resp%'"
        while admin.execute(left).fetchone() != (0,):
            if time.monotonic() > deadline:
                raise RuntimeError("background responses do not end")
            time.sleep(0.2)


def _resume(at: Servers, server: Process, count: int) -> None:
    with psycopg.connect(at.postgres.replace("+psycopg", ""), autocommit=True) as admin:
        rows = admin.execute("SELECT id FROM responses WHERE last_sequence > 20 AND id LIKE 'resp%' LIMIT 50")
        ids = [name for (name,) in rows]
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for number in range(count):
        connection.request("GET", f"{_PATH}/{ids[number % len(ids)]}?stream=true&starting_after=10")
        if not connection.getresponse().read().endswith(b"[DONE]\n\n"):
            raise RuntimeError("a stream was not resumed to its end")
    connection.close()


def _size_of(at: Servers) -> int:
    with psycopg.connect(at.postgres.replace("+psycopg", ""), autocommit=True) as admin:
        row = admin.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])


def measure(scale: Scale) -> Measurement:
    """Measure everything, over databases that are started for this."""
    with servers() as at:
        fleets = [counted(at, scale, workers) for workers in scale.fleets]
        units, stored = units_of_a_server(at, scale)
        more, growth = asyncio.run(_called(at, scale))
        return Measurement(
            datetime.now(UTC).date().isoformat(),
            machine(),
            at.versions(),
            {**units, **more},
            growth,
            fleets,
            stored,
        )


async def _called(at: Servers, scale: Scale) -> tuple[dict[str, Spent], dict[str, dict[str, Spent]]]:
    async with AsyncExitStack() as stack:
        store = open_store(at.postgres)
        stack.push_async_callback(store.close)
        units = await units_of_the_store(at, store, scale) | await units_of_redis(at, scale)
        growth = await growth_of_redis(at, scale) | await growth_of_the_store(at, store, scale)
        return units, growth


def run(scale: Scale) -> str:
    """The units as text."""
    return shown(measure(scale))


def shown(found: Measurement) -> str:
    title = "CPU in µs; commands of Redis; statements, writing transactions and log of PostgreSQL"
    head = "".join(f"{name:>12}" for name in Spent.__struct_fields__)
    lines = [title, "-" * len(title), f"{'':<58}{head}"]
    rows = dict(found.units)
    for what, by in found.growth.items():
        rows |= {f"{what}: {size}": spent for size, spent in by.items()}
    for each in found.counted:
        rows |= {f"{each.workers} idle workers, a second": each.idle}
        rows |= {f"{each.workers} at {each.rate:.2f} streams/s of {each.tokens}, a second": each.loaded}
    for name, spent in rows.items():
        lines.append(f"{name:<58}" + "".join(f"{value:>12,.1f}" for value in msgspec.structs.astuple(spent)))
    lines += [f"{name}: {value:,.0f}" for name, value in found.stored.items()]
    return "\n".join(lines)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bearing")
    parser.add_argument("--quick", action="store_true", help="make fewer calls, for a less certain result")
    parser.add_argument("--write", action="store_true", help=f"write {MEASURED.relative_to(REPOSITORY)}")
    return parser


def main() -> None:
    options = arguments().parse_args()
    measurement = measure(QUICK if options.quick else FULL)
    if options.write:
        MEASURED.parent.mkdir(exist_ok=True)
        MEASURED.write_bytes(msgspec.json.format(msgspec.json.encode(measurement)) + b"\n")
    print(shown(measurement))


if __name__ == "__main__":
    main()
