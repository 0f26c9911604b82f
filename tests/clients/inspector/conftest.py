"""Chromium, and the inspector's page of the server that a module has as `base`."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium (apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        yield running
        running.close()


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
