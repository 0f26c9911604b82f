"""Closes the servers that targets share when the tests of this folder have ended."""

from collections.abc import Iterator

import pytest

from tests.fuzz.targets import edge, server


@pytest.fixture(scope="package", autouse=True)
def _servers() -> Iterator[None]:
    yield
    for each in (edge, server):
        each.close()
