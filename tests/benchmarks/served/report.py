"""The figures of a run as a table and as a file, and beside what they are allowed to be."""

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
"""Ratios of the server to the first subject, by work, above which a run says so."""
RESULTS: Final = REPOSITORY / "docs" / "benchmarks" / "results.json"
"""What the plots and the table of docs/benchmarks.md are drawn from."""
_CELL: Final = 27  # characters
_NAME: Final = 40

Rounds = dict[str, dict[str, list[float]]]
"""By the name of the work and that of the subject: the figure of each round."""


def table(works: list[Work], subjects: list[str], rounds: Rounds) -> str:
    """A line per work: the median of each subject, and how many times the first one's that is."""
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
    """A line for each work that costs more than it may."""
    return [
        f"{work}: {ratio} × where {allowed[work]} × are allowed"
        for work, ratio in found.items()
        if work in allowed and ratio > allowed[work]
    ]


def budget() -> dict[str, float]:
    """What is allowed."""
    return msgspec.json.decode(BUDGET.read_bytes(), type=dict[str, float])


def write(
    path: Path,
    works: list[Work],
    names: list[str],
    missing: list[str],
    rounds: Rounds,
    memory: dict[str, float],
) -> None:
    """All figures, as JSON that docs/drawn_benchmarks.py reads: the figure of each round by work and subject,
    and `memory` in megabytes after the last round. `missing` were asked for and are not installed."""
    found = {
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
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What it was measured on: processor, cores, system, Python; no name and no path of it."""
    found = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text() if cpuinfo.exists() else "", re.MULTILINE)
    processor = found[1] if found else platform.machine()
    cores = f"{os.cpu_count()} cores"
    return f"{processor}, {cores}, {platform.system()}, Python {platform.python_version()}"


def draw() -> None:
    """The drawn documents anew. Raises CalledProcessError."""
    subprocess.run([sys.executable, REPOSITORY / "docs" / "generate.py"], check=True)
