"""What came of leaning on a server for long, from docs/capacity/: the plots there, and the tables in the
section of docs/capacity.md."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec
from drawn_bars import Bar, Group, bars
from drawn_benchmarks import rounded
from drawn_times import Mark, times

FOLDER: Final = Path(__file__).parent
RUNS: Final = {"load": FOLDER / "capacity" / "load.json", "soak": FOLDER / "capacity" / "soak.json"}
"""Without faults, and with them: files that `make load ARGS="--to FILE"` wrote."""
_BEGIN, _END = "<!-- drawn from capacity/soak.json and load.json -->\n", "<!-- as far as here -->\n"
_ANYTIME: Final = "no fault"
_EXPECTED: Final = ("completed", "incomplete", "left", "corrupted", "failed")


class Run(msgspec.Struct):
    """What a run wrote: see tests/load/report.py."""

    date: str
    machine: str
    asked: dict[str, Any]
    ends: list[tuple[str, str, dict[str, int]]]
    first: dict[str, dict[str, float]]
    samples: list[tuple[float, float, float, float, float]]
    marks: list[tuple[float, str]]
    start: dict[str, float]
    end: dict[str, float]
    cores: dict[str, float]
    skipped: int
    looked_at: int
    left_out: dict[str, str]
    happened: dict[str, int]
    wrong: dict[str, int]


def read(path: Path) -> Run:
    """Raises OSError and msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=Run)


def with_runs(page: str) -> str:
    """The text of docs/capacity.md with the tables of the runs drawn anew."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert end, "capacity.md has lost the marks of the tables of runs"
    return f"{before}{begin}{tables(read(RUNS['load']), read(RUNS['soak']))}{end}{after}"


def tables(load: Run, soak: Run) -> str:
    """What each kind of request ended as during each fault, what returned, and what took the CPU."""
    lines = [f"\nWith faults: {_said(soak)}\n", *_outcomes(soak)]
    if soak.left_out:
        lines += ["\nLeft out: " + "; ".join(f"{name} ({why})" for name, why in soak.left_out.items()) + "."]
    lines += ["", f"Without: {_said(load)}\n", *_cores(load, soak), "", *_returned(load, soak)]
    return "\n".join(lines) + "\n\n"


def _said(run: Run) -> str:
    options = run.asked
    total = sum(sum(ends.values()) for _, _, ends in run.ends)
    return (
        f"{run.date}; {run.machine}; {options['seconds'] / 60:g} minutes, {options['open']:,} open streams "
        f"and {options['rate']:g} further requests a second over {options['workers']} workers: "
        f"{total:,} requests, "
        f"of which {run.looked_at:,} stored ones were read again.{_wrong(run) or ' Nothing was wrong.'}"
    )


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _outcomes(run: Run) -> list[str]:
    """Two tables, each of half of the kinds, so that they fit into a window."""
    kinds = sorted({kind for _, kind, _ in run.ends})
    half = (len(kinds) + 1) // 2
    return [*_outcomes_of(run, kinds[:half]), "", *_outcomes_of(run, kinds[half:])]


def _outcomes_of(run: Run, kinds: list[str]) -> list[str]:
    outcomes = {(fault, kind): ends for fault, kind, ends in run.ends}
    faults = [_ANYTIME, *dict.fromkeys(name for _, name in run.marks)]
    lines = [_row(["fault (times)", *kinds]), _row(["---", *["---"] * len(kinds)])]
    for fault in faults:
        times_of = "" if fault == _ANYTIME else f" ({run.happened[fault]})"
        cells = (_ends(outcomes.get((fault, kind), {})) for kind in kinds)
        lines.append(_row([f"{fault}{times_of}", *cells]))
    return lines


def _ends(ends: dict[str, int]) -> str:
    ordered = sorted(ends.items(), key=lambda each: (each[0] not in _EXPECTED, -each[1]))
    return ", ".join(f"{count:,} {outcome}" for outcome, count in ordered) or "–"


def _cores(load: Run, soak: Run) -> list[str]:
    names = sorted(load.cores, key=lambda name: -load.cores[name])
    lines = [_row(["cores taken by", "without faults", "with faults"]), _row(["---", "---:", "---:"])]
    return [
        *lines,
        *(_row([name, *(_figure(run.cores.get(name)) for run in (load, soak))]) for name in names),
    ]


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _wrong(run: Run) -> str:
    """What was wrong, by what it happened to."""
    counts = Counter[str]()
    for what, count in run.wrong.items():
        counts[what.partition(":")[0]] += count
    return "".join(f" Wrong: {what} ({count})." for what, count in counts.items())


def _returned(load: Run, soak: Run) -> list[str]:
    head = [
        "what there is, in all processes",
        *(f"{of}: {when}" for of in ("without", "with faults") for when in ("start", "end")),
    ]
    lines = [_row(head), _row(["---", *["---:"] * 4])]
    for name in load.start:
        shown = "memory, MB" if name == "memory" else name.replace("_", " ")
        figures = (load.start, load.end, soak.start, soak.end)
        lines.append(_row([shown, *(f"{each[name]:,.0f}" for each in figures)]))
    return lines


def run_plots(load: Run | None = None, soak: Run | None = None) -> dict[str, str]:
    """The pictures by their names in docs/."""
    load, soak = load or read(RUNS["load"]), soak or read(RUNS["soak"])
    plots = {
        "capacity/latency.svg": bars(
            "Until the first event",
            "milliseconds",
            [
                _said_shortly(load),
                "idle: one request at a time; under load: the median, and what 99 of 100 take at most",
                "whole and sealed have all of their answer then",
            ],
            [_latencies(kind, first) for kind, first in load.first.items()],
        )
    }
    for name, run in (("load", load), ("soak", soak)):
        marks = [Mark(*each) for each in run.marks]
        for figure, column, title, unit in (
            ("memory", 1, "Memory of the server's processes", "megabytes resident"),
            ("descriptors", 2, "Descriptors of the server's processes", "open descriptors"),
        ):
            points = [(each[0], each[column]) for each in run.samples]
            plots[f"capacity/{name}-{figure}.svg"] = times(title, unit, [_said_shortly(run)], points, marks)
    return plots


def _said_shortly(run: Run) -> str:
    options = run.asked
    load = f"{options['open']:,} open streams and {options['rate']:g} requests a second"
    return f"{run.date}, {load}; {run.machine}"


def _latencies(kind: str, first: dict[str, float]) -> Group:
    names = {"idle": "idle", "median": "under load", "p99": "99 of 100"}
    return Group(
        kind,
        [
            Bar(shown, first[name] * 1e3, words=f"{rounded(first[name] * 1e3)} ms", ours=name != "idle")
            for name, shown in names.items()
        ],
    )
