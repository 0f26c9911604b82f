"""Each target on its seeds and on some hundred mutations of them; `make fuzz` tries more."""

from __future__ import annotations

import json

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.fuzz.core import Target, all_targets, check
from tests.fuzz.mutations import mutated, of_wrong_kinds
from tests.fuzz.targets import events, inbounds, requests, sse
from tests.support.scale import MANY

TARGETS = all_targets()
STREAMS = [target.name for module in (sse, inbounds, events) for target in module.TARGETS]
# without shrinking, which can take minutes; a failing input says enough
_PHASES = tuple(phase for phase in Phase if phase not in (Phase.shrink, Phase.explain))


@st.composite
def inputs(draw: st.DrawFn, target: Target) -> bytes:
    """A seed with a few changes."""
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


@pytest.mark.parametrize("name", [target.name for target in requests.TARGETS])
def test_fields_of_other_kinds_keep_the_invariant(name: str) -> None:
    """Every field of every surface, with a value of every kind."""
    target = TARGETS[name]
    for seed in target.seeds:
        for body in of_wrong_kinds(json.loads(seed)):
            check(target, json.dumps(body).encode())


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_keep_the_invariant(name: str) -> None:
    holds(TARGETS[name], settings().max_examples // 2)


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("name", STREAMS)
def test_many_mutated_streams_keep_the_invariant(name: str) -> None:
    """7,000 inputs in all, multiplied by `MANY`."""
    holds(TARGETS[name], 7_000 * MANY // len(STREAMS))


def holds(target: Target, inputs_made: int) -> None:
    @example(b"")
    @settings(max_examples=inputs_made, phases=_PHASES)
    @given(inputs(target))
    def each(data: bytes) -> None:
        check(target, data)

    each()
