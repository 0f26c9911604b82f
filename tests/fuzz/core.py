"""What a fuzzed target is, the list of them all, and the limit of time that each input has.

A target is one function from bytes to nothing that raises when its invariant is broken. The same list is
run by the tests (a few inputs of each, `test_targets.py`) and by the coverage-guided fuzzer for as long as
one wants (`make fuzz`).
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
# What an input may cost in processor time. So wide that neither tracing for coverage nor a busy machine
# reaches it, and far below what anything exponential or cubic takes for inputs of this size.
_SECONDS: Final = 3.0
_SECONDS_PER_BYTE: Final = 0.000_3


class Target(NamedTuple):
    """`run` raises when an input breaks the invariant. `seeds` are inputs to begin with, `words` what is
    put into them beside the words of JSON."""

    name: str
    run: Callable[[bytes], None]
    seeds: Sequence[bytes]
    words: Sequence[bytes] = ()


@cache
def all_targets() -> dict[str, Target]:
    """Every target by its name: those that the modules of `targets` list as `TARGETS`."""
    found: dict[str, Target] = {}
    for module in sorted(each.name for each in pkgutil.iter_modules(targets.__path__)):
        for target in import_module(f"{targets.__name__}.{module}").TARGETS:
            assert target.name not in found, target.name
            found[target.name] = target
    return found


def check(target: Target, data: bytes) -> None:
    """Run the target on an input. Raises AssertionError, or whatever left the code under test."""
    before = process_time()
    target.run(data)
    spent = process_time() - before
    allowed = _SECONDS + _SECONDS_PER_BYTE * len(data)
    assert spent < allowed, f"{target.name}: {len(data)} bytes took {spent:.1f} s"
