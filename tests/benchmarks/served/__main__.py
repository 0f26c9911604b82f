"""Compares the server with others in one run.

    python -m tests.benchmarks.served [--quick] [--rounds 3] [--only ours,nginx] [--work plain]
                                      [--to FILE] [--draw]

nginx is Debian's; codex-relay, agentic-api and LiteLLM are on PyPI, and are measured if they are on the PATH.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.benchmarks.served import report
from tests.benchmarks.served.compare import run
from tests.benchmarks.served.subjects import SUBJECTS
from tests.benchmarks.served.works import works


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.served")
    parser.add_argument("--quick", action="store_true", help="send fewer requests, for a less certain result")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="the names of the subjects, separated by commas")
    parser.add_argument("--work", default="", help="a part of the names of the works to run")
    parser.add_argument("--to", type=Path, help="a file for all figures, as JSON")
    parser.add_argument("--draw", action="store_true", help="write docs/benchmarks, with its plots and table")
    return parser


def main() -> None:
    options = arguments().parse_args()
    asked = [work for work in works(options.quick) if options.work in work.name]
    names = options.only.split(",") if options.only else [subject.name for subject in SUBJECTS]
    to = report.RESULTS if options.draw else options.to
    print(run(asked, [subject for subject in SUBJECTS if subject.name in names], options.rounds, to))
    if options.draw:
        report.draw()


if __name__ == "__main__":
    main()
