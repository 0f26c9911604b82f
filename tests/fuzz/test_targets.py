"""Each target on its seeds and on some hundred mutations of them; `make fuzz` goes on from here."""

from __future__ import annotations

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.fuzz.core import Target, all_targets, check
from tests.fuzz.mutations import mutated

TARGETS = all_targets()
# without shrinking: it can take minutes, and an input that fails says enough
_PHASES = tuple(phase for phase in Phase if phase not in (Phase.shrink, Phase.explain))


@st.composite
def inputs(draw: st.DrawFn, target: Target) -> bytes:
    """A seed, changed a few times."""
    data = draw(st.sampled_from(target.seeds))
    for _ in range(draw(st.integers(0, 5))):
        data = mutated(data, target, lambda below: draw(st.integers(0, below - 1)))
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_keep_the_invariant(name: str) -> None:
    target = TARGETS[name]
    assert target.seeds
    for seed in (*target.seeds, b"", b"\xff"):
        check(target, seed)


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_keep_the_invariant(name: str) -> None:
    target = TARGETS[name]

    @example(b"")
    @settings(max_examples=settings().max_examples // 2, phases=_PHASES)
    @given(inputs(target))
    def holds(data: bytes) -> None:
        check(target, data)

    holds()
