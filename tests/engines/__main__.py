"""`make engines`: installs the engines that are not in the cache, plays the cases and the random answers
through them, and with `--table` writes what the documents show."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from tests.engines import installing, results


def main() -> int:
    parser = argparse.ArgumentParser(prog="make engines")
    parser.add_argument("--table", action="store_true", help="write docs/engines.json, for `make docs`")
    options, rest = parser.parse_known_args()
    for name, install in installing.ALL.items():
        began = time.monotonic()
        try:
            print(f"{name}: {install()}, after {time.monotonic() - began:.0f} s", flush=True)
        except installing.NotInstalled as error:
            print(f"{name} is left out: {error}", flush=True)
    # in processes of their own, since pytest rewrites only what was not imported before; a file in one alone,
    # so that each engine is started once
    tests = [sys.executable, "-m", "pytest", "-m", "engines", "--workers", "2", "--whole-modules"]
    tests += ["-rs", "--durations", "5", "-q"]
    code = subprocess.run([*tests, *rest, "tests/engines"], check=False).returncode
    if options.table:
        results.show()
    return code


if __name__ == "__main__":
    sys.exit(main())
