"""The fixture `wire`: both wires."""

import pytest

from tests.support.machines import WIRES


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
