"""The results of a load, as text and as the figures from which docs/drawn_load.py draws."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from statistics import median
from typing import Any, Final, NamedTuple

from tests.benchmarks.served.report import machine
from tests.load.results import Result
from tests.load.returning import Standing
from tests.load.watch import Sample

ANYTIME: Final = "no fault"
_SHOWN: Final = 20  # characters of a description of something wrong
_SAMPLES: Final = 300  # samples that are written; each is the highest of its neighbours
_ENDS: Final = {"cancel": {"cancelled", "incomplete", "completed"}, "leave": {"left", "completed"}}


class Asked(NamedTuple):
    """The options of a run. `every` is the seconds between the beginnings of two faults, None without faults;
    `only` names the faults, and is empty for all of them. `default_store` means SQLite and event logs in
    files, without PostgreSQL and Redis."""

    seconds: float
    open: int
    rate: float
    workers: int
    every: float | None
    seed: int
    only: tuple[str, ...] = ()
    default_store: bool = False


class Report:
    """The results of a run. `ends` counts outcomes by fault and kind; `marks` are the beginnings of faults in
    seconds; `start` and `end` are the state before and after; `cpu` is seconds by process; `wrong` lists
    everything that must never happen."""

    def __init__(self, given: Asked) -> None:
        self.given = given
        self.ends: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.firsts: defaultdict[str, list[float]] = defaultdict(list)
        self.idle: dict[str, float] = {}
        self.samples: list[Sample] = []
        self.marks: list[tuple[float, str]] = []
        self.start: Standing = {}
        self.end: Standing = {}
        self.cpu: dict[str, float] = {}
        self.seconds = 0.0
        self.wrong: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.left_out: dict[str, str] = {}
        self.skipped = 0
        self.looked_at = 0
        self.log: Counter[str] = Counter()

    def add(self, fault: str, kind: str, found: Result, *, corrupted: bool) -> None:
        """Add the result of a request."""
        outcome, wrong = found.outcome, found.wrong
        if wrong and corrupted:
            outcome, wrong = "corrupted", ""
        self.ends[fault, kind][outcome] += 1
        if fault == ANYTIME and outcome not in _ENDS.get(kind, {"completed"}):
            wrong = wrong or f"{outcome} without a fault"
        if wrong:
            self.wrong[f"{kind} during {fault}: {wrong}"] += 1
        if found.first and fault == ANYTIME:
            self.firsts[kind].append(found.first)

    def table(self) -> str:
        """All results as text."""
        lines = [f"{'fault':<22}{'kind':<12}outcomes"]
        for (fault, kind), ends in sorted(self.ends.items()):
            lines.append(f"{fault:<22}{kind:<12}{', '.join(f'{n:,} {end}' for end, n in ends.most_common())}")
        lines += ["", f"{'first event, ms':<22}{'idle':>8}{'median':>8}{'99 of 100':>11}"]
        for kind, times in self._firsts().items():
            lines.append(
                f"{kind:<22}"
                f"{times['idle'] * 1e3:>8,.0f}{times['median'] * 1e3:>8,.0f}{times['p99'] * 1e3:>11,.0f}"
            )
        lines += ["", f"{'':<28}{'start':>8}{'most':>8}{'end':>8}"]
        most = Sample(*map(max, zip(*self.samples, strict=True)))._asdict()
        for name, value in self.start.items():
            highest = f"{most[name]:,.0f}" if name in most else ""
            lines.append(f"{name:<28}{value:>8,.0f}{highest:>8}{self.end.get(name, 0):>8,.0f}")
        spent = sorted(self.cpu.items(), key=lambda each: -each[1])
        lines += ["", *(f"cores of {name}: {seconds / self.seconds:.2f}" for name, seconds in spent)]
        lines.append(f"requests left out because too many were waiting: {self.skipped}")
        lines.append(f"stored responses looked at again: {self.looked_at:,}")
        lines += [f"fault left out: {name}: {why}" for name, why in self.left_out.items()]
        lines += [f"fault: {name}: {count}" for name, count in self.happened.most_common()]
        lines += [f"log: {name}: {count}" for name, count in self.log.most_common(_SHOWN)]
        lines += [f"WRONG: {each} ({count})" for each, count in self.wrong.most_common(_SHOWN)]
        return "\n".join(lines)

    def _firsts(self) -> dict[str, dict[str, float]]:
        return {
            kind: {
                "idle": self.idle[kind],
                "median": median(times),
                "p99": sorted(times)[int(len(times) * 0.99)],
            }
            for kind, times in sorted(self.firsts.items())
        }

    def figures(self) -> dict[str, Any]:
        """All results as JSON."""
        return {
            "date": f"{datetime.date.today()}",
            "machine": machine(),
            "asked": self.given._asdict(),
            "ends": [[*key, dict(ends)] for key, ends in sorted(self.ends.items())],
            "first": {
                kind: {name: round(value, 5) for name, value in times.items()}
                for kind, times in self._firsts().items()
            },
            "samples": [[round(value, 1) for value in each] for each in _thinned(self.samples)],
            "marks": [[round(at, 1), name] for at, name in self.marks],
            "start": self.start,
            "end": self.end,
            "cores": {name: round(spent / self.seconds, 3) for name, spent in self.cpu.items()},
            "skipped": self.skipped,
            "looked_at": self.looked_at,
            "left_out": self.left_out,
            "happened": dict(self.happened),
            "wrong": dict(self.wrong),
        }


def _thinned(samples: list[Sample]) -> list[Sample]:
    """A few hundred of the samples, each the highest of its neighbours."""
    step = -(-len(samples) // _SAMPLES)
    groups = [samples[at : at + step] for at in range(0, len(samples), step)]
    return [Sample(*map(max, zip(*group, strict=True))) for group in groups]
