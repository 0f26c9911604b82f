"""Runs `make bench`: all benchmarks in one run, whose results are ratios."""

from __future__ import annotations

import argparse

from openresponses_cli.commands.progress import progress
from tests.benchmarks import dialects, growth, in_process, keeping, readers, sessions
from tests.benchmarks.harness import table
from tests.benchmarks.served import compare, report, scale, starting
from tests.benchmarks.served.subjects import SUBJECTS
from tests.benchmarks.served.works import works


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--quick", action="store_true", help="run fewer turns, for a less certain result")
    parser.add_argument("--draw", action="store_true", help="write docs/benchmarks, with its plots and table")
    return parser


def main() -> None:
    options = arguments().parse_args()
    quick, to = options.quick, report.RESULTS if options.draw else None
    turns, rounds = (2_000, 3) if quick else (20_000, 9)
    lengths = (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    parts = [
        lambda: table("in process", in_process.run(turns, rounds)),
        lambda: table("through each dialect, one frame at a time", dialects.run(turns, rounds)),
        lambda: growth.table(growth.measure(lengths)),
        lambda: sessions.run(sessions.QUICK if quick else sessions.FULL),
        lambda: keeping.run(keeping.QUICK if quick else keeping.FULL),
        lambda: readers.run([20] if quick else [100, 500]),
        lambda: scale.run(scale.QUICK if quick else scale.FULL),
        lambda: starting.run(starting.QUICK if quick else starting.FULL),
        lambda: compare.run(works(quick), list(SUBJECTS), 1 if quick else 3, to),
    ]
    with progress("measuring", len(parts)) as advance:
        for part in parts:
            print(part(), end="\n\n")
            advance(1)
    if options.draw:
        report.draw()


if __name__ == "__main__":
    main()
