"""What persistence costs, each store beside the plain run of the same rounds: a response and a token
that pass through the transformer, a chain that is loaded, outputs of several sizes put and read.

Wall time counts waiting for disk and servers. CPU is this process's, its threads included; that of
PostgreSQL and Redis is their own. The best of several rounds each. SQLite lies in the folder for
temporary files: where that is memory, its syncs cost nothing.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from functools import partial
from typing import Final, NamedTuple

import pytest
import redis

from bridge import ResponseStreamStateMachine, encode_sse
from bridge.protocol.codec import decode_response, encode
from bridge.protocol.events import Event
from server.event_logs.base import EventLog
from server.event_logs.memory import MemoryLog
from server.event_logs.redis import RedisLog
from server.sessions.base import ResponseStore, StoredResponse
from server.sessions.locations import database_url
from server.sessions.migrate import upgrade
from server.sessions.persistence import ResponseSessionPersistenceTransformer as Transformer
from server.sessions.records import decode_input, input_rows
from server.sessions.stores import open_store
from tests.benchmarks.streams import TOKEN
from tests.support.services import postgres_database, redis_server
from tests.support.stores import messages, record, streamed

_KILOBYTE: Final = "x" * 1000
_Work = Callable[[], Awaitable[object]]


class Place(NamedTuple):
    """A store and an event log."""

    name: str
    store: ResponseStore
    log: EventLog


class Spent(NamedTuple):
    """Nanoseconds."""

    wall: float
    cpu: float

    def per(self, n: int, beyond: tuple[float, float] = (0.0, 0.0)) -> Spent:
        return Spent((self.wall - beyond[0]) / n, (self.cpu - beyond[1]) / n)


class Effort(NamedTuple):
    """Tokens of the long response, rounds of it (ten times as many of what is short), turns of the two
    chains, kilobytes of the outputs."""

    tokens: int
    rounds: int
    turns: tuple[int, int]
    sizes: tuple[int, ...]


_FULL: Final = Effort(2_000, 5, (250, 1_000), (1, 100, 10_000))
_QUICK: Final = Effort(200, 1, (50, 250), (1, 100, 1_000))


def run(quick: bool) -> str:
    """The tables as text. Databases, keys and files that it made are gone afterwards."""
    with ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="orb-bench-"))
        stores = {"memory": "memory:", "SQLite": f"sqlite:///{folder}/bench.db"}
        lines: list[str] = []
        if url := _entered(held, "PostgreSQL", 5432, postgres_database(), lines):
            upgrade(database_url(url))
            stores["PostgreSQL"] = url
        address = _entered(held, "Redis", 6379, redis_server(), lines)
        prefix = f"orb-bench-{uuid.uuid4().hex[:12]}"
        if address:
            held.callback(_forget, address, prefix)
        return "\n".join(lines + asyncio.run(_tables(stores, address, prefix, _QUICK if quick else _FULL)))


def _entered(
    held: ExitStack, name: str, port: int, service: AbstractContextManager[str], lines: list[str]
) -> str | None:
    """The service's URL; None, and a line that says so, when it is not there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return held.enter_context(service)
    except (OSError, pytest.skip.Exception, pytest.fail.Exception) as missing:
        lines.append(f"{name} at 127.0.0.1:{port} is absent, and is not measured: {missing}\n")
        return None


def _forget(address: str, prefix: str) -> None:
    with redis.Redis.from_url(address) as client:
        for key in client.scan_iter(f"{prefix}:*"):
            client.delete(key)


async def _tables(stores: dict[str, str], address: str | None, prefix: str, effort: Effort) -> list[str]:
    async with AsyncExitStack() as held:
        alone = [Place(name, open_store(url, limit=10_000), MemoryLog()) for name, url in stores.items()]
        for place in alone:
            held.push_async_callback(place.store.close)
        places = [place._replace(name=f"{place.name} + log in memory") for place in alone]
        if address is not None:
            shared = RedisLog(address, prefix)
            held.push_async_callback(shared.shutdown)
            places.append(Place(f"{alone[-1].name} + Redis", alone[-1].store, shared))
        passing, chains = await _passing(places, effort), await _chains(alone, effort)
        return [*passing, "", *chains, "", *await _sizes(alone, effort)]


async def _best(works: Sequence[_Work], rounds: int) -> list[Spent]:
    """The best of each, taken in turns so that noise meets all."""
    best = [Spent(float("inf"), float("inf"))] * len(works)
    for _ in range(rounds):
        gc.collect()
        for index, work in enumerate(works):
            wall, cpu = time.perf_counter_ns(), time.process_time_ns()
            await work()
            cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
            best[index] = Spent(min(best[index].wall, wall), min(best[index].cpu, cpu))
    return best


