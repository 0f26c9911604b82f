"""Whether the cost of a delta and the memory of a stream grow with the output (law E12)."""

from __future__ import annotations

import gc
import time
import tracemalloc
from typing import NamedTuple

from openresponses_bridge import ResponseStreamStateMachine, encode_sse
from tests.benchmarks import streams


class Grown(NamedTuple):
    """The result for one length: ns per delta, its ratio to that of the shortest, bytes held per byte of
    text."""

    deltas: int
    nanoseconds: float
    ratio: float
    memory: float


def measure(lengths: tuple[int, ...]) -> list[Grown]:
    """Time and size of streams with so many deltas each. The time includes the encoding of the events; the
    memory is what the machine holds after the last delta."""
    rows: list[Grown] = []
    for deltas in lengths:
        cost = min(_time(deltas) for _ in range(5 if deltas < 100_000 else 2))
        rows.append(Grown(deltas, cost, cost / (rows[0].nanoseconds if rows else cost), _memory(deltas)))
    return rows


def _time(deltas: int) -> float:
    machine = streams.machine()
    gc.collect()
    begin = time.process_time_ns()
    for _ in range(deltas):
        encode_sse(machine.text(streams.TOKEN))
    return (time.process_time_ns() - begin) / deltas


def _memory(deltas: int) -> float:
    gc.collect()
    tracemalloc.start()
    machine = ResponseStreamStateMachine(model="m")
    machine.start()
    for _ in range(deltas):
        machine.text(streams.TOKEN)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / (deltas * len(streams.TOKEN))


def table(rows: list[Grown]) -> str:
    lines = ["growth over the length of the output", "------------------------------------"]
    lines += [
        f"{row.deltas:>9} deltas  {row.nanoseconds:>7.0f} ns/delta  {row.ratio:>5.2f} × the shortest"
        f"  {row.memory:>7.2f} bytes held per byte of text"
        for row in rows
    ]
    return "\n".join(lines)
