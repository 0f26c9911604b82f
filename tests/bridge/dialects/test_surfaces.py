"""The APIs of clients, as their dialects' surfaces describe them."""

import pytest

from openresponses_bridge.dialects.table import surfaces


@pytest.mark.parametrize("name", surfaces())
def test_a_path_has_one_parameter_at_most(name: str) -> None:
    """So that a path of any length is matched in time linear in it."""
    assert [at.path for at in surfaces()[name].paths if at.path.count("{") > 1] == []
