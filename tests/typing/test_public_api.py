"""Strict type checkers agree with `public_api.py` and with a user's `a_backend.py`, and would notice if they
did not."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import openresponses_bridge
from tests.support.shared import REPOSITORY

REVEALED = Path(__file__).with_name("public_api.py")
USERS = Path(__file__).with_name("a_backend.py")


def mypy(cache: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--cache-dir",
        str(cache),
        "--no-error-summary",
        *map(str, paths),
    ]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=100)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's cache where there is one, so that the check takes a second."""
    kept = REPOSITORY / ".mypy_cache"
    return kept if kept.is_dir() else tmp_path_factory.mktemp("mypy")


@pytest.mark.timeout(120)
def test_a_type_checker_sees_what_is_public(cache: Path) -> None:
    checked = mypy(cache, REVEALED, USERS)
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stdout + checked.stderr


@pytest.mark.timeout(120)
def test_a_wrong_expectation_is_noticed(cache: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from typing import assert_type\nfrom openresponses_bridge import ResponseStreamStateMachine\n"
        'assert_type(ResponseStreamStateMachine("m").start(), list[str])\n'
    )
    checked = mypy(cache, wrong)
    assert checked.returncode == 1
    assert [line.rsplit(" ", 1)[1] for line in checked.stdout.splitlines()] == ["[assert-type]"], (
        checked.stdout
    )


@pytest.mark.timeout(120)
def test_a_wrong_reason_and_an_iterator_for_a_function_are_noticed(cache: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from collections.abc import AsyncIterator\n"
        "from openresponses_bridge import CreateResponse\n"
        "from openresponses_bridge.backend import Finish, Output\n"
        "from openresponses_server.backend import endpoint\n"
        "async def generate(request: CreateResponse) -> AsyncIterator[Output]:\n"
        '    yield Finish("lenght")\n'
        'Finish("error")\n'
        'Finish("")\n'
        "endpoint(generate(CreateResponse()))\n"
        "endpoint(None)\n"
    )
    checked = mypy(cache, wrong)
    assert [line.split(":")[1:3] for line in checked.stdout.splitlines()] == [
        [str(line), " error"] for line in (6, 7, 8, 9, 10)
    ], checked.stdout


def test_every_public_name_is_in_the_typed_file() -> None:
    text = REVEALED.read_text()
    assert [name for name in openresponses_bridge.__all__ if f"    {name},\n" not in text] == []
    assert all(hasattr(openresponses_bridge, name) for name in openresponses_bridge.__all__)


@pytest.mark.clients
@pytest.mark.timeout(300)
def test_pyright_finds_nothing_in_what_a_user_writes_and_what_is_wrong_in_the_rest(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        'from openresponses_bridge.backend import ToolCall\nToolCall("f", 5)\n'
    )
    # Pyright leaves out what is outside of the project, and does not look through an editable installation.
    shutil.copy(USERS, tmp_path)
    settings = {
        "extraPaths": [str(REPOSITORY / "bridge"), str(REPOSITORY / "server")],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--outputjson"]
    command += ["--pythonpath", sys.executable]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=290)
    found = json.loads(checked.stdout)
    assert found["summary"]["filesAnalyzed"] == 2
    assert [(Path(each["file"]).name, each["rule"]) for each in found["generalDiagnostics"]] == [
        ("wrong.py", "reportArgumentType")
    ], checked.stdout
