"""Runs one target under the coverage-guided fuzzer: `python -m tests.fuzz.guided TARGET [libFuzzer's
options]`.

libFuzzer never returns, so each target needs a process of its own; `python -m tests.fuzz` starts them.
"""

from __future__ import annotations

import random
import sys

import atheris

from tests.fuzz.core import all_targets, check
from tests.fuzz.mutations import mutated

with atheris.instrument_imports(
    include=["openresponses_agent", "openresponses_bridge", "openresponses_server"]
):
    TARGETS = all_targets()  # these modules import the code that they fuzz


def main(name: str, *options: str) -> None:
    target = TARGETS[name]

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        """Apply our own mutation, which keeps the form of the input, or libFuzzer's, which does not, equally
        often."""
        dice = random.Random(seed)
        if dice.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        for _ in range(dice.randint(1, 4)):
            data = mutated(data, target, dice.randrange)
        return data[:most]

    atheris.Setup(
        [sys.argv[0], *options],
        lambda data: check(target, data),
        custom_mutator=mutate,
        internal_libfuzzer=True,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
