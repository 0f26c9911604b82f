"""Writes the figures of a run as a table and as a file, and compares them with the budget."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from tests.benchmarks.served.works import Work
from tests.support.shared import REPOSITORY

BUDGET: Final = Path(__file__).with_name("budget.json")
"""The highest allowed ratios of the server to the first subject, by work; a run reports those that exceed
them."""
RESULTS: Final = REPOSITORY / "docs" / "benchmarks" / "results.json"
"""The figures from which the plots and the table of docs/benchmarks.md are made."""
_CELL: Final = 27  # characters
_NAME: Final = 40

Rounds = dict[str, dict[str, list[float]]]
"""The figure of each round, by the name of the work and then by that of the subject."""


def table(works: list[Work], subjects: list[str], rounds: Rounds) -> str:
    """A table with a line per work: the median of each subject, and its ratio to that of the first
    subject."""
    title = "servers on one core, median of rounds and ratio to the first"
    head = " " * _NAME + "".join(f"{name:>{_CELL}}" for name in subjects) + f"{'wanted':>10}"
    lines = [title, "-" * len(title), head]
    for work in works:
        figures = {name: median(values) for name, values in rounds[work.name].items()}
        base = figures.get(subjects[0])
        cells = [_cell(figures.get(name), base, work.unit) for name in subjects]
        lines.append(f"{work.name:<{_NAME}}" + "".join(cells) + f"{work.wanted:>8.1f} ×")
    return "\n".join(lines)


def _cell(figure: float | None, base: float | None, unit: str) -> str:
    if figure is None:
        return "–".rjust(_CELL)
    ratio = f" {figure / base:>6.1f} ×" if base else ""
    return f"{figure:,.1f} {unit}{ratio}".rjust(_CELL)


def ratios(rounds: Rounds, base: str, ours: str) -> dict[str, float]:
    """The server's medians as multiples of another's, by work."""
    return {
        work: round(median(figures[ours]) / median(figures[base]), 2)
        for work, figures in rounds.items()
        if ours in figures and base in figures and median(figures[base])
    }


def beyond(found: dict[str, float], allowed: dict[str, float]) -> list[str]:
    """A line for each work that exceeds its budget."""
    return [
        f"{work}: {ratio} × where {allowed[work]} × are allowed"
        for work, ratio in found.items()
        if work in allowed and ratio > allowed[work]
    ]


def budget() -> dict[str, float]:
    """The allowed ratio of each work."""
    return msgspec.json.decode(BUDGET.read_bytes(), type=dict[str, float])


def write(
    path: Path,
    works: list[Work],
    names: list[str],
    missing: list[str],
    rounds: Rounds,
    memory: dict[str, float],
) -> None:
    """Write all figures as JSON, which docs/drawn_benchmarks.py reads: the figure of each round by work and
    subject, and `memory` in megabytes after the last round. The subjects in `missing` were asked for but are
    not installed."""
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "subjects": names,
        "missing": missing,
        "works": [
            {"name": work.name, "unit": work.unit, "figure": work.figure, "rounds": rounds[work.name]}
            for work in works
        ],
        "memory": {name: round(size, 1) for name, size in memory.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The machine of a measurement: processor, cores, system, Python; without its name and without paths."""
    match = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text() if cpuinfo.exists() else "", re.MULTILINE)
    processor = match[1] if match else platform.machine()
    cores = f"{os.cpu_count()} cores"
    return f"{processor}, {cores}, {platform.system()}, Python {platform.python_version()}"


def draw() -> None:
    """Make the generated documents again. Raises CalledProcessError."""
    subprocess.run([sys.executable, REPOSITORY / "docs" / "generate.py"], check=True)
