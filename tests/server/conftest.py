"""The servers that tests here share, and what these use."""

from collections.abc import Iterator

import pytest

from tests.support.new_tables import made_as_the_first
from tests.support.server_fixtures import *  # noqa: F403
from tests.support.server_fixtures import _as_it_was, _data_folder  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def _tables() -> Iterator[None]:
    with made_as_the_first():
        yield
