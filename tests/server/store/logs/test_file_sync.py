"""Event logs synced to the disk: which writes, how much at once, and a disk that refuses or hangs."""

import asyncio
import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from openresponses_server.settings import Settings
from openresponses_server.store.frames import joined
from openresponses_server.store.logs import file_sync
from openresponses_server.store.logs.base import LogError
from openresponses_server.store.logs.file import FileLog
from openresponses_server.store.stores import open_store
from tests.support.serving import call, serving
from tests.support.stores import frames
from tests.support.waiting import until, wait_until
from tests.support.workers import slow_stream

EVENTS = "events"
OFTEN = 0.01  # seconds
REFUSAL = OSError(errno.EIO, "Input/output error")
FULL = OSError(errno.ENOSPC, "No space left on device")  # of a disk that finds room for what it took only now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs"


class Disk:
    """Stands for `os.fdatasync`: counts what it is asked, waits where it is told to, and may refuse, the next
    call alone or all."""

    def __init__(self) -> None:
        self.synced: list[int] = []
        """The sizes of the files that it was asked to write."""
        self.error: OSError | None = None
        self.once: OSError | None = None
        self.free = threading.Event()
        self.free.set()

    def __call__(self, file: int) -> None:
        self.synced.append(os.fstat(file).st_size)
        self.free.wait(60)  # a test that fails ends then
        once, self.once = self.once, None
        if (error := once or self.error) is not None:
            raise error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk)
    yield disk
    disk.free.set()


def size_of(folder: Path, name: str = "r") -> int:
    return (folder / EVENTS / name).stat().st_size


async def is_out(log: FileLog) -> str | None:
    """What its check says."""
    try:
        await log.check()
    except LogError as error:
        return error.in_full
    return None


def refusal(folder: Path, reason: str | None) -> str:
    return f"The event log can't be written to the disk: {folder}: {reason}"


async def wait_for_check(log: FileLog, *, works: bool) -> None:
    while (await is_out(log) is None) is not works:
        await asyncio.sleep(OFTEN)


async def test_what_was_appended_is_written_to_the_disk(folder: Path, disk: Disk) -> None:
    log = FileLog(folder, fsync=OFTEN)
    await log.open("r")
    await log.append("r", frames(0, 3))
    size = size_of(folder)
    await until(lambda: size in disk.synced)
    count = len(disk.synced)
    await log.open("other")
    await until(lambda: len(disk.synced) > count)
    assert disk.synced.count(size) == 1  # it has not changed
    await log.shutdown()


async def test_the_file_that_a_log_has_left_is_written_to_the_disk_too(folder: Path, disk: Disk) -> None:
    log = FileLog(folder, fsync=OFTEN, max_log_bytes=200_000)
    await log.open("r")
    await until(lambda: bool(disk.synced))
    await until(lambda: log._written["r"].on_disk == log._written["r"].at)
    before = len(os.listdir("/proc/self/fd"))
    disk.free.clear()
    await log.append("r", frames(0, 0))
    await until(lambda: size_of(folder) in disk.synced)  # one turn goes on: what follows is for the next
    number = 1
    while log._written["r"].generation == 0:
        await log.append("r", frames(number, number, "z" * 9000))
        number += 1
    left = size_of(folder, "r.1")
    assert left not in disk.synced
    await log.append("r", frames(number, number))
    disk.free.set()
    await until(lambda: {left, size_of(folder)} <= set(disk.synced))
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    await log.shutdown()


async def test_files_left_while_the_disk_stands_still_are_not_held(folder: Path, disk: Disk) -> None:
    """A log has at most two descriptors, however often it goes on in another file."""
    log = FileLog(folder, fsync=OFTEN, max_log_bytes=200_000)
    disk.free.clear()
    await log.open("r")
    await until(lambda: bool(disk.synced))
    before = len(os.listdir("/proc/self/fd"))
    number = 0
    while log._written["r"].generation < 5:
        await log.append("r", frames(number, number, "z" * 9000))
        number += 1
    assert len(os.listdir("/proc/self/fd")) == before + 1
    await log.close("r")
    assert len(os.listdir("/proc/self/fd")) == before - 1
    disk.free.set()
    await log.shutdown()


