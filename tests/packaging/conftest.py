"""The wheels, for tests that run from an environment of its own."""

import os

import pytest

from tests.support.forked_workers import WORKER
from tests.support.wheel import Wheels


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """`wheels.environment("openresponses-server")` is the interpreter of an environment with the server."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if WORKER in os.environ else base) / "wheels"
    folder.mkdir(exist_ok=True)
    return Wheels(folder)
