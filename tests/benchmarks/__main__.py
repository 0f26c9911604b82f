"""`make bench`: ratios in one run."""

from __future__ import annotations

import argparse

from tests.benchmarks import dialects, growth, in_process, sessions
from tests.benchmarks.harness import table


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--quick", action="store_true", help="fewer turns, less certain")
    quick = parser.parse_args().quick
    turns, rounds = (2_000, 3) if quick else (20_000, 9)
    print(table("in process", in_process.run(turns, rounds)), end="\n\n")
    print(table("through each dialect, one frame at a time", dialects.run(turns, rounds)), end="\n\n")
    lengths = (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    print(growth.table(growth.measure(lengths)), end="\n\n")
    print(sessions.run(sessions.QUICK if quick else sessions.FULL))


if __name__ == "__main__":
    main()
