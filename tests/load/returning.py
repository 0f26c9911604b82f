"""Resources that have to return to their initial level after a load, and the comparison of them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import psycopg
import redis

from tests.load.watch import Sample, sample
from tests.load.wire import asked

GAUGES: Final = ("running", "waiting", "readers", "sockets", "streams", "queue_depth", "tasks")
"""The metrics of /metrics to compare, as sums over all workers."""
_GAUGE: Final = re.compile(r"^openresponses_bridge_(\w+) ([\d.e+]+)$", re.MULTILINE)
_UNENDED: Final = "SELECT count(*) FROM responses WHERE status IN ('queued', 'in_progress')"


class Tolerance(NamedTuple):
    """The allowed increase over the start: per process, with the reason, and per stream that was open at the
    same time."""

    each: float
    why: str
    of_stream: float = 0.0


TOLERATED: Final = {
    "memory": Tolerance(
        32.0, "MB that an allocator keeps: an arena of 1 MB stays for one object in it", of_stream=0.0625
    ),
    "files": Tolerance(32.0, "connections to PostgreSQL and Redis that are kept"),
    "threads": Tolerance(8.0, "threads that wait for work"),
    "tasks": Tolerance(16.0, "those of kept connections"),
}
"""The allowed increases; everything else has to be at most what it was."""

FLAT: Final = 2.0
"""MB a minute by which the memory of all processes may grow under an even load."""
_MINUTE: Final = 60.0
_MINUTES: Final = 4  # of an even load; below that, growth can't be told from the memory of a start

Standing = dict[str, float]
"""Amounts by name."""


async def held(pid: int, port: int) -> Standing:
    """The amounts that a server's processes hold now. Raises Broken."""
    standing: Standing = sample(pid, 0.0)._asdict()
    del standing["seconds"]
    async with asked(port, "GET", "/metrics") as answer:
        gauges = dict(_GAUGE.findall((await answer.body()).decode()))
    return standing | {name: float(gauges[name]) for name in GAUGES if name in gauges}


def stored(postgres: str, server: str) -> Standing:
    """The amounts in the database and the Redis at these URLs. Raises psycopg.Error and RedisError."""
    with psycopg.connect(postgres, connect_timeout=5) as database:
        row = database.execute(_UNENDED).fetchone()
        assert row is not None
    with redis.Redis.from_url(server, socket_timeout=5) as client:
        keys = sum(client.ttl(key) == -1 for key in list(client.scan_iter(count=1_000)))
    return {"leased responses": row[0], "Redis keys without expiry": keys}


def stored_in_file(file: Path) -> Standing:
    """The amounts in the file of a server with the default store. Raises sqlite3.Error."""
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
        return {"leased responses": database.execute(_UNENDED).fetchone()[0]}


def differences(
    start: Standing, now: Standing, streams: int = 0, tolerated: Mapping[str, Tolerance] = TOLERATED
) -> list[str]:
    """Describe the amounts that have not returned to their start after a load with so many streams at
    once."""
    lines = []
    for name, value in now.items():
        allowed = 0.0
        if name in tolerated:
            allowed = tolerated[name].each * start["processes"] + tolerated[name].of_stream * streams
        if value > start[name] + allowed:
            lines.append(f"{name}: {value:,.0f}, {start[name]:,.0f} at the start")
    if now["processes"] < start["processes"]:
        lines.append(f"processes: {now['processes']:.0f}, {start['processes']:.0f} at the start")
    return lines


def growth(samples: Sequence[Sample], begun: float, ended: float) -> float:
    """MB a minute by which memory grew under the even load between these times: from its second minute to its
    last one. 0 if the load was too short for a result."""
    second = [each.memory for each in samples if begun + _MINUTE <= each.seconds < begun + 2 * _MINUTE]
    last = [each.memory for each in samples if ended - _MINUTE <= each.seconds < ended]
    minutes = (ended - begun) / _MINUTE - 2
    return (fmean(last) - fmean(second)) / minutes if minutes >= _MINUTES and second and last else 0.0
