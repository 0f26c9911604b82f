"""A strict type checker agrees with `public_api.py`, and would notice if it did not."""

import subprocess
import sys
from pathlib import Path

import pytest

import bridge
from tests.support.shared import REPOSITORY

REVEALED = Path(__file__).with_name("public_api.py")


def mypy(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(cache), "--no-error-summary", str(path)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=100)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's cache where there is one, so that the check takes a second."""
    kept = REPOSITORY / ".mypy_cache"
    return kept if kept.is_dir() else tmp_path_factory.mktemp("mypy")


@pytest.mark.timeout(120)
def test_a_type_checker_sees_what_public_api_says(cache: Path) -> None:
    checked = mypy(REVEALED, cache)
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stdout + checked.stderr


@pytest.mark.timeout(120)
def test_a_wrong_expectation_is_noticed(cache: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from typing import assert_type\nfrom bridge import ResponseStreamStateMachine\n"
        'assert_type(ResponseStreamStateMachine("m").start(), list[str])\n'
    )
    checked = mypy(wrong, cache)
    assert checked.returncode == 1
    assert "assert-type" in checked.stdout


def test_every_public_name_is_in_the_typed_file() -> None:
    text = REVEALED.read_text()
    assert [name for name in bridge.__all__ if f"    {name},\n" not in text] == []
    assert all(hasattr(bridge, name) for name in bridge.__all__)
