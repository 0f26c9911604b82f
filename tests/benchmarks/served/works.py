"""The works: the load that each subject gets, and the figure that is read from it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final, Literal, NamedTuple

import msgspec

from tests.benchmarks.served.clients import Found, Load
from tests.benchmarks.served.subjects import BESIDE, Process, Subject, pinned

_TIMEOUT: Final = 180.0  # seconds for one load
Figure = Literal["cpu", "latency", "first"]


class Work(NamedTuple):
    """`count` requests to the model `model`, `together` at a time, begun over `over` seconds. `figure` names
    the figure of a round, in `unit`: microseconds of CPU for each of `per`, or the milliseconds within which
    99 of 100 tokens or first events arrive. `wanted` is the target for the ratio to the first subject."""

    name: str
    model: str
    count: int
    together: int
    per: int
    wanted: float
    unit: str = "µs/token"
    figure: Figure = "cpu"
    streamed: bool = True
    over: float = 0.0
    stamped: bool = False


def works(quick: bool) -> list[Work]:
    """All works; with `quick`, each has fewer requests."""
    part = 4 if quick else 1
    streams, starts, plain, short = 200 // part, 1_000 // part, 2_000 // part, 1_000 // part
    paced = Work("streams of 30 tokens a second", "paced-120", streams, streams, streams * 120, 2.0, over=1.0)
    many = Work("64 streams of 2,000 tokens at once", "burst-2000", 64, 64, 128_000, 1.0)
    return [
        Work("a stream of 20,000 tokens at once", "burst-20000", 4 // part, 1, 80_000 // part, 1.0),
        many,
        Work("arguments of a call, 20,000 at once", "arguments-20000", 4 // part, 1, 80_000 // part, 1.0),
        paced,
        paced._replace(name="30 tokens a second, a token's way", figure="latency", unit="ms", stamped=True),
        Work(
            "streams begun within 5 s, first event",
            "paced-90",
            starts,
            starts,
            1,
            10.0,
            "ms",
            "first",
            over=5.0,
        ),
        many._replace(name="64 streams at once, first event", figure="first", unit="ms", wanted=2.0),
        Work("a plain request", "short-1", plain, 8, plain, 6.0, "µs", streamed=False),
        Work("a stream of 20 tokens", "burst-20", short, 8, short, 2.5, "µs"),
    ]


def measured(subject: Subject, process: Process, work: Work) -> float:
    """The figure of one round. Raises RuntimeError if a request failed."""
    load = load_of(subject, process.port, work)
    before = process.cpu()
    command = [sys.executable, "-m", "tests.benchmarks.served.clients", msgspec.json.encode(load).decode()]
    done = subprocess.run(pinned(BESIDE, command), capture_output=True, timeout=_TIMEOUT, check=False)
    spent = process.cpu() - before
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-600:])
    result = msgspec.json.decode(done.stdout, type=Found)
    if result.failed:
        raise RuntimeError(f"{result.failed} of {load.count} requests failed")
    figures = {"cpu": spent / work.per * 1e6, "latency": result.latency * 1e3, "first": result.first * 1e3}
    return figures[work.figure]


def load_of(subject: Subject, port: int, work: Work) -> Load:
    """The requests for a subject on this port."""
    body: dict[str, object] = {"model": work.model, "stream": work.streamed}
    if subject.path.endswith("completions"):
        body["messages"] = [{"role": "user", "content": "Say something."}]
    else:
        body |= {"input": "Say something.", "store": False}
    return Load(port, subject.path, json.dumps(body), work.count, work.together, work.over, work.stamped)
