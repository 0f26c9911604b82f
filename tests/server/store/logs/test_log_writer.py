"""A run and its event log: the log holds the run up once and shortly, however long it fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
from structlog.testing import capture_logs

from openresponses_server.store import writers
from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.base import CHUNK_BYTES, Appender, Failed, LogError, LogGap
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.writers import LogWriter
from tests.support.stores import frames
from tests.support.waiting import until


class FarLog(MemoryLog):
    """One on another machine, which answers, refuses, or neither, as the test sets it."""

    at_hand = False

    def __init__(self) -> None:
        super().__init__()
        self.state = "up"
        self.calls = 0
        self.failures: list[Callable[[], None]] = []
        """Each makes one append fail, however late."""

    async def open(self, run_id: str) -> None:
        await self._answer()
        await super().open(run_id)

    async def append(self, run_id: str, frames: Frames) -> None:
        await self._answer()
        await super().append(run_id, frames)

    def appender(self, run_id: str) -> Appender:
        def add(frames: Frames, failed: Failed) -> asyncio.Future[bool]:
            self.calls += 1
            answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self.failures.append(partial(failed, answer))
            if self.state != "silent":
                asyncio.get_running_loop().call_soon(self._say, run_id, frames, answer, failed)
            return answer

        return add

    def _say(self, run_id: str, frames: Frames, answer: asyncio.Future[bool], failed: Failed) -> None:
        if self.state != "up":
            failed(answer)
            return
        self._add(run_id, frames)
        if not answer.done():
            answer.set_result(True)

    async def close(self, run_id: str) -> None:
        await self._answer()
        await super().close(run_id)

    async def discard(self, run_id: str) -> None:
        await self._answer()
        await super().discard(run_id)

    async def _answer(self) -> None:
        self.calls += 1
        if self.state == "silent":
            await asyncio.Event().wait()
        if self.state == "down":
            raise LogError(details="x")


async def go_on() -> None:
    """What a run does when its log is gone and the response is its own."""


@pytest.fixture
def log() -> FarLog:
    return FarLog()


@pytest.fixture
async def writer(log: FarLog, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LogWriter]:
    monkeypatch.setattr("openresponses_server.store.writers._FIRST_PAUSE", 0.02)
    opened = LogWriter(log, "r", go_on, go_on)
    await opened.open()
    yield opened
    if opened._catching_up is not None:
        opened._catching_up.cancel()


async def logged(log: FarLog) -> bytes:
    return b"".join([each.data async for each in log.read("r")])


async def take(writer: LogWriter, first: int, last: int) -> float:
    """Append these one by one; the seconds that it took."""
    begun = asyncio.get_running_loop().time()
    for number in range(first, last + 1):
        await writer.written(frames(number, number))
    return asyncio.get_running_loop().time() - begun


async def test_what_is_appended_is_there_while_the_log_works(log: FarLog, writer: LogWriter) -> None:
    reader = log.read("r")
    for number in range(5):
        await writer.written(frames(number, number))
        assert await anext(reader) == frames(number, number)


@pytest.mark.parametrize("state", ["silent", "down"])
async def test_log_that_fails_holds_the_run_up_once(log: FarLog, writer: LogWriter, state: str) -> None:
    await take(writer, 0, 2)
    log.state = state
    assert await take(writer, 3, 3) < 2 * writers._TIMEOUT
    for first in range(4, 40, 4):  # over several of the tries that are made meanwhile
        assert await take(writer, first, first + 3) < 0.4  # less than one wait for the log
        await asyncio.sleep(0.05)
    assert log.calls > 5
    log.state = "up"
    await writer.close()
    assert await logged(log) == frames(0, 39).data


@pytest.mark.parametrize(
    ("state", "reasons"), [("silent", [None]), ("down", ["The event log can't be reached: x"])]
)
async def test_log_that_fails_is_a_warning(
    log: FarLog, monkeypatch: pytest.MonkeyPatch, state: str, reasons: list[str | None]
) -> None:
    monkeypatch.setattr(writers, "_TIMEOUT", 0.01)
    log.state = state
    writer = LogWriter(log, "r", go_on, go_on)
    writer.opened = True
    with capture_logs() as lines:
        await writer.give_up(keep=False)
    assert [line["log_level"] for line in lines] == ["warning"]
    assert [(line["event"], line["response_id"]) for line in lines] == [("event_log.failed", "r")]
    assert [line.get("reason") for line in lines] == reasons


async def test_log_in_this_process_is_not_waited_for() -> None:
    log = MemoryLog()
    writer = LogWriter(log, "r", go_on, go_on)
    await writer.open()
    for number in range(3):
        assert writer.append(frames(number, number)) is None
    assert log._logs["r"].window._frames[-1].last == 2


async def test_what_a_log_in_this_process_does_not_have_is_stored_before_it_is_sent() -> None:
    log, stored = MemoryLog(), 0

    async def store() -> None:
        nonlocal stored
        stored += 1

    writer = LogWriter(log, "r", go_on, store)
    await writer.open()
    await writer.written(frames(0, 2))
    await log.discard("r")
    for number in (3, 4):
        await writer.written(frames(number, number))
    assert stored == 2


async def test_what_is_not_known_to_be_there_is_appended_before_the_run_goes_on(
    log: FarLog, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FarLog, "_say", lambda _log, _run, _each, answer, failed: failed(answer))
    await take(writer, 0, 2)
    assert [each.last for each in log._logs["r"].window._frames] == [0, 1, 2]


async def test_answer_that_comes_too_late_is_not_for_what_comes_after(
    log: FarLog, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Callable[[], None]] = []
    monkeypatch.setattr("openresponses_server.store.writers._TIMEOUT", 0.05)
    monkeypatch.setattr(log, "_say", lambda _run, _each, answer, failed: late.append(lambda: failed(answer)))
    await writer.written(frames(0, 0))
    await until(lambda: not writer._failing)
    monkeypatch.setattr("openresponses_server.store.writers._TIMEOUT", 60.0)
    appending = asyncio.ensure_future(writer.written(frames(1, 1)))
    await until(lambda: len(late) == 2)
    late[0]()
    await asyncio.sleep(0)
    assert not appending.done()
    assert not writer._failing
    late[1]()
    await appending
    assert [each.last for each in log._logs["r"].window._frames] == [0, 1]


async def interrupted(log: FarLog, writer: LogWriter) -> None:
    """A run stops waiting for an append of its first two frames, and the log works again."""
    log.state = "silent"
    appending = asyncio.create_task(writer.written(frames(0, 1)))
    await asyncio.sleep(0)
    appending.cancel()
    await asyncio.wait([appending])
    log.state = "up"


async def test_interrupted_run_appends_what_may_not_be_there_once_more(
    log: FarLog, writer: LogWriter
) -> None:
    """In one piece with what comes behind it, since a log knows entries by their last event."""
    await interrupted(log, writer)
    await writer.written(frames(2, 3))
    assert [(each.first, each.last) for each in log._logs["r"].window._frames] == [(0, 3)]


async def test_end_of_an_interrupted_run_is_behind_what_may_not_be_there(
    log: FarLog, writer: LogWriter
) -> None:
    await interrupted(log, writer)
    await writer.close()
    assert await logged(log) == frames(0, 1).data


async def test_log_that_works_again_is_waited_for_again(log: FarLog, writer: LogWriter) -> None:
    log.state = "down"
    await take(writer, 0, 3)
    log.state = "up"
    reader = log.read("r")
    assert (await anext(reader)).last == 3
    await writer.written(frames(4, 4))
    assert (await anext(reader)).last == 4
    assert log._logs["r"].window._frames[-1].last == 4


async def test_failure_of_what_was_appended_again_changes_nothing(
    log: FarLog, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_TIMEOUT", 0.01)
    log.state = "silent"
    await take(writer, 0, 0)
    log.state = "up"
    await until(lambda: writer._catching_up is None)
    (fail,) = log.failures
    fail()
    assert writer._catching_up is None
    await writer.close()
    assert await logged(log) == frames(0, 0).data


async def test_end_does_not_wait_for_a_log_that_fails(log: FarLog, writer: LogWriter) -> None:
    log.state = "silent"
    await take(writer, 0, 0)
    begun = asyncio.get_running_loop().time()
    await writer.close()
    assert asyncio.get_running_loop().time() - begun < 0.4
    log.state = "up"
    assert await logged(log) == frames(0, 0).data


async def test_log_that_fails_for_good_is_given_up_after_the_end(
    log: FarLog, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openresponses_server.store.writers._LONGEST_PAUSE", 0.02)
    log.state = "down"
    await take(writer, 0, 3)
    await writer.close()
    await until(lambda: writer._catching_up is None)
    assert writer._waiting == []


async def test_s4_what_waits_for_a_log_is_bounded(
    log: FarLog, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openresponses_server.store.writers._MOST_WAITING", 10_000)
    log.state = "down"
    for number in range(100):
        await writer.written(frames(number, number, "x" * 1000))
        assert sum(len(each.data) for each in writer._waiting) <= 10_000
    log.state = "up"
    await writer.close()
    with pytest.raises(LogGap) as gap:
        await logged(log)
    assert 90 <= gap.value.found < 100
    rest = b"".join([each.data async for each in log.read("r", gap.value.found - 1)])
    assert rest == frames(gap.value.found, 99, "x" * 1000).data


async def test_s4_what_waited_is_appended_in_portions(log: FarLog, writer: LogWriter) -> None:
    log.state = "down"
    for number in range(30):
        await writer.written(frames(number, number, "x" * 10_000))
    log.state = "up"
    await until(lambda: writer._catching_up is None)
    whole = [len(each.data) for each in log._logs["r"].window._frames]
    assert max(whole) <= CHUNK_BYTES
    assert len(whole) < 10
    await writer.close()
    assert await logged(log) == frames(0, 29, "x" * 10_000).data


async def test_discarded_is_not_written_by_a_try_that_was_under_way(log: FarLog, writer: LogWriter) -> None:
    log.state = "down"
    await take(writer, 0, 3)
    await writer.give_up(keep=False)
    log.state = "up"
    calls = log.calls
    await until(lambda: writer._catching_up is None)
    await take(writer, 4, 6)
    assert log.calls == calls
