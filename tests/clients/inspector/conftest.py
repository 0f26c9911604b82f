"""The inspector's page of the server that a module has as `base`."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def page(browser: Any, base: str) -> Iterator[Any]:
    """The page; what it logs as an error, and what a policy refuses, fails the test."""
    found = browser.new_page(viewport={"width": 1440, "height": 900})
    errors: list[str] = []
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.on(
        "console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None
    )
    found.goto(f"{base}/inspector")
    yield found
    found.close()
    assert errors == []
