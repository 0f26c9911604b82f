"""The data folder is only this user's, no matter which program makes it first."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openresponses_cli.agents.coding.running import folder_of
from openresponses_cli.commands.checks import _check_folder
from openresponses_server.observation.recordings.writer import RecordingFile
from openresponses_server.settings.data_folder import data_folder, kept_keys, make_private
from openresponses_server.store.sql.locations import database_url, make_private_file
from openresponses_server.upstreams.codex.pool import Folders

FIRST: dict[str, Callable[[], object]] = {
    "agent": lambda: folder_of("codex"),
    "codex": lambda: Folders(None, 1).of_processes,
    "doctor": _check_folder,
    "recording": lambda: RecordingFile(data_folder() / "deep" / "er" / "r.jsonl").create(),
    "sealing": lambda: kept_keys(data_folder()),
    "store": lambda: make_private_file(database_url("sqlite:")),
}


@pytest.fixture(autouse=True)
def _usual_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "share"))
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("first", FIRST)
def test_whatever_makes_it_makes_it_for_this_user_alone(first: str, tmp_path: Path) -> None:
    FIRST[first]()
    folders = [each for each in (tmp_path / "home").rglob("*") if each.is_dir()]
    assert data_folder() in folders
    assert {each: mode(each) for each in folders if mode(each) != 0o700} == {}


@pytest.mark.parametrize("first", FIRST)
def test_one_that_is_there_keeps_its_rights(first: str) -> None:
    make_private(data_folder())
    FIRST[first]()
    assert mode(data_folder()) == 0o700


def test_doctor_says_that_others_can_enter_it() -> None:
    assert _check_folder().state == "ok"
    data_folder().chmod(0o755)
    assert (_check_folder().state, "chmod 700" in _check_folder().message) == ("note", True)


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(OSError, match="home"):
        make_private(tmp_path / "home" / "share")
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "home")
