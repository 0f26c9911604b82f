"""A process of this machine that has stopped is known by its lock, however it stopped, and no other is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from openresponses_server.store import presence
from openresponses_server.store.presence import CombinedPresence, ProcessFiles

_OTHER = """
import asyncio, sys
from pathlib import Path
from openresponses_server.store.presence import ProcessFiles

asyncio.run(ProcessFiles(Path(sys.argv[1]), "other").appear())
print("there", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "workers"


async def appeared(folder: Path, process: str) -> ProcessFiles:
    files = ProcessFiles(folder, process)
    await files.appear()
    return files


def stop(files: ProcessFiles) -> None:
    """What the kernel does when the process ends."""
    assert files._held is not None
    os.close(files._held)


async def test_process_that_lives_or_has_left_has_not_departed(folder: Path) -> None:
    watching = await appeared(folder, "watching")
    other = await appeared(folder, "other")
    assert await watching.departed() == set()
    assert await other.departed() == set()
    await other.leave()
    assert await watching.departed() == set()
    await watching.leave()
    assert not folder.exists()


async def test_process_that_has_stopped_is_known_to_all_until_it_is_forgotten(folder: Path) -> None:
    first, second = [await appeared(folder, name) for name in ("first", "second")]
    stop(await appeared(folder, "other"))
    for _ in range(2):
        assert await first.departed() == await second.departed() == {"other"}
    await first.remove("other")
    await second.remove("other")
    assert await first.departed() == await second.departed() == set()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
async def test_killed_process_has_departed_and_a_frozen_one_has_not(
    folder: Path, sent: signal.Signals
) -> None:
    watching = await appeared(folder, "watching")
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"there\n"
        other.send_signal(signal.SIGSTOP)
        assert await watching.departed() == set()
        other.send_signal(signal.SIGCONT)
        other.send_signal(sent)
        other.wait()
        assert await watching.departed() == {"other"}


async def test_file_of_another_machine_says_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock may be kept there."""
    watching = await appeared(folder, "watching")
    monkeypatch.setattr(presence, "_machine", lambda: "elsewhere")
    stop(await appeared(folder, "other"))
    assert await watching.departed() == set()


@pytest.mark.parametrize("kind", ["open to all", "link", "file", "not to be made"])
async def test_folder_that_others_may_have_made_is_not_used(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "workers"
    folder.mkdir(mode=0o700)
    stop(await appeared(folder, "other"))
    if kind == "open to all":
        folder.chmod(0o755)
    elif kind == "not to be made":
        folder = tmp_path / "missing" / "workers"
    else:
        folder.rename(tmp_path / "theirs")
        if kind == "link":
            folder.symlink_to(tmp_path / "theirs")
        else:
            folder.write_bytes(b"")
    with structlog.testing.capture_logs() as logs:
        watching = await appeared(folder, "watching")
        assert await watching.departed() == set()
    assert [each["event"] for each in logs] == ["presence.failed"]
    await watching.leave()


async def test_folder_that_is_mended_is_used_again(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    watching = await appeared(folder, "watching")
    folder.chmod(0o700)
    stop(await appeared(folder, "other"))
    assert await watching.departed() == {"other"}


async def test_one_of_several_ways_suffices(folder: Path, tmp_path: Path) -> None:
    watching = CombinedPresence(
        [ProcessFiles(folder, "watching"), ProcessFiles(tmp_path / "more", "watching")]
    )
    await watching.appear()
    other = [await appeared(each, "other") for each in (folder, tmp_path / "more")]
    stop(other[1])
    assert await watching.departed() == {"other"}
    await watching.remove("other")
    assert await watching.departed() == set()
    await watching.leave()
    assert not (tmp_path / "more").exists()
