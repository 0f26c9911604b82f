"""Measures the time until a server has answered a request and until `--help` is printed, and the memory of a
server before, immediately after and some time after a load.

    python -m tests.benchmarks.served.starting [--quick]

Modules are compiled before the measurement, as they are after the installation of a package.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import click

from openresponses_cli.commands.cli import main as commands
from tests.benchmarks.served.clients import Load
from tests.benchmarks.served.subjects import SUBJECTS, Subject, free_port, model_side, ours, running
from tests.benchmarks.served.works import Work, load_of, measured

_TIMEOUT: Final = 60.0  # seconds for one start
_LOOK: Final = 0.002  # seconds between two attempts to connect
_SETTLED: Final = 20.0  # seconds, in which connections to the model process are closed and memory is freed
_EMPTY: Final = [sys.executable, "-c", "pass"]
_ONE: Final = Work("", "short-1", 1, 1, 1, 0.0, streamed=False)
_NAME: Final = 40
_CELL: Final = 16


class Scale(NamedTuple):
    """The size of a run: `rounds` of starts; `streams` of 2,000 tokens, 64 at once, and as many plain
    requests."""

    rounds: int
    streams: int


FULL: Final = Scale(9, 1_000)
QUICK: Final = Scale(3, 128)


class _Took(NamedTuple):
    """Seconds until the result was there, and seconds of CPU until then."""

    wall: float
    cpu: float


def run(scale: Scale) -> str:
    """The three tables as text."""
    subjects = [*SUBJECTS, Subject("ours, nothing stored", ours("--store", "memory://"), "/v1/responses")]
    with tempfile.TemporaryDirectory(prefix="orb-starting-") as name, model_side() as model:
        folder = Path(name)
        return "\n".join(
            [
                *_table(
                    "until its first request is answered", _starts(subjects, model, scale.rounds, folder)
                ),
                "",
                *_table("until --help is shown", _helps(scale.rounds)),
                "",
                *_memory(subjects, model, scale.streams, folder),
            ]
        )


def _table(title: str, found: dict[str, list[_Took]]) -> Iterator[str]:
    """The median of the wall time, and of the CPU as multiples of the first subject's."""
    empty = median(start.cpu for start in next(iter(found.values())))
    yield from (title, "-" * len(title))
    for name, times in found.items():
        cpu = median(start.cpu for start in times)
        wall = f"{median(start.wall for start in times) * 1e3:,.0f} ms"
        yield f"{name:<{_NAME}}{wall:>{_CELL}}{f'CPU {cpu * 1e3:,.0f} ms':>{_CELL}}{cpu / empty:>8.1f} ×"


def _rounds(count: int, ways: dict[str, Callable[[], _Took | None]]) -> dict[str, list[_Took]]:
    """Run all in turns, so that noise affects all of them equally, after a round that compiles the
    modules."""
    starts: dict[str, list[_Took]] = {}
    for number in range(count + 1):
        for name, way in ways.items():
            start = way()
            if number and start is not None:
                starts.setdefault(name, []).append(start)
    return starts


def _starts(subjects: list[Subject], model: int, rounds: int, folder: Path) -> dict[str, list[_Took]]:
    ways: dict[str, Callable[[], _Took | None]] = {"python -c pass": lambda: _shown(_EMPTY)}
    for number, subject in enumerate(subjects):
        place = folder / f"start-{number}"
        place.mkdir()
        ways[subject.name] = lambda subject=subject, place=place: _answered(subject, model, place)  # type: ignore[misc]
    return _rounds(rounds, ways)


def _helps(rounds: int) -> dict[str, list[_Took]]:
    ways: dict[str, Callable[[], _Took | None]] = {"python -c pass": lambda: _shown(_EMPTY)}
    for name in ["", *commands.list_commands(click.Context(commands))]:
        command = [sys.executable, "-m", "openresponses_server", *name.split(), "--help"]
        ways[f"openresponses-bridge {name}".strip()] = lambda command=command: _shown(command)  # type: ignore[misc]
    return _rounds(rounds, ways)


def _shown(command: list[str]) -> _Took:
    """Measure a process until its end."""
    begun = time.monotonic()
    process = subprocess.Popen(command, env=_environment(), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return _Took(time.monotonic() - begun, used.ru_utime + used.ru_stime)


def _answered(subject: Subject, model: int, folder: Path) -> _Took | None:
    """Measure a server from its start until it has answered a plain request; it has started before in this
    place. None if it is not installed."""
    port = free_port()
    load = load_of(subject, port, _ONE)
    command = subject.command(port, model, folder)
    if command is None:
        return None
    environment = {**_environment(), "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    begun = time.monotonic()
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(command, cwd=Path.cwd(), env=environment, stdout=output, stderr=output)
    try:
        while not _answers(load):
            if process.poll() is not None or time.monotonic() - begun > _TIMEOUT:
                raise RuntimeError(f"{subject.name} did not start: {(folder / 'output').read_text()[-500:]}")
            time.sleep(_LOOK)
        wall = time.monotonic() - begun
        tasks = Path(f"/proc/{process.pid}/task").iterdir()
        return _Took(wall, sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9)
    finally:
        process.terminate()
        process.wait(_TIMEOUT)


def _answers(asked: Load) -> bool:
    """Whether one request gets the right answer."""
    head = (
        f"POST {asked.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"authorization: {asked.authorization}\r\ncontent-length: {len(asked.body)}\r\n\r\n"
    )
    try:
        with socket.create_connection(("127.0.0.1", asked.port), timeout=_TIMEOUT) as connection:
            connection.sendall((head + asked.body).encode())
            return connection.recv(16).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _memory(subjects: list[Subject], model: int, streams: int, folder: Path) -> Iterator[str]:
    """Measure the memory of each subject alone, with only the model process beside it."""
    warm = Work("", "burst-20", 50, 8, 50, 0.0)
    loads = [
        _ONE._replace(count=streams, together=8),
        Work("", "burst-2000", streams, 64, streams, 0.0),
    ]
    title = f"MB: warm, after {streams:,} streams and as many plain requests, {_SETTLED:.0f} s later"
    yield from (title, "-" * len(title))
    for number, subject in enumerate(subjects):
        with running(subject, model, folder / f"memory-{number}") as process:
            if process is None:
                continue
            measured(subject, process, warm)
            sizes = [process.resident()]
            for load in loads:
                measured(subject, process, load)
            sizes.append(process.resident())
            time.sleep(_SETTLED)
            sizes.append(process.resident())
        yield f"{subject.name:<{_NAME}}" + "".join(f"{size:>{_CELL},.0f}" for size in sizes)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.served.starting")
    parser.add_argument("--quick", action="store_true", help="run fewer rounds, for a less certain result")
    print(run(QUICK if parser.parse_args().quick else FULL))


if __name__ == "__main__":
    main()
