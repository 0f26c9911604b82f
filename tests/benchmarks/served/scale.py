"""Measures how a server uses more of one machine: a second worker, and many streams that are open at once.

    python -m tests.benchmarks.served.scale [--quick]

On a machine with two cores, two workers share them with the model process and the clients, so the rate can't
double. For this reason the table shows the CPU of a request, over all processes of the server, beside the
rate. If workers do not block each other, this CPU stays the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from tests.benchmarks.served.clients import Found, Load
from tests.benchmarks.served.subjects import Process, Subject, model_side, ours, running

_TIMEOUT: Final = 240.0  # seconds for one load
_WORKERS: Final = (1, 2)
_PATH: Final = "/v1/responses"


class Scale(NamedTuple):
    """The size of a run: `requests` of each kind for the workers, in `rounds`; streams that are `open` at
    once."""

    requests: int
    rounds: int
    open: int


FULL: Final = Scale(4_000, 3, 2_000)
QUICK: Final = Scale(400, 1, 200)
_KINDS: Final = {
    "plain requests": ("short-1", False),
    "streams of 20 tokens": ("burst-20", True),
}


class _Took(NamedTuple):
    """Requests per second, and seconds of CPU per request."""

    rate: float
    cpu: float


def run(scale: Scale) -> str:
    """Both tables as text."""
    return "\n".join([*_workers(scale), "", *_open(scale)])


def _workers(scale: Scale) -> Iterator[str]:
    times: dict[tuple[int, str], list[_Took]] = {}
    with _served(*_WORKERS) as processes:
        for process in processes.values():
            _loaded(process, "burst-20", 200, 32)
        for _ in range(scale.rounds):
            for kind in _KINDS:
                for count, process in processes.items():
                    times.setdefault((count, kind), []).append(_took(process, kind, scale.requests))
    title = "workers on all cores, with the model's side and the clients beside them"
    yield from (title, "-" * len(title))
    for kind in _KINDS:
        one, two = (_median(times[count, kind]) for count in _WORKERS)
        yield (
            f"{kind:<22} 1 worker {one.rate:>7,.0f}/s {one.cpu * 1e6:>7,.0f} µs each   "
            f"2 workers {two.rate:>7,.0f}/s {two.cpu * 1e6:>7,.0f} µs each   "
            f"{two.rate / one.rate:.2f} × as many, {two.cpu / one.cpu:.2f} × the CPU of one"
        )


def _median(rounds: list[_Took]) -> _Took:
    return _Took(median(each.rate for each in rounds), median(each.cpu for each in rounds))


def _took(process: Process, kind: str, count: int) -> _Took:
    model, streamed = _KINDS[kind]
    before = process.cpu()
    result = _loaded(process, model, count, 32, streamed=streamed)
    return _Took(count / result.seconds, (process.cpu() - before) / count)


def _open(scale: Scale) -> Iterator[str]:
    """Measure streams of a token a second, which begin over ten seconds, so that all of them are open for ten
    more."""
    title = f"{scale.open:,} open streams"
    yield from (title, "-" * len(title))
    with _served(1) as processes:
        process = processes[1]
        _loaded(process, "slow-2", 20, 20)
        before = process.resident()
        client = _begin(Load(process.port, _PATH, _body("slow-20"), scale.open, scale.open, 10.0))
        time.sleep(15)
        peak = process.resident()
        result = _end(client, scale.open)
        yield (
            f"{result.failed} failed; first event, 99 of 100 within {result.first * 1e3:,.0f} ms; "
            f"{(peak - before) * 1024 / scale.open:,.0f} KB each; {process.resident():,.0f} MB after them"
        )


def _body(model: str, *, streamed: bool = True) -> str:
    return json.dumps({"model": model, "input": "Say something.", "stream": streamed, "store": False})


def _loaded(process: Process, model: str, count: int, together: int, *, streamed: bool = True) -> Found:
    load = Load(process.port, _PATH, _body(model, streamed=streamed), count, together)
    return _end(_begin(load), count)


def _begin(asked: Load) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.benchmarks.served.clients", msgspec.json.encode(asked).decode()]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def _end(client: subprocess.Popen[bytes], count: int) -> Found:
    output, _ = client.communicate(timeout=_TIMEOUT)
    result = msgspec.json.decode(output, type=Found)
    if result.failed == count:
        raise RuntimeError("every request failed")
    return result


@contextmanager
def _served(*workers: int) -> Iterator[dict[int, Process]]:
    """Servers with these numbers of workers, over one model process."""
    with tempfile.TemporaryDirectory(prefix="orb-scale-") as name, ExitStack() as stack:
        port = stack.enter_context(model_side(core=None))
        there = {}
        for count in workers:
            subject = Subject(f"ours-{count}", ours("--workers", str(count)), _PATH)
            process = stack.enter_context(running(subject, port, Path(name) / subject.name, core=None))
            assert process is not None
            there[count] = process
        yield there


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.served.scale")
    parser.add_argument("--quick", action="store_true", help="send fewer requests, for a less certain result")
    print(run(QUICK if parser.parse_args().quick else FULL))
