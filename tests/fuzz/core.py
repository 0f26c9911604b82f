"""The definition of a fuzzed target, the list of all targets, and the limit on the time of each input.

A target is one function that takes bytes, returns nothing, and raises when its invariant is broken. The tests
run all targets on a few inputs each (`test_targets.py`), and the coverage-guided fuzzer runs them for as long
as you want (`make fuzz`).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from time import process_time
from typing import Final, NamedTuple

from tests.fuzz import targets

MAX_BYTES: Final = 16_384
# The limit on the processor time of an input. Neither tracing for coverage nor a busy machine reaches it, and
# exponential or cubic work on inputs of this size takes far longer.
_SECONDS: Final = 3.0
_SECONDS_PER_BYTE: Final = 0.000_3


class Target(NamedTuple):
    """A fuzzed target: `run` raises when an input breaks the invariant. `seeds` are the first inputs; `words`
    are inserted into them, as the words of JSON are."""

    name: str
    run: Callable[[bytes], None]
    seeds: Sequence[bytes]
    words: Sequence[bytes] = ()


@cache
def all_targets() -> dict[str, Target]:
    """Every target by its name, from the lists `TARGETS` in the modules of `targets`."""
    by_name: dict[str, Target] = {}
    for module in sorted(each.name for each in pkgutil.iter_modules(targets.__path__)):
        for target in import_module(f"{targets.__name__}.{module}").TARGETS:
            assert target.name not in by_name, target.name
            by_name[target.name] = target
    return by_name


def check(target: Target, data: bytes) -> None:
    """Run the target on an input. Raises AssertionError, or any exception that the tested code lets
    through."""
    before = process_time()
    target.run(data)
    spent = process_time() - before
    allowed = _SECONDS + _SECONDS_PER_BYTE * len(data)
    assert spent < allowed, f"{target.name}: {len(data)} bytes took {spent:.1f} s"
