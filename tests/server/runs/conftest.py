"""A server over the demo model whose checkpoints are frequent."""

from collections.abc import Iterator

import pytest

from server.settings import Limits, Settings
from tests.support.serving import serving


@pytest.fixture(scope="package")
def stored() -> Iterator[str]:
    """Its base URL."""
    with serving(Settings(checkpoint_interval=0.1, lease=2.0)) as base:
        yield base


@pytest.fixture
def narrow() -> Iterator[str]:
    """One that makes a single response at a time."""
    with serving(Settings(checkpoint_interval=0.1, limits=Limits(concurrent=1))) as base:
        yield base
