"""The figures of a run as a table and as a file, and beside what they are allowed to be."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from tests.benchmarks.served.works import Work

BUDGET: Final = Path(__file__).with_name("budget.json")
"""Ratios of the server to the first subject, by work, above which a run says so."""
_CELL: Final = 22  # characters
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


def write(path: Path, rounds: Rounds, memory: dict[str, float]) -> None:
    """All figures, as JSON; `memory` in megabytes after the last round."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode({"rounds": rounds, "memory": memory})))
