"""The servers that targets share live as long as the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.fuzz.targets import edge, server


@pytest.fixture(scope="package", autouse=True)
def _servers() -> Iterator[None]:
    yield
    for each in (edge, server):
        each.close()
