"""Runs `make fuzz`: each target under the coverage-guided fuzzer, one after another.

Inputs that reached new code are kept in `.fuzz/TARGET/corpus` for the next run, and an input that broke the
invariant in `.fuzz/TARGET/crash-…`. Add the latter to `test_found.py` as a row.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from hashlib import sha1
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.core import MAX_BYTES, Target, all_targets, check
from tests.fuzz.mutations import JSON_WORDS
from tests.support.shared import REPOSITORY

FOLDER = REPOSITORY / ".fuzz"


def main() -> int:
    options = _asked()
    targets = all_targets()
    chosen = [targets[name] for name in options.target or targets]
    if options.list:
        print("\n".join(targets))
        return 0
    if options.replay:
        for target in chosen:
            check(target, options.replay.read_bytes())
            print(f"{target.name}: the invariant holds")
        return 0
    if find_spec("atheris") is None:
        print("atheris is not installed: run `make fuzz`, or install the extra `fuzz`", file=sys.stderr)
        return 2
    broken = [target.name for target in chosen if not _fuzzed(target, options.seconds, options.runs)]
    print(f"\n{len(chosen)} targets, broken: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=int, default=60, help="seconds for each target (60)")
    parser.add_argument("--runs", type=int, default=-1, help="at most this many inputs for each target")
    parser.add_argument(
        "--target",
        action="append",
        choices=[*all_targets()],
        help="a target to run, instead of all; may be repeated",
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run this one input and nothing else")
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    return parser.parse_args()


def _fuzzed(target: Target, seconds: int, runs: int) -> bool:
    """Whether the target passed."""
    folder = FOLDER / target.name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds:
        (corpus / sha1(seed).hexdigest()).write_bytes(seed)
    words = folder / "words"
    words.write_text(
        "\n".join(f'"{_escaped(word)}"' for word in (*JSON_WORDS, *target.words) if len(word) < 64)
    )
    print(f"== {target.name}, {seconds} s", flush=True)
    options = {
        "max_total_time": seconds,
        "runs": runs,
        "max_len": MAX_BYTES,
        "dict": words,
        "artifact_prefix": f"{folder}/",
        "timeout": 30,
        "rss_limit_mb": 2_000,
        "verbosity": 0,
        "print_final_stats": 1,
    }
    run = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.guided", target.name]
        + [f"-{name}={value}" for name, value in options.items()]
        + [str(corpus)],
        cwd=REPOSITORY,
        check=False,
    )
    return run.returncode == 0


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    sys.exit(main())
