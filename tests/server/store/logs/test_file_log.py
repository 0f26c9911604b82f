"""Event logs in files: a killed writer's file, acquiring a log, bounds, and files that are not event logs."""

import asyncio
import itertools
import mmap
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openresponses_server.settings import SettingsError
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.logs import file as file_log
from openresponses_server.store.logs.base import LogError, LogGap, LogGone
from openresponses_server.store.logs.file import FileLog, file_name, network_file_system
from openresponses_server.store.logs.file_records import HEAD_BYTES
from openresponses_server.store.stores import open_event_log
from tests.support.forked import FORKING
from tests.support.scale import MANY
from tests.support.stores import frame, frames
from tests.support.waiting import until

EVENTS = "events"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs"


async def rest(log: FileLog, run_id: str = "r", after: int = -1) -> Frames | None:
    """What there is now."""
    return joined([each async for each in log.read(run_id, after, wait=False)])


async def last_number(log: FileLog, run_id: str = "r") -> int:
    events = await rest(log, run_id)
    return -1 if events is None else events.last


async def test_s1_what_a_process_has_appended_is_there_after_it_was_killed(folder: Path) -> None:
    await kill_and_read(folder, 2, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 * MANY))
async def test_s1_what_a_process_has_appended_is_there_after_a_thousand_kills(
    folder: Path, seed: int
) -> None:
    await kill_and_read(folder, 50, seed)


RUNS = 8


async def kill_and_read(folder: Path, rounds: int, seed: int) -> None:
    """Each time the number of each run's last event that was appended is noted in memory that outlives the
    process; the log has all of them, whole and in order."""
    chosen = random.Random(seed)
    for _ in range(rounds):
        shutil.rmtree(folder, ignore_errors=True)
        noted = folder.with_name("noted")
        noted.write_bytes(bytes(8 * RUNS))
        process = FORKING.Process(target=append_for_ever, args=(folder, noted))
        process.start()
        while not any(noted.read_bytes()):
            await asyncio.sleep(0.001)
        await asyncio.sleep(chosen.uniform(0, 0.02))
        process.kill()
        process.join()
        log = FileLog(folder)
        for run, count in enumerate(struct.unpack(f"{RUNS}q", noted.read_bytes())):
            events = await rest(log, f"r{run}")
            if events is None:  # it was killed before the first event of this run
                assert not count
                continue
            assert events.last >= count - 1
            assert events.data == frames(0, events.last).data
        await log.shutdown()


def append_for_ever(folder: Path, noted: Path) -> None:
    async def work() -> None:
        log = FileLog(folder)
        with noted.open("r+b") as file, mmap.mmap(file.fileno(), 8 * RUNS) as memory:
            for run in range(RUNS):
                await log.open(f"r{run}")
            number = 0
            while True:
                for run in range(RUNS):
                    await log.append(f"r{run}", frames(number, number))
                    memory[8 * run : 8 * run + 8] = struct.pack("q", number + 1)
                number += 1

    asyncio.run(work())


async def test_s1_torn_frame_is_cut_wherever_it_is_torn(folder: Path) -> None:
    """At every byte of the last four kilobytes; whoever settles the run goes on behind it."""
    log, other = FileLog(folder), FileLog(folder)
    await log.open("r")
    ends = []
    while len(ends) < 15:
        number = len(ends)
        await log.append("r", frames(number, number, "w" * 400))
        ends.append((folder / EVENTS / "r").stat().st_size)
    whole = (folder / EVENTS / "r").read_bytes()
    (folder / EVENTS / "s").write_bytes(whole)
    for size in range(len(whole) - 1, len(whole) - 4097, -1):
        os.truncate(folder / EVENTS / "s", size)
        last = sum(end <= size for end in ends) - 1
        events = await rest(other, "s", last - 2)
        assert events == frames(last - 1, last, "w" * 400)
        if size % 256 == 0:
            shutil.copy(folder / EVENTS / "s", folder / EVENTS / "t")
            await other.acquire("t")
            await other.append("t", frames(last + 1, last + 1, "end"))
            await other.close("t")
            sent = b"".join([each.data async for each in other.read("t")])
            assert sent == frames(0, last, "w" * 400).data + frame(last + 1, "end")
    for each in (log, other):
        await each.shutdown()