async def test_s8_many_logs_are_written_some_at_once(
    folder: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileLog(folder, fsync=OFTEN)
    disk.free.clear()
    await log.open("first")
    await until(lambda: bool(disk.synced))
    for number in range(200):
        await log.open(f"r{number}")
    before = len(os.listdir("/proc/self/fd"))
    most = 0

    def look(_file: int) -> None:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))

    monkeypatch.setattr(os, "fdatasync", look)
    disk.free.set()
    logs = [log._written[f"r{number}"] for number in range(200)]
    await until(lambda: all(each.on_disk == each.at for each in logs))
    assert before < most < before + 50
    await log.shutdown()


async def test_a_disk_that_stands_still_keeps_nobody_waiting(
    folder: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.free.clear()
    log = FileLog(folder, fsync=OFTEN)
    await log.open("r")
    await until(lambda: bool(disk.synced))
    await log.append("r", frames(0, 3))
    assert [each async for each in log.read("r", wait=False)] == [frames(0, 3)]
    await log.close("r")  # its descriptor is another one
    await log.open("r2")
    assert len(disk.synced) == 1  # the next one waits for this one
    assert await is_out(log) is None
    monkeypatch.setattr(file_sync, "_LATE", -1.0)
    assert await is_out(log) == refusal(folder, "the disk does not answer")
    disk.free.set()
    await until(lambda: len(disk.synced) > 1)
    await wait_for_check(log, works=True)
    await log.shutdown()


@pytest.mark.parametrize("error", [REFUSAL, FULL], ids=["I/O error", "full"])
async def test_s1_while_the_disk_refuses_nothing_is_logged(folder: Path, disk: Disk, error: OSError) -> None:
    """What is refused is stored by the run instead (`LogWriter`); it is said once."""
    before = len(os.listdir("/proc/self/fd"))
    log = FileLog(folder, fsync=OFTEN)
    with structlog.testing.capture_logs() as lines:
        await log.open("r")
        await log.append("r", frames(0, 0))
        disk.error = error
        await wait_for_check(log, works=False)
        assert await is_out(log) == refusal(folder, error.strerror)
        await log.open("new")
        for name in ("r", "r", "new"):
            with pytest.raises(LogError) as refused:
                await log.append(name, frames(1, 1))
            assert str(folder) in refused.value.in_full
        count = len(disk.synced)
        await until(lambda: len(disk.synced) > count + 4)  # it is tried again, with a new file
        assert await is_out(log) is not None
        disk.error = None
        await wait_for_check(log, works=True)
        for name in ("r", "new"):
            with pytest.raises(LogError):
                await log.append(name, frames(1, 1))
            await log.append(name, frames(2, 2))
        parts = [each async for each in log.read("new", 1, wait=False)]
        assert joined(parts) == frames(2, 2)
        assert not [each.name for each in (folder / EVENTS).iterdir() if "probe" in each.name]
        await log.shutdown()
    lines = [line for line in lines if line["event"] == "event_log.not_synced"]
    assert [line["reason"] for line in lines] == [error.strerror]
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_s1_error_that_is_said_once_is_not_forgotten(folder: Path, disk: Disk) -> None:
    """The kernel says it to one call, and has dropped the data: the next call succeeds without them."""
    log = FileLog(folder, fsync=OFTEN)
    await log.open("r")
    await log.append("r", frames(0, 0))
    disk.once = REFUSAL
    await until(lambda: log._written["r"].distrusted)
    await wait_for_check(log, works=True)
    with pytest.raises(LogError, match="to the disk"):
        await log.append("r", frames(1, 1))
    await log.append("r", frames(2, 2))
    await log.shutdown()


async def test_s1_disk_that_refuses_new_files_is_not_relied_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has dropped what it could not write: it says of those files that they are on the disk."""
    refuses = False
    reported = False
    new: list[str] = []

    def write(file: int) -> None:
        nonlocal reported
        name = Path(os.readlink(f"/proc/self/fd/{file}")).name
        if name != "r":
            new.append(name)
        if refuses and (name != "r" or not reported):
            reported = True
            raise REFUSAL

    monkeypatch.setattr(os, "fdatasync", write)
    log = FileLog(folder, "me", fsync=OFTEN)
    await log.open("r")
    await until(lambda: log._written["r"].on_disk > 0)
    assert not new, "nothing is tried while the disk works"
    refuses = True
    await log.append("r", frames(0, 0))
    await until(lambda: len(new) > 2)
    assert set(new) == {"me.probe"}
    assert await is_out(log) == refusal(folder, REFUSAL.strerror)
    refuses = False
    await wait_for_check(log, works=True)
    await log.shutdown()


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process can open none."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_s1_logs_of_a_process_without_descriptors_are_not_trusted(folder: Path, disk: Disk) -> None:
    log = FileLog(folder, fsync=OFTEN)
    await log.open("r")
    await until(lambda: log._written["r"].on_disk > 0)
    with no_more_files():
        await log.append("r", frames(0, 0))
        await until(lambda: log._written["r"].distrusted)
    await wait_for_check(log, works=True)
    await until(lambda: size_of(folder) in disk.synced)
    await log.shutdown()


async def test_folder_that_was_deleted_is_made_again_and_trusted(folder: Path, disk: Disk) -> None:
    log = FileLog(folder, fsync=OFTEN)
    await log.open("r")
    (folder / EVENTS / "r").unlink()
    (folder / EVENTS).rmdir()
    await log.append("r", frames(0, 0))
    await until(lambda: log._written["r"].distrusted)
    await wait_for_check(log, works=True)
    assert (folder / EVENTS).is_dir()
    await log.shutdown()


async def test_s7_link_in_the_place_of_the_probe_is_not_followed(
    folder: Path, disk: Disk, tmp_path: Path
) -> None:
    log = FileLog(folder, "me", fsync=OFTEN)
    theirs = tmp_path / "theirs"
    theirs.write_text("kept")
    (folder / EVENTS).mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    (folder / EVENTS / "me.probe").symlink_to(theirs)
    assert await is_out(log) is None
    assert disk.synced
    assert theirs.read_text() == "kept"
    assert not list((folder / EVENTS).iterdir())
    await log.shutdown()


async def test_probe_that_is_written_in_part_is_a_refusal(folder: Path, disk: Disk) -> None:
    log = FileLog(folder, fsync=60)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        assert await is_out(log) == refusal(folder, "No space left on device")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert await is_out(log) is None
    await log.shutdown()


async def test_check_says_before_anything_is_logged_that_the_disk_refuses(folder: Path, disk: Disk) -> None:
    """As at the start of a server, and in `doctor`; without `fsync` nothing is tried."""
    disk.error = REFUSAL
    log = FileLog(folder, fsync=60)
    assert await is_out(log) is not None
    disk.error = None
    assert await is_out(log) is None
    count = len(disk.synced)
    assert await is_out(log) is None
    assert len(disk.synced) == count, "what is known is not tried again"
    await log.shutdown()
    await FileLog(folder).check()
    assert len(disk.synced) == count


def test_s1_what_a_client_gets_while_the_disk_refuses_is_stored(tmp_path: Path, disk: Disk) -> None:
    """Between two checkpoints, too; the server says that it is so."""
    store = f"sqlite:///{tmp_path}/s.sqlite3"
    settings = Settings(store=store, event_log=f"file:?fsync={OFTEN}", checkpoint_interval=3600)
    with serving(settings) as base:
        reader = slow_stream(base, 80)
        wait_until(lambda: len(reader.events) > 5)
        disk.error = REFUSAL
        wait_until(lambda: "event_log" in call(base, "GET", "/readyz").json)
        count = len(reader.events)
        wait_until(lambda: len(reader.events) > count + 3)
        seen = max(reader.events)

        async def last_stored() -> int | None:
            there = open_store(store)
            try:
                pieces = [piece.last async for piece in there.frames(str(reader.response_id))]
            finally:
                await there.close()
            return pieces[-1]

        stored = asyncio.run(last_stored())
        assert stored is not None
        assert stored >= seen
        metrics = call(base, "GET", "/metrics").body.decode()
        assert 'failures_total{call="check",code="event_log_unavailable",part="log"}' in metrics
        disk.error = None
        wait_until(lambda: "event_log" not in call(base, "GET", "/readyz").json)
        reader.join()
        whole = call(base, "GET", f"/v1/responses/{reader.response_id}?stream=true")
        assert whole.body == b"".join(reader.frames)
