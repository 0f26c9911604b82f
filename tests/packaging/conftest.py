"""The wheel, for tests that run from an environment of its own."""

import os

import pytest

from tests.support.wheel import Wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """`wheel.environment(extras="server")` is the interpreter of an environment that has the wheel."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wheel"
    folder.mkdir(exist_ok=True)
    return Wheel(folder)
