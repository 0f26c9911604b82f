"""Puts a server under load for a long time: many open streams beside many requests a second, with optional
faults.

    make load ARGS="--minutes 10"
    make load ARGS="--minutes 60 --open 200 --rate 20 --faults"
    make load ARGS="--minutes 10 --open 200 --rate 20 --default-store"

Two workers run over PostgreSQL and Redis, or over SQLite and event logs in files. Every answer is checked by
the validator and compared with the expected text. Exits with status 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path

import uvloop

from tests.load.report import Asked
from tests.load.running import run


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--open", type=int, default=2_000, help="streams that are open at once")
    parser.add_argument("--rate", type=float, default=200, help="further requests a second, of every kind")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--default-store", action="store_true", help="SQLite and logs in files, without PostgreSQL and Redis"
    )
    parser.add_argument("--faults", action="store_true", help="make a fault every minute, or as --every says")
    parser.add_argument("--every", type=float, default=60, help="seconds between two faults")
    parser.add_argument("--only", default="", help="the faults, separated by commas; by default, all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", type=Path, help="a file for all figures, as JSON")
    return parser.parse_args(arguments)


def main() -> int:
    """Run the load, and print the tables."""
    options = parsed()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    plan = Asked(
        seconds=options.minutes * 60,
        open=options.open,
        rate=options.rate,
        workers=options.workers,
        every=options.every if options.faults else None,
        seed=options.seed,
        only=tuple(filter(None, options.only.split(","))),
        default_store=options.default_store,
    )
    report = uvloop.run(run(plan))
    print(report.table())
    if options.to is not None:
        options.to.write_text(json.dumps(report.figures(), indent=1) + "\n")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