async def test_changed_byte_is_never_sent(folder: Path) -> None:
    log = FileLog(folder)
    await log.open("r")
    for number in range(8):
        await log.append("r", frames(number, number))
    path = folder / EVENTS / "r"
    whole = path.read_bytes()
    for at in range(len(whole) // 2, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            events = await rest(log)
        except LogGap:
            continue
        assert events is not None
        assert events.data == frames(0, events.last).data
    await log.shutdown()


async def test_s1_writer_that_stood_still_notices_that_its_log_was_acquired(folder: Path) -> None:
    """What it appends afterwards is no part of the log, for no reader."""
    frozen, settles, reads = (FileLog(folder) for _ in range(3))
    await frozen.open("r")
    await frozen.append("r", frames(0, 3))
    add = frozen.appender("r")
    reader = reads.read("r")
    assert await anext(reader) == frames(0, 3)
    await settles.acquire("r")
    with pytest.raises(LogGone):
        add(frames(4, 4, "late"), lambda _answer: None)
    with pytest.raises(LogGone):
        await frozen.append("r", frames(4, 4, "later"))
    assert await last_number(settles) == 3
    await settles.append("r", frames(4, 4, "end"))
    await settles.close("r")
    assert [each async for each in reader] == [frames(4, 4, "end")]
    for each in (frozen, settles, reads):
        await each.shutdown()


async def test_s1_log_can_be_acquired_again(folder: Path) -> None:
    """By another process, where the first one that settles is killed too, or by the same."""
    logs = [FileLog(folder) for _ in range(3)]
    await logs[0].open("r")
    await logs[0].append("r", frames(0, 0))
    for log in (logs[1], logs[2], logs[2], logs[0]):
        await log.acquire("r")
    for log in logs[1:]:
        with pytest.raises(LogGone):
            await log.append("r", frames(1, 1, "late"))
    await logs[0].append("r", frames(1, 1, "end"))
    await logs[0].close("r")
    assert await rest(logs[1]) == joined([frames(0, 0), frames(1, 1, "end")])
    for log in logs:
        await log.shutdown()


async def test_log_that_nobody_has_is_not_acquired(folder: Path) -> None:
    log = FileLog(folder)
    await log.acquire("r")
    with pytest.raises(LogGone):
        await log.append("r", frames(0, 0))
    assert not list((folder / EVENTS).iterdir())
    await log.shutdown()


_READER = """
import asyncio, sys
from pathlib import Path
from openresponses_server.store.logs.file import FileLog

async def read():
    log = FileLog(Path(sys.argv[1]))
    async for frames in log.read("r"):
        sys.stdout.buffer.write(frames.data)
        sys.stdout.flush()
    await log.shutdown()

asyncio.run(read())
"""


async def test_s9_two_processes_read_while_a_third_writes(folder: Path) -> None:
    """Each frame is written once both have the one before: they are told of it."""
    log = FileLog(folder)
    await log.open("r")
    await log.append("r", frames(0, 0))
    readers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _READER, str(folder), stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for number in range(200):
        for each in readers:
            assert each.stdout is not None
            assert await each.stdout.readexactly(len(frame(number))) == frame(number)
        await log.append("r", frames(number + 1, number + 1))
    await log.close("r")
    for each in readers:
        assert each.stdout is not None
        assert await each.stdout.read() == frame(200)
        assert await each.wait() == 0
    await log.shutdown()


async def test_s2_log_longer_than_its_bound_keeps_its_newest_half(folder: Path) -> None:
    log = FileLog(folder, max_log_bytes=400_000)
    await log.open("r")
    along = log.read("r")
    for number in range(3000):
        await log.append("r", frames(number, number, "z" * 300))
        assert (await anext(along)).last == number
    sizes = [each.stat().st_size for each in (folder / EVENTS).iterdir()]
    assert sum(sizes) < 600_000
    with pytest.raises(LogGap) as gap:
        await rest(log, after=0)
    oldest = gap.value.found
    assert oldest < 3000 - 200_000 // 400
    for after in range(oldest - 1, 3000, 7):
        events = await rest(log, after=after)
        assert (None if after == 2999 else frames(after + 1, 2999, "z" * 300)) == events
    await log.close("r")
    assert [each async for each in along] == []
    await log.shutdown()


def die_while_moving(folder: Path, noted: Path, step: str) -> None:
    """Append to a log, and die when it goes on in its third file."""
    when, _, name = step.partition(" ")
    owner: object = {"mark": FileLog, "link": os, "rename": Path}[name]
    attribute = {"mark": "_mark"}.get(name, name)
    call = getattr(owner, attribute)

    def dying(*given: object) -> object:
        if when == "after":
            call(*given)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    async def work() -> None:
        log = FileLog(folder, max_log_bytes=40_000)
        await log.open("r")
        for number in itertools.count():
            if log._written["r"].generation == 1:
                setattr(owner, attribute, dying)
            await log.append("r", frames(number, number, "z" * 3000))
            noted.write_text(str(number))

    asyncio.run(work())


@pytest.mark.parametrize("step", ["before mark", "after mark", "before link", "after link", "after rename"])
async def test_s1_log_of_a_process_killed_while_it_goes_on_in_another_file(folder: Path, step: str) -> None:
    noted = folder.with_name("noted")
    process = FORKING.Process(target=die_while_moving, args=(folder, noted, step))
    process.start()
    await asyncio.to_thread(process.join)
    assert process.exitcode == -signal.SIGKILL
    last = int(noted.read_text())
    reads, settles = FileLog(folder), FileLog(folder)
    reader = reads.read("r", last - 3)
    batch = await anext(reader)
    assert batch.last >= last
    assert batch == frames(last - 2, batch.last, "z" * 3000)
    assert await rest(settles, after=batch.last) is None
    await settles.acquire("r")
    await settles.append("r", frames(batch.last + 1, batch.last + 1, "end"))
    await settles.close("r")
    assert [each async for each in reader] == [frames(batch.last + 1, batch.last + 1, "end")]
    reads._sweep(time.time() + 3600)
    assert not list((folder / EVENTS).iterdir())
    for each in (reads, settles):
        await each.shutdown()


async def test_logs_together_stay_within_their_bound(folder: Path) -> None:
    log = FileLog(folder, max_bytes=2_000_000)
    names = [f"r{number}" for number in range(12)]
    for name in names:
        await log.open(name)
    for number in range(1200):
        for name in names:
            await log.append(name, frames(number, number, "z" * 500))
    assert sum(each.stat().st_size for each in (folder / EVENTS).iterdir()) < 3_000_000
    for name in names:
        events = await rest(log, name, after=1190)
        assert events is not None
        assert events.last == 1199
    await log.shutdown()


async def test_closed_logs_make_room_first(folder: Path) -> None:
    log = FileLog(folder, max_bytes=2_000_000)
    for name in ("old", "new"):
        await log.open(name)
        for number in range(200):
            await log.append(name, frames(number, number, "z" * 8000))
        if name == "old":
            await log.close(name)
    assert [each.name for each in (folder / EVENTS).iterdir()] == ["new"]
    assert await last_number(log, "new") == 199
    await log.shutdown()


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes: as on a full disk, a part of a record may be
    written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_s1_full_disk_refuses_frames_and_loses_none_before_or_after(folder: Path) -> None:
    log = FileLog(folder)
    await log.open("r")
    await log.append("r", frames(0, 9))
    size = (folder / EVENTS / "r").stat().st_size
    with files_up_to(size + HEAD_BYTES + 10):
        for _ in range(3):
            with pytest.raises(LogError) as refused:
                await log.append("r", frames(10, 10, "y" * 50))
            assert refused.value.code == "event_log_unavailable"
    assert await rest(log) == frames(0, 9)
    await log.append("r", frames(10, 12, "y" * 50))
    await log.close("r")
    assert await rest(log) == joined([frames(0, 9), frames(10, 12, "y" * 50)])
    await log.shutdown()


async def test_s1_log_that_can_not_be_closed_on_a_full_disk_is_gone(folder: Path) -> None:
    log = FileLog(folder)
    await log.open("r")
    await log.append("r", frames(0, 0))
    reader = log.read("r")
    await anext(reader)
    with files_up_to((folder / EVENTS / "r").stat().st_size):
        await log.close("r")
    with pytest.raises(LogGone):
        await anext(reader)
    await log.shutdown()


@pytest.mark.parametrize("kind", ["open to all", "link", "file", "another user's"])
async def test_s7_folder_that_is_not_this_users_alone_is_not_used(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "logs"
    folder.mkdir(mode=0o700)
    if kind == "open to all":
        folder.chmod(0o755)
    elif kind == "another user's":
        if os.geteuid():
            pytest.skip("only root can give a folder away")
        os.chown(folder, 12345, 12345)
    else:
        folder.rename(tmp_path / "theirs")
        if kind == "link":
            folder.symlink_to(tmp_path / "theirs")
        else:
            folder.write_bytes(b"")
    log = FileLog(folder)
    for call in (log.check, lambda: log.open("r"), lambda: log.discard("r"), lambda: log.acquire("r")):
        with pytest.raises(LogError) as refused:
            await call()
        assert str(folder) in refused.value.in_full
        assert not refused.value.permanent
    with pytest.raises(LogGone):
        await rest(log)
    await log.shutdown()
    assert os.path.lexists(folder), "it is somebody's"


async def test_s7_folder_and_files_are_for_this_user_alone(folder: Path) -> None:
    log = FileLog(folder)
    await log.open("r")
    await log.append("r", frames(0, 0))
    modes = {each.name: each.stat().st_mode & 0o777 for each in folder.rglob("*")}
    assert modes == {EVENTS: 0o700, "r": 0o600, f"{log.pipes.process}.pipe": 0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    await log.shutdown()
    assert {each.name for each in folder.rglob("*")} == {EVENTS, "r"}, "a run that has not ended is kept"


@pytest.mark.parametrize(
    "data", [b"", b"not a log", b"\0" * 5000, b"\0\xff\x1e" * 2000], ids=["empty", "text", "zeros", "magic"]
)
async def test_file_that_is_no_log_is_not_read_and_gives_way(folder: Path, data: bytes) -> None:
    log = FileLog(folder)
    log.listen()
    path = folder / EVENTS / "r"
    path.write_bytes(data)
    with pytest.raises(LogGone):
        await rest(log)
    await log.acquire("r")
    with pytest.raises(LogGone):
        await log.append("r", frames(0, 0))
    await log.open("r")
    await log.append("r", frames(0, 0))
    assert await rest(log) == frames(0, 0)
    await log.shutdown()


THEIRS = b"not a log" * 1000


def put_in_place(kind: str, path: Path, theirs: Path) -> None:
    """Put something in the place of a log that is none; what `theirs` has must stay."""
    theirs.write_bytes(THEIRS)
    if kind == "link":
        path.symlink_to(theirs)
    elif kind == "second name":
        path.hardlink_to(theirs)
    elif kind == "pipe":
        os.mkfifo(path)
    elif os.geteuid():
        pytest.skip("only root can give a file away")
    else:
        path.write_bytes(b"")
        os.chown(path, 12345, 12345)


@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "another user's"])
async def test_s7_what_is_in_the_place_of_a_log_gives_way_unchanged(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    log = FileLog(folder)
    log.listen()
    path, theirs = folder / EVENTS / "r", tmp_path / "theirs"
    put_in_place(kind, path, theirs)
    with pytest.raises(LogGone):
        await rest(log)
    await log.open("r")
    await log.append("r", frames(0, 0))
    assert await rest(log) == frames(0, 0)
    await log.close("r")
    path.unlink()
    put_in_place(kind, path, theirs)
    await log.discard("r")
    with pytest.raises(LogGone):
        await log.open("r")
    assert path.lstat().st_uid == os.geteuid()
    assert theirs.read_bytes() == THEIRS
    await log.shutdown()


async def test_s7_folder_in_the_place_of_a_log_refuses_this_log_alone(folder: Path) -> None:
    log = FileLog(folder)
    log.listen()
    (folder / EVENTS / "r").mkdir()
    for call in (log.open, log.discard):
        with pytest.raises(LogError):
            await call("r")
    with pytest.raises(LogGone):
        await rest(log)
    await log.open("s")
    await log.append("s", frames(0, 0))
    await log.shutdown()


async def test_s7_link_to_another_log_is_not_followed(folder: Path, tmp_path: Path) -> None:
    log = FileLog(folder)
    log.listen()
    other = FileLog(tmp_path / "other")
    await other.open("r")
    await other.append("r", frames(0, 5))
    (folder / EVENTS / "r").symlink_to(tmp_path / "other" / EVENTS / "r")
    with pytest.raises(LogGone):
        await rest(log)
    await log.open("r")
    await log.append("r", frames(0, 0))
    assert await rest(other) == frames(0, 5)
    for each in (log, other):
        await each.shutdown()


async def test_log_of_another_version_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FileLog(folder)
    monkeypatch.setattr(file_log, "_VERSION", "2")
    await log.open("r")
    await log.append("r", frames(0, 0))
    monkeypatch.undo()
    with pytest.raises(LogGone):
        await rest(log)
    await log.shutdown()


@pytest.mark.parametrize("run_id", ["../../x", "a/b", "", "x" * 500, "r.1", "ä"])
async def test_s10_run_whose_id_is_no_name_has_a_file_in_the_folder(folder: Path, run_id: str) -> None:
    log = FileLog(folder)
    await log.open(run_id)
    await log.append(run_id, frames(0, 2))
    (path,) = (folder / EVENTS).iterdir()
    assert path.name == file_name(run_id)
    assert await rest(log, run_id) == frames(0, 2)
    await log.shutdown()


async def test_what_processes_that_stopped_have_left_is_deleted(folder: Path) -> None:
    left = FileLog(folder)
    for name in ("closed", "open", "old"):
        await left.open(name)
        await left.append(name, frames(0, 0))
    await left.close("closed")
    log = FileLog(folder)
    log._sweep(time.time())
    assert {each.name for each in (folder / EVENTS).iterdir()} == {"closed", "open", "old"}
    os.utime(folder / EVENTS / "old", (1.0, 1.0))
    log._sweep(time.time() + 3600)
    assert {each.name for each in (folder / EVENTS).iterdir()} == {"open"}
    for each in (log, left):
        await each.shutdown()


async def test_folder_that_was_deleted_is_made_again(folder: Path) -> None:
    log = FileLog(folder)
    await log.open("r")
    shutil.rmtree(folder / EVENTS)
    await log.open("s")
    await log.append("s", frames(0, 0))
    assert await rest(log, "s") == frames(0, 0)
    await log.shutdown()


async def test_log_is_discarded_by_a_process_that_has_logged_nothing(folder: Path) -> None:
    log = FileLog(folder)
    await log.discard("r")
    with pytest.raises(LogGone):
        await rest(log)
    await log.shutdown()


async def test_network_file_system_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    device = folder.stat().st_dev
    mounts = folder.with_name("mountinfo")
    place = f"36 35 {os.major(device)}:{os.minor(device)} / /data rw,noatime shared:1 - "
    monkeypatch.setattr(file_log, "_MOUNTS", mounts)
    for kind, noticed in (("ext4", None), ("nfs4", "nfs4"), ("cifs", "cifs"), ("fuse.sshfs", "fuse.sshfs")):
        mounts.write_text(f"35 1 0:1 / / rw - tmpfs tmpfs rw\n{place}{kind} server:/data rw\n")
        assert network_file_system(folder) == noticed
    log = FileLog(folder)
    with pytest.raises(LogError) as refused:
        await log.open("r")
    assert "network file system (fuse.sshfs)" in refused.value.in_full
    await log.shutdown()


async def test_reader_leaves_no_descriptor_and_no_watcher_behind(folder: Path) -> None:
    log, other = FileLog(folder), FileLog(folder)
    await log.open("r")
    await log.append("r", frames(0, 0))
    reader = other.read("r")
    await anext(reader)
    await until(lambda: log._written["r"].watchers)
    before = len(os.listdir("/proc/self/fd"))
    await reader.aclose()
    await until(lambda: not log._written["r"].watchers)
    assert len(os.listdir("/proc/self/fd")) == before - 1
    assert not other._followed
    for each in (log, other):
        await each.shutdown()


async def test_watcher_that_has_stopped_is_forgotten(folder: Path) -> None:
    log, other = FileLog(folder), FileLog(folder)
    await log.open("r")
    await log.append("r", frames(0, 0))
    reader = other.read("r")
    await anext(reader)
    await until(lambda: log._written["r"].watchers)
    other.pipes.close()  # as when its process is killed
    await log.append("r", frames(1, 1))
    await until(lambda: not log._written["r"].watchers)
    await reader.aclose()
    for each in (log, other):
        await each.shutdown()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("file:?fsync=0", "fsync must be a number of seconds from 0.01 to 3600, not '0'"),
        ("file:?fsync=nan", "fsync must be a number of seconds from 0.01 to 3600, not 'nan'"),
        ("file:?fsync=1s", "fsync must be a number of seconds from 0.01 to 3600, not '1s'"),
        ("file:?fsnyc=1", "'fsnyc' is not an option of file: (did you mean 'fsync'?)"),
    ],
)
def test_options_of_the_address_are_checked(folder: Path, address: str, message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        open_event_log(address, folder)


def test_the_folder_of_the_address_may_have_an_interval(folder: Path) -> None:
    for address in (f"file://{folder}?fsync=0.5", "file:?fsync=2"):
        log = open_event_log(address, folder)
        assert isinstance(log, FileLog)
        assert log.folder == folder
