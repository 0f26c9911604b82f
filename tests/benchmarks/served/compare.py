"""Runs rounds of all works over all subjects, and makes a table of them."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.benchmarks.served import report
from tests.benchmarks.served.subjects import Process, Subject, model_side, running
from tests.benchmarks.served.works import Work, measured

_OURS: Final = "ours"


def run(asked: list[Work], subjects: list[Subject], rounds: int, to: Path | None = None) -> str:
    """Return the table, and the works that exceed their budget."""
    with tempfile.TemporaryDirectory(prefix="orb-bench-") as name, ExitStack() as stack:
        there = _started(subjects, Path(name), stack)
        figures = _rounds(asked, there, rounds)
        memory = {subject.name: process.resident() for subject, process in there.items()}
    names = [subject.name for subject in there]
    missing = [subject.name for subject in subjects if subject.name not in names]
    if to is not None:
        report.write(to, asked, names, missing, figures, memory)
    lines = [report.table(asked, names, figures)]
    lines += [f"{name}: {size:.0f} MB after all of it" for name, size in memory.items()]
    lines += [f"{', '.join(missing)}: NOT measured, not on the PATH"] if missing else []
    if _OURS in names:
        lines += report.beyond(report.ratios(figures, names[0], _OURS), report.budget())
    return "\n".join(lines)


def _started(subjects: list[Subject], folder: Path, held: ExitStack) -> dict[Subject, Process]:
    port = held.enter_context(model_side())
    there = {}
    for subject in subjects:
        process = held.enter_context(running(subject, port, folder / subject.name.replace(" ", "-")))
        if process is not None:
            there[subject] = process
    return there


def _rounds(asked: list[Work], there: dict[Subject, Process], rounds: int) -> report.Rounds:
    """Run all subjects in turns, so that noise affects all of them equally."""
    figures: report.Rounds = {work.name: {} for work in asked}
    for _ in range(rounds):
        for work in asked:
            for subject, process in there.items():
                if work.model.partition("-")[0] in subject.cannot:
                    continue
                try:
                    figure = measured(subject, process, work)
                except RuntimeError as error:
                    print(f"{subject.name}, {work.name}: {error}", file=sys.stderr)
                    continue
                figures[work.name].setdefault(subject.name, []).append(figure)
    return figures
