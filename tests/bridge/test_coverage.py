"""Coverage is measured in all tests except those that opt out."""

import sys

import pytest


@pytest.mark.untraced
def test_what_is_not_to_be_covered_is_not_traced() -> None:
    """Beside other workers as well, where two measures run one above the other."""
    assert not type(sys.gettrace()).__module__.startswith("coverage")


def test_all_else_is_traced(request: pytest.FixtureRequest) -> None:
    measured = request.config.pluginmanager.hasplugin("_cov")
    assert type(sys.gettrace()).__module__.startswith("coverage") == measured
