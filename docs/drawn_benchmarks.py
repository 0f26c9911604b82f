"""What the server costs beside others, from docs/benchmarks/results.json: the plots in docs/benchmarks/ and
the table in docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Final, Literal

import msgspec
from drawn_bars import Bar, Group, bars

FOLDER: Final = Path(__file__).parent
RESULTS: Final = FOLDER / "benchmarks" / "results.json"
_PAGE: Final = FOLDER / "benchmarks.md"
_BEGIN, _END = "<!-- drawn from benchmarks/results.json -->\n", "<!-- as far as here -->\n"
_OURS: Final = "ours"
_SHOWN: Final = {_OURS: "openresponses-bridge"}


class Measured(msgspec.Struct):
    """One work: the figure of every round, by subject. `figure` is CPU, the way of a token or the wait for a
    stream's first event; `unit` is that of the figures."""

    name: str
    unit: str
    figure: Literal["cpu", "latency", "first"]
    rounds: dict[str, list[float]]

    def median(self, subject: str) -> float | None:
        """Over the rounds; None where it was not measured or nothing was spent."""
        return median(self.rounds[subject]) or None if self.rounds.get(subject) else None


class Results(msgspec.Struct):
    """A run of tests/benchmarks/served; `memory` in megabytes after all of it."""

    date: str
    machine: str
    subjects: list[str]
    missing: list[str]
    works: list[Measured]
    memory: dict[str, float]


def read(path: Path = RESULTS) -> Results:
    """Raises OSError and msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=Results)


def benchmarks_page() -> str:
    """The page as it stands, with its table drawn anew."""
    before, begin, rest = _PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert end, f"{_PAGE.name} has lost the marks of its table"
    return f"{before}{begin}{table(read())}{end}{after}"


def table(results: Results) -> str:
    """Medians, each with how many times the first subject's it is."""
    first, *_ = results.subjects
    head = ["work", *(_SHOWN.get(name, name) for name in results.subjects)]
    lines = [f"\n{_said(results)}\n", _row(head), _row(["---", *["---:"] * len(results.subjects)])]
    for work in results.works:
        base = work.median(first)
        cells = [_cell(work.median(name), base, work.unit) for name in results.subjects]
        lines.append(_row([work.name, *cells]))
    sizes = [results.memory.get(name) for name in results.subjects]
    lines.append(_row(["memory after all of it", *(_cell(size, sizes[0], "MB") for size in sizes)]))
    return "\n".join(lines) + "\n\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: float | None, base: float | None, unit: str) -> str:
    if value is None:
        return "–"
    return f"{rounded(value)} {unit}" + (f", {rounded(value / base)} ×" if base else "")


def rounded(value: float) -> str:
    """Three figures that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _said(results: Results) -> str:
    rounds = max((len(each) for work in results.works for each in work.rounds.values()), default=0)
    many = f"the median of {rounds} rounds" if rounds > 1 else "one round on a machine in use, a sample only"
    missing = f" Not installed there: {', '.join(results.missing)}." if results.missing else ""
    return f"{results.date}; {results.machine}; {many}.{missing}"


def plots(results: Results | None = None) -> dict[str, str]:
    """The pictures by their names in docs/."""
    results = results or read()
    caption = [
        f"Each server is one process on one core of {results.machine}",
        _said(results).replace(f" {results.machine};", ""),
    ]
    first, *_ = results.subjects
    spent = [work for work in results.works if work.figure == "cpu"]
    waited = [work for work in results.works if work.figure != "cpu"]
    sizes = [_bar(name, results.memory.get(name), [], 1.0, "MB") for name in results.subjects]
    return {
        "benchmarks/cpu.svg": bars(
            "CPU of the server",
            f"multiples of {_SHOWN.get(first, first)}; figures per token or request",
            caption,
            [_group(work, results.subjects, work.median(first)) for work in spent if work.median(first)],
            one=True,
        ),
        "benchmarks/latency.svg": bars(
            "Latency: what 99 of 100 take at most",
            "milliseconds",
            caption,
            [_group(work, results.subjects, None) for work in waited],
        ),
        "benchmarks/memory.svg": bars(
            "Memory after all works", "megabytes resident", caption, [Group("resident", sizes)]
        ),
    }


def _group(work: Measured, subjects: list[str], base: float | None) -> Group:
    drawn = [
        _bar(name, work.median(name), work.rounds.get(name, []), base or 1.0, work.unit, base is not None)
        for name in subjects
    ]
    return Group(work.name, drawn)


def _bar(
    name: str, value: float | None, rounds: list[float], base: float, unit: str, multiple: bool = False
) -> Bar:
    shown, ours = _SHOWN.get(name, name), name == _OURS
    if value is None:
        return Bar(shown, None, ours=ours)
    words = f"{rounded(value)} {unit}"
    words = f"{rounded(value / base)} × · {words}" if multiple else words
    low, high = min(rounds, default=value), max(rounds, default=value)
    return Bar(shown, value / base, low / base, high / base, words, ours)
