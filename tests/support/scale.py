"""How many examples the property tests generate: their own number, multiplied by the variable
`PROPERTY_FACTOR`."""

import os
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings

FACTOR: Final = int(os.environ.get("PROPERTY_FACTOR", "1"))
MANY: Final = int(os.environ.get("PROPERTY_FACTOR", "10"))
"""The factor for tests marked slow, whose purpose is a large number of examples."""


def with_many_examples(test: Any, *strategies: Any, **named: Any) -> Callable[[], None]:
    """Return a slow test that gives a property test thousands of examples. A failing example is not shrunk,
    because it says enough as it is."""
    phases = tuple(phase for phase in Phase if phase not in (Phase.shrink, Phase.explain))
    given_all: Any = given(*strategies, **named)
    many = given_all(test.hypothesis.inner_test)

    @pytest.mark.slow
    @pytest.mark.timeout(4 * 3600)
    def test_many() -> None:
        settings(max_examples=1_300 * MANY, phases=phases)(many)()

    return test_many
