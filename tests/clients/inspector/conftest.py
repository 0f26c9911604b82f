"""The inspector's page, over the server whose address a module provides as `base`."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def page(browser: Any, base: str) -> Iterator[Any]:
    """The page; an error in its console, or a request that a policy refuses, fails the test."""
    tab = browser.new_page(viewport={"width": 1440, "height": 900})
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on(
        "console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None
    )
    tab.goto(f"{base}/inspector")
    yield tab
    tab.close()
    assert errors == []


@pytest.fixture(scope="session")
def faults(axe: str) -> Callable[[Any], list[str]]:
    """The accessibility faults that axe-core finds in a page in its present state."""

    def found(page: Any) -> list[str]:
        page.evaluate(f"() => {{ {axe} }}")
        faults: list[str] = page.evaluate(
            "() => axe.run().then(({violations}) => violations.map(v => v.id + ': ' + "
            "v.nodes.slice(0, 3).map(n => n.html.slice(0, 120)).join(' | ')))"
        )
        return faults

    return found
