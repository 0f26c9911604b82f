"""Measures the costs of persistence: the same streams with and without it, for each store; loaded chains;
outputs of many sizes.

If the folder for temporary files is in memory, SQLite's syncs cost nothing.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from openresponses_bridge import ResponseStreamStateMachine, encode_sse
from openresponses_bridge.protocol.codec import decode_response, encode
from openresponses_bridge.protocol.events import Event
from openresponses_server.store.base import Lease, StoredResponse
from openresponses_server.store.frames import Frames
from openresponses_server.store.persistence import RecordOptions
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer as Transformer
from openresponses_server.store.records import InputRow, decode_input, input_rows
from openresponses_server.store.writers import StoringTimes
from tests.benchmarks.awaited import Spent, Work, best, cpu, table, wall
from tests.benchmarks.places import Place, Services, opened, services
from tests.benchmarks.streams import TOKEN
from tests.support.stores import messages, record

Reads = Sequence[Sequence[str]]
"""The deltas of each read from upstream; the deltas of one read are stored together."""

_PLAIN: Final = "plain"
_PER_READ: Final = 16
_AT_ONCE: Final = 10  # turns that are stored side by side
_HOUR: Final = 3600.0


class Effort(NamedTuple):
    """The size of a run: `times` in a round for short work; `tokens` in whole reads of 16; `turns` are the
    lengths of chains; `sizes` are kilobytes of output."""

    rounds: int
    times: int
    tokens: int
    turns: tuple[int, ...]
    sizes: tuple[int, ...]


FULL: Final = Effort(4, 20, 1_600, (10, 100, 1_000), (1, 10, 100, 1_000, 10_000))
QUICK: Final = Effort(2, 10, 160, (10, 100, 1_000), (1, 10, 100, 1_000))


def run(effort: Effort) -> str:
    """The tables as text, after a list of what could not be measured."""
    with services() as found:
        gc.collect()
        gc.freeze()  # so that the collections before the timings skip the objects that exist now
        try:
            return "\n\n".join([*found.absent, *asyncio.run(_tables(found, effort))])
        finally:
            gc.unfreeze()


async def _tables(found: Services, effort: Effort) -> list[str]:
    async with opened(found) as places:
        alone = [place for place in places if place.alone]
        return [
            await _passing(places, effort),
            await _chains(alone, effort),
            await _sizes(places, effort),
        ]


async def _passing(places: Sequence[Place], effort: Effort) -> str:
    """Subtract the time for a response of one token from that of the long ones; the rest is for the further
    tokens."""
    first, many = [[TOKEN]], effort.tokens
    responses = await best(_kept_and_plain(places, first), 2 * effort.rounds, effort.times)
    columns = {"1-token response": responses}
    for size in (1, _PER_READ):
        reads = first + [[TOKEN] * size] * (many // size)
        spent = await best(_kept_and_plain(places, reads), effort.rounds)
        columns[f"token, {size} a read"] = {
            name: one.per(many, beyond=responses[name]) for name, one in spent.items()
        }
    title = "streams plain and kept: a response of one token, then each further token"
    return "\n\n".join(
        table(f"{title}; {name}", {head: clock(column) for head, column in columns.items()})
        for name, clock in (("wall", wall), ("CPU", cpu))
    )


def _kept_and_plain(places: Sequence[Place], reads: Reads) -> dict[str, Work]:
    return {_PLAIN: partial(_plain, reads)} | {place.name: partial(_kept, place, reads) for place in places}


async def _plain(reads: Reads) -> None:
    async for events in _batches(ResponseStreamStateMachine(model="m"), reads):
        encode_sse(events)


async def _kept(place: Place, reads: Reads) -> str:
    """Store a response and return its id. There are no checkpoints between its beginning and its end."""
    machine = ResponseStreamStateMachine(model="m")
    stored = StoredResponse(machine.snapshot, messages("What is it?"))
    times = StoringTimes(interval=_HOUR)
    options = RecordOptions()
    keeper = Transformer(stored, lambda: machine.snapshot, place.store, place.log, "bench", times, options)
    async for _ in keeper.transform(_batches(machine, reads)):
        pass
    if not keeper.saved:
        raise RuntimeError(f"{place.name}: the response was not stored")
    return keeper.response_id


async def _batches(machine: ResponseStreamStateMachine, reads: Reads) -> AsyncIterator[list[Event]]:
    yield machine.start()
    for deltas in reads:
        yield [event for delta in deltas for event in machine.text(delta)]
    yield machine.finish("stop")


async def _chains(places: Sequence[Place], effort: Effort) -> str:
    ids = [f"resp_{number:032x}" for number in range(max(effort.turns))]
    texts = _prose(len(ids))
    turns = [record(ids[n], ids[n - 1] if n else None, texts[n]) for n in range(len(ids))]
    bodies = [(encode(turn.response), input_rows(turn)) for turn in turns]
    for place in places:
        for start in range(0, len(turns), _AT_ONCE):
            await asyncio.gather(*map(place.store.put, turns[start : start + _AT_ONCE]))
    columns: dict[str, dict[str, Spent]] = {}
    for length in effort.turns:
        works: dict[str, Work] = {_PLAIN: partial(_decoded, bodies[:length])}
        works |= {place.name: partial(_loaded, place, ids[length - 1], length) for place in places}
        spent = await best(works, 2 * effort.rounds)
        columns[f"{length:,} turns"] = {name: one.per(length) for name, one in spent.items()}
    title = f"chains of turns of 1 KB loaded, per turn; {_PLAIN}: decoded; wall"
    return table(title, {name: wall(column) for name, column in columns.items()}) + "\n" + _growth(columns)


def _growth(columns: Mapping[str, Mapping[str, Spent]]) -> str:
    (shorter, few), (longer, many) = list(columns.items())[-2:]
    ratios = ", ".join(f"{name} {many[name].wall / few[name].wall:.2f} ×" for name in few)
    return f"a turn among {longer}, by one among {shorter}: {ratios}"


async def _decoded(turns: Sequence[tuple[bytes, Sequence[InputRow]]]) -> None:
    for body, rows in turns:
        decode_response(body)
        decode_input(row.item for row in rows)


async def _loaded(place: Place, response_id: str, length: int) -> None:
    if len(await place.store.chain(response_id)) != length:
        raise RuntimeError(f"{place.name}: not all turns were loaded")


async def _sizes(places: Sequence[Place], effort: Effort) -> str:
    columns: dict[str, dict[str, float]] = {}
    prose = _prose(max(effort.sizes))
    for size in effort.sizes:
        reads = [prose[start : min(start + _PER_READ, size)] for start in range(0, size, _PER_READ)]
        responses: list[tuple[Place, str]] = []
        works: dict[str, Work] = {_PLAIN: partial(_plain, reads)}
        for place in places:
            works[f"{place.name}: kept"] = partial(_noted, responses, place, reads)
            if place.alone:
                works[f"{place.name}: checkpoint"] = await _checkpoint(place, reads)
                works[f"{place.name}: read back"] = partial(_read, place, await _kept(place, reads))
        times = max(1, min(effort.times, 1_000 // size))
        spent = await best(works, effort.rounds, times, tidy=partial(_deleted, responses))
        columns[f"{size:,} KB"] = wall(spent)
    return table(
        f"outputs in deltas of 1 KB, {_PER_READ} a read: kept whole, one checkpoint, frames read back; wall",
        columns,
    )


async def _noted(made: list[tuple[Place, str]], place: Place, reads: Reads) -> None:
    made.append((place, await _kept(place, reads)))


async def _deleted(made: list[tuple[Place, str]]) -> None:
    while made:
        place, response_id = made.pop()
        await place.store.delete(response_id)


async def _checkpoint(place: Place, reads: Reads) -> Work:
    """Return work that stores the snapshot of a run that has sent these reads, and another frame of 1 KB."""
    machine = ResponseStreamStateMachine(model="m")
    sent = machine.start()
    for delta in itertools.chain.from_iterable(reads):
        sent += machine.text(delta)
    frame = encode_sse(machine.text(reads[0][0]))
    numbers = itertools.count(len(sent))
    lease = Lease("bench", time.time() + _HOUR)
    response_id = machine.snapshot.id
    await place.store.put(StoredResponse(machine.snapshot, messages("What is it?"), lease=lease))

    async def work() -> None:
        number = next(numbers)
        frames = Frames(number, number, frame)
        await place.store.checkpoint(response_id, lease, machine.snapshot, frames)

    return work


async def _read(place: Place, response_id: str) -> None:
    if not [frames async for frames in place.store.frames(response_id)]:
        raise RuntimeError(f"{place.name}: no frames were read")


def _prose(kilobytes: int) -> list[str]:
    """Texts of 1 KB from a thousand words, which compress about as well as real text: PostgreSQL
    compresses."""
    chance = random.Random(0)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) + " " for _ in range(1_000)]
    return ["".join(chance.choices(words, k=500))[:1_000] for _ in range(kilobytes)]
