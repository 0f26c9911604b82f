"""Strict type checkers agree with `public_api.py` and with a user's `a_backend.py`, and would notice if they
did not."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import openresponses_bridge
from tests.support.document_blocks import files
from tests.support.shared import REPOSITORY

REVEALED = Path(__file__).with_name("public_api.py")
USERS = Path(__file__).with_name("a_backend.py")


WRONG_EXPECTATION = """\
from typing import assert_type
from openresponses_bridge import ResponseStreamStateMachine
assert_type(ResponseStreamStateMachine("m").start(), list[str])
"""
WRONG_BACKEND = """\
from collections.abc import AsyncIterator
from openresponses_bridge import CreateResponse
from openresponses_bridge.backend import Finish, Output
from openresponses_server.backend import endpoint
async def generate(request: CreateResponse) -> AsyncIterator[Output]:
    yield Finish("lenght")
Finish("error")
Finish("")
endpoint(generate(CreateResponse()))
endpoint(None)
"""


@pytest.mark.slow  # run by make check, where mypy has just cached what these files import
def test_a_type_checker_sees_what_is_public_and_what_is_wrong(tmp_path: Path) -> None:
    """All files in one run, most of which is what they import."""
    (tmp_path / "wrong_expectation.py").write_text(WRONG_EXPECTATION)
    (tmp_path / "wrong_backend.py").write_text(WRONG_BACKEND)
    for name in ("my_model.py", "test_my_server.py"):  # the README's own programs
        (tmp_path / name).write_text(files("README.md")[name])
    repository_cache = REPOSITORY / ".mypy_cache"
    cache = repository_cache if repository_cache.is_dir() else tmp_path / "cache"
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(cache), "--no-error-summary"]
    command += map(str, [REVEALED, USERS, *sorted(tmp_path.glob("*.py"))])
    checked = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert checked.returncode == 1, checked.stderr
    lines = checked.stdout.splitlines()
    matches = [re.fullmatch(r"(.*?):(\d+): error: .*", line) for line in lines]
    places = [(Path(each[1]).name, int(each[2])) for each in matches if each is not None]
    expected = [("wrong_expectation.py", 3), *(("wrong_backend.py", line) for line in (6, 7, 8, 9, 10))]
    assert sorted(places) == sorted(expected), checked.stdout
    assert len(lines) == len(expected), checked.stdout
    assert any(line.endswith("[assert-type]") for line in lines)


def test_every_public_name_is_in_the_typed_file() -> None:
    text = REVEALED.read_text()
    assert [name for name in openresponses_bridge.__all__ if f"    {name},\n" not in text] == []
    assert all(hasattr(openresponses_bridge, name) for name in openresponses_bridge.__all__)


@pytest.mark.clients
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
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(checked.stdout)
    assert report["summary"]["filesAnalyzed"] == 2
    assert [(Path(each["file"]).name, each["rule"]) for each in report["generalDiagnostics"]] == [
        ("wrong.py", "reportArgumentType")
    ], checked.stdout
