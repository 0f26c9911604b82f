"""A test that takes too long fails alone."""

import subprocess
import sys
from pathlib import Path

from tests.support.wheel import clean_environment

TESTS = """
import asyncio
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
async def given(anyio_backend):
    yield 1
    await asyncio.sleep(0)

async def test_that_waits_for_ever(given):
    await asyncio.Event().wait()

async def test_that_passes(given):
    assert given == 1
"""


def test_an_async_test_that_takes_too_long_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\ntimeout = 20\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.support.time_limits",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, str(tmp_path)],
        cwd=Path(__file__).parent.parent,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "TimeoutError" in done.stdout