def _rows(
    what: str, names: list[str], spent: list[Spent], shorter: list[Spent] | None = None
) -> Iterator[str]:
    """The first of them is the plain run."""
    for name, one, less in zip(names, spent, shorter or spent, strict=True):
        yield (
            f"{what + ': ' + name:<36} {one.wall / 1000:>11.1f} µs wall {one.cpu / 1000:>11.1f} µs CPU"
            f" {one.wall / spent[0].wall:>8.2f} × {one.cpu / spent[0].cpu:>8.2f} × plain"
            + (f" {one.wall / less.wall:>6.2f} × shorter" if shorter else "")
        )


async def _batches(machine: ResponseStreamStateMachine, deltas: int, text: str) -> AsyncIterator[list[Event]]:
    yield machine.start()
    for _ in range(deltas):
        yield machine.text(text)
    yield machine.finish("stop")


async def _plain(deltas: int, text: str = TOKEN) -> None:
    async for events in _batches(ResponseStreamStateMachine(model="m"), deltas, text):
        encode_sse(events)


async def _kept(place: Place, tokens: int) -> None:
    machine = ResponseStreamStateMachine(model="m")
    stored = StoredResponse(machine.snapshot, messages("What is it?"))
    keeper = Transformer(stored, lambda: machine.snapshot, place.store, place.log, "bench")
    async for _ in keeper.transform(_batches(machine, tokens, TOKEN)):
        pass
    if not keeper.saved:
        raise RuntimeError(f"{place.name}: the response was not stored")


async def _passing(places: list[Place], effort: Effort) -> list[str]:
    async def spent(tokens: int, rounds: int) -> list[Spent]:
        kept = [partial(_kept, place, tokens) for place in places]
        return await _best([partial(_plain, tokens), *kept], rounds)

    short = await spent(1, 10 * effort.rounds)
    long = await spent(1 + effort.tokens, 1 + effort.rounds)
    each = [more.per(effort.tokens, one) for one, more in zip(short, long, strict=True)]
    names = ["plain", *(place.name for place in places)]
    title = "a response of one token, then each further token, through the transformer"
    lines = [title, "-" * len(title)]
    return [*lines, *_rows("response", names, short), *_rows("token", names, each)]


async def _chains(places: list[Place], effort: Effort) -> list[str]:
    ids = [f"resp_{number:032x}" for number in range(effort.turns[1])]
    turns = [record(ids[n], ids[n - 1] if n else None, _KILOBYTE) for n in range(len(ids))]
    bodies = [(encode(turn.response), input_rows(turn)) for turn in turns]
    for place in places:
        await asyncio.gather(*(place.store.put(turn) for turn in turns))

    async def plain(length: int) -> None:
        for body, rows in bodies[:length]:
            decode_response(body)
            decode_input(row.item for row in rows)

    title = "a chain of turns of 1 KB loaded, per turn; plain: decoded from a list"
    lines = [title, "-" * len(title)]
    names = ["plain", *(place.name for place in places)]
    shorter = None
    for length in effort.turns:
        works: list[_Work] = [
            partial(plain, length),
            *(partial(place.store.chain, ids[length - 1]) for place in places),
        ]
        spent = [one.per(length) for one in await _best(works, 2 + effort.rounds)]
        lines += _rows(f"{length} turns", names, spent, shorter)
        shorter = spent
    return lines


async def _read(place: Place, response_id: str) -> None:
    async for _ in place.store.frames(response_id):
        pass


async def _sizes(places: list[Place], effort: Effort) -> list[str]:
    title = "an output put with its frames, then the frames read; plain: made and encoded"
    lines = [title, "-" * len(title)]
    for deltas in effort.sizes:
        response, frames = streamed(_KILOBYTE, deltas)
        stored = StoredResponse(response, messages("What is it?"))
        works: list[_Work] = [partial(_plain, deltas, _KILOBYTE)]
        names = ["plain"]
        for place in places:
            works += [partial(place.store.put, stored, frames), partial(_read, place, response.id)]
            names += [f"{place.name} put", f"{place.name} frames"]
        spent = await _best(works, effort.rounds * (10 if deltas < 1_000 else 1))
        lines += _rows(f"{deltas:,} KB", names, spent)
        for place in places:
            await place.store.delete(response.id)
    return lines
