"""Both wires for whoever asks for `wire`."""

import pytest

from tests.support.machines import WIRES


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
