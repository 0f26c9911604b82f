"""How many examples the property tests make: their own number, times `PROPERTY_FACTOR` of the environment."""

import os
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings

FACTOR: Final = int(os.environ.get("PROPERTY_FACTOR", "1"))
MANY: Final = int(os.environ.get("PROPERTY_FACTOR", "10"))
"""The factor of tests marked slow, which are there to make many."""


def with_many_examples(test: Any, *strategies: Any, **named: Any) -> Callable[[], None]:
    """Return a slow test that gives a property test thousands of examples of all that it takes. Nothing is
    shrunk: an example that fails says enough."""
    phases = tuple(phase for phase in Phase if phase not in (Phase.shrink, Phase.explain))
    given_all: Any = given(*strategies, **named)
    many = given_all(test.hypothesis.inner_test)

    @pytest.mark.slow
    @pytest.mark.timeout(4 * 3600)
    def test_many() -> None:
        settings(max_examples=1_300 * MANY, phases=phases)(many)()

    return test_many
