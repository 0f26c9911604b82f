"""`make engines`: installs the engines that are not in the cache, plays the cases and the random answers
through them, and with `--table` writes what the documents show."""

from __future__ import annotations

import argparse
import sys
import time

import pytest

from tests.engines import installing, results


def main() -> int:
    parser = argparse.ArgumentParser(prog="make engines")
    parser.add_argument("--table", action="store_true", help="write docs/engines.json, for `make docs`")
    given, rest = parser.parse_known_args()
    for name, install in installing.ALL.items():
        began = time.monotonic()
        try:
            print(f"{name}: {install()}, after {time.monotonic() - began:.0f} s", flush=True)
        except installing.NotInstalled as error:
            print(f"{name} is left out: {error}", flush=True)
    code = pytest.main(["-m", "engines", "-rs", "--durations", "5", "-q", *rest, "tests/engines"])
    if given.table:
        results.show()
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
