"""The servers that targets share live as long as the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.fuzz.targets import server


@pytest.fixture(scope="package", autouse=True)
def _server() -> Iterator[None]:
    yield
    server.close()
