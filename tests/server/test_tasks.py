"""Ending tasks, what takes too long, whose turn it is to work on a thread: no owner holds up another; and who
waits for one when the server stops."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from threading import Event

import pytest

from openresponses_server.errors import HttpError, shutting_down
from openresponses_server.limits.gate import Gate
from openresponses_server.settings import Limits
from openresponses_server.tasks import (
    OWNER,
    FairLimiter,
    ForeignExitError,
    WaitingThreads,
    end_tasks,
    in_time,
    jittered,
    on_thread,
    run_contained,
)
from tests.support.debug_mode import without_durations


def test_pauses_of_processes_differ_by_a_quarter_at_most() -> None:
    pauses = [jittered(100.0) for _ in range(1000)]
    assert 75.0 <= min(pauses) < 80.0
    assert 120.0 < max(pauses) <= 125.0


async def test_task_that_takes_a_cancellation_for_something_else_is_cancelled_again() -> None:
    swallowed = 0

    async def goes_on() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 2:
                    raise

    task = asyncio.create_task(goes_on())
    await asyncio.sleep(0)
    await end_tasks([task])
    assert task.cancelled()
    assert swallowed == 2


async def test_failure_of_a_task_that_is_ended_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    task = asyncio.create_task(fails())
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="broken"):
        await end_tasks([task])
    await end_tasks([])


async def test_work_that_waits_when_it_is_cancelled_is_cancelled_again() -> None:
    """As a database's driver does, which asks the server to stop a query."""
    cancelled = 0

    async def confirms() -> None:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                cancelled += 1
                raise

    with pytest.raises(TimeoutError):
        await in_time(confirms(), 0.01)
    assert cancelled == 2


async def test_work_in_time_returns_or_raises() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    assert await in_time(asyncio.sleep(0, "done"), 5) == "done"
    with pytest.raises(ValueError, match="broken"):
        await in_time(fails(), 5)


async def test_work_ends_with_whoever_waits_for_it() -> None:
    ended = asyncio.Event()

    async def goes_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(in_time(goes_on(), 60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


async def test_failure_of_work_that_was_cancelled_is_not_logged() -> None:
    """As when a connection is lost while whoever waits for it leaves."""
    logged: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context["message"]))

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("lost")

    waiting = asyncio.create_task(in_time(fails(), 60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    del waiting
    gc.collect()
    assert logged == []


async def taken(places: FairLimiter, owner: str, order: list[str]) -> None:
    await places.acquire(owner)
    order.append(owner)


async def waiting(places: FairLimiter, owners: str, order: list[str]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.ensure_future(taken(places, owner, order)) for owner in owners]
    await asyncio.sleep(0)
    return tasks


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_an_owner_has_one_place_and_the_others_have_theirs() -> None:
    async def work() -> list[str]:
        places, order = FairLimiter(2), list[str]()
        await waiting(places, "aaaab", order)
        await settled()
        assert order == ["a", "b"]  # what a has waiting does not stand before b
        tasks = await waiting(places, "cccd", order)
        places.release("b")
        await settled()
        assert order == ["a", "b", "c"]
        places.release("a")
        await settled()
        assert order == ["a", "b", "c", "a"]  # a has waited longest, c has a place
        places.release("c")
        await settled()
        assert order[4:] == ["d"]  # one of each in turn
        for task in tasks:
            task.cancel()
        return order

    asyncio.run(work())


def test_an_owner_may_have_several_places_and_no_more() -> None:
    async def work() -> None:
        places, order = FairLimiter(4, 2), list[str]()
        tasks = await waiting(places, "aaabb", order)
        await settled()
        assert sorted(order) == ["a", "a", "b", "b"]
        places.release("b")
        await settled()
        assert sorted(order) == ["a", "a", "b", "b"]
        places.release("a")
        await settled()
        assert order[4:] == ["a"]
        assert all(task.done() for task in tasks)

    asyncio.run(work())


RAISED = [
    SystemExit(0),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    BaseExceptionGroup("", [SystemExit()]),
]


@pytest.mark.parametrize("raised", RAISED, ids=repr)
async def test_what_code_of_others_raises_ends_nothing_else(raised: BaseException) -> None:
    async def fails() -> None:
        raise raised

    def fails_in_thread() -> None:
        raise raised

    name = type(raised).__name__
    with pytest.raises(ForeignExitError, match=name):
        await run_contained(fails())
    with pytest.raises(ForeignExitError, match=name):
        await WaitingThreads(1, 1, "test").run(fails_in_thread)
    with pytest.raises(ForeignExitError, match=name):
        await on_thread(fails_in_thread)


async def test_work_that_is_given_up_keeps_its_place_until_it_ends() -> None:
    threads, over = WaitingThreads(2, 1, "test"), threading.Event()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    token = OWNER.set("me")
    try:
        first = asyncio.create_task(threads.run(lambda: (loop.call_soon_threadsafe(begun.set), over.wait())))
        await begun.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(threads.run(over.is_set))
        OWNER.set("you")
        assert await threads.run(over.is_set) is False, "another's work does not wait for it"
        over.set()
        assert await second, "it began when the first had ended"
    finally:
        over.set()
        OWNER.reset(token)


async def test_what_runs_apart_is_cancelled_with_its_caller() -> None:
    ended = asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(run_contained(waits()))
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended.wait()


def test_without_keys_all_places_are_everybodys() -> None:
    async def work() -> None:
        places, order = FairLimiter(2), list[str]()
        await waiting(places, "", order)
        tasks = [asyncio.ensure_future(taken(places, "", order)) for _ in range(3)]
        await settled()
        assert order == ["", ""]
        places.release("")
        await settled()
        assert order == ["", "", ""]
        assert all(task.done() for task in tasks)

    asyncio.run(work())


def test_who_no_longer_waits_leaves_the_place_to_the_next() -> None:
    async def work() -> None:
        places, order = FairLimiter(1), list[str]()
        await waiting(places, "a", order)
        first, second, third = await waiting(places, "bcd", order)
        first.cancel()
        await settled()
        places.release("a")
        second.cancel()  # it has just been given the place
        await settled()
        assert order == ["a", "d"]
        assert third.done()
        places.release("d")
        await places.acquire("b")

    asyncio.run(work())


def test_work_of_one_owner_leaves_a_thread_to_another() -> None:
    async def work() -> None:
        begun, over = asyncio.Event(), Event()
        loop = asyncio.get_running_loop()

        def long() -> None:
            loop.call_soon_threadsafe(begun.set)
            over.wait(60)

        async def of(owner: str, what: object) -> None:
            OWNER.set(owner)
            await on_thread(long if what is long else lambda: None)

        tasks = [asyncio.create_task(of("greedy", long)) for _ in range(20)]
        await begun.wait()
        await asyncio.create_task(of("modest", None))
        assert not any(task.done() for task in tasks)
        over.set()
        await asyncio.gather(*tasks)

    asyncio.run(work())


def test_a_place_that_is_free_in_the_moment_of_a_cancellation_is_the_nexts() -> None:
    async def work() -> None:
        places, order = FairLimiter(1), list[str]()
        await waiting(places, "a", order)
        first, _ = await waiting(places, "bc", order)
        first.cancel()  # it stands in line still
        places.release("a")
        await settled()
        assert order == ["a", "c"]
        last = (await waiting(places, "b", order))[0]
        last.cancel()
        places.release("c")
        await waiting(places, "d", order)
        assert order == ["a", "c", "d"]

    asyncio.run(work())


# When the server stops: whose run has not begun is refused, and the threads finish alone.


class Held:
    """Work that is on a thread until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._over = Event()

    def __call__(self) -> str:
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self._over.wait(60)
        return "done"

    def let_go(self) -> None:
        self._over.set()


async def both_busy(held: Held) -> list[asyncio.Task[str]]:
    """Two, on all threads there are."""
    tasks = []
    for _ in range(2):
        tasks.append(asyncio.create_task(on_thread(held)))
        await held.begun.wait()
        held.begun.clear()
    return tasks


def started(work: Callable[[], str], *, begun: bool = False) -> asyncio.Task[str]:
    return asyncio.create_task(on_thread(work, begun=begun))


def is_refused(task: asyncio.Task[str]) -> bool:
    error = task.exception()
    return isinstance(error, HttpError) and (error.http_status, error.code) == (503, "service_unavailable")


def test_s8_what_waits_for_a_thread_is_refused_when_the_server_stops_and_not_when_it_leaves() -> None:
    async def work() -> None:
        blocker, gate = Held(), Gate(Limits())
        busy = await both_busy(blocker)
        waits, of_a_run = started(lambda: "new"), started(lambda: "begun", begun=True)
        await settled()
        gate.leave()
        await settled()
        assert not waits.done()
        gate.close()
        await settled()
        late = started(lambda: "late")
        await settled()
        assert is_refused(waits)
        assert is_refused(late)
        assert not of_a_run.done()
        blocker.let_go()
        assert await asyncio.gather(*busy, of_a_run) == ["done", "done", "begun"]
        assert await started(lambda: "begun", begun=True) == "begun"

    asyncio.run(work())


def test_s8_at_the_cut_nobody_waits_for_a_thread_and_its_place_is_free_when_it_has_finished() -> None:
    async def work() -> None:
        blocker, gate = Held(), Gate(Limits())
        tasks = [*await both_busy(blocker), started(lambda: "new")]
        await settled()
        gate.cut_off()
        await settled()
        assert [is_refused(task) for task in tasks] == [True, True, True]
        of_a_run = started(lambda: "begun", begun=True)
        await settled()
        assert not of_a_run.done()  # both threads are at work
        blocker.let_go()
        assert await of_a_run == "begun"

    asyncio.run(work())


def test_s8_what_a_run_that_has_begun_has_on_a_thread_is_finished_at_the_cut() -> None:
    async def work() -> None:
        blocker, gate = Held(), Gate(Limits())
        of_a_run = started(blocker, begun=True)
        await blocker.begun.wait()
        gate.cut_off()
        await settled()
        assert not of_a_run.done()
        blocker.let_go()
        assert await of_a_run == "done"

    asyncio.run(work())


def test_who_is_cancelled_leaves_its_thread_to_finish_alone() -> None:
    async def work() -> None:
        blocker = Held()
        busy = await both_busy(blocker)
        for task in busy:
            task.cancel()
        await settled()
        assert [task.cancelled() for task in busy] == [True, True]
        following = started(lambda: "next")
        await settled()
        assert not following.done()
        blocker.let_go()
        assert await following == "next"

    asyncio.run(work())


def test_s8_who_is_refused_and_cancelled_at_once_gives_back_no_place() -> None:
    async def work() -> None:
        places, order = FairLimiter(1), list[str]()
        await waiting(places, "a", order)
        refused = (await waiting(places, "b", order))[0]
        places.close(shutting_down)
        refused.cancel()
        await settled()
        assert refused.cancelled()
        of_a_run = asyncio.create_task(places.acquire("c", begun=True))
        await settled()
        assert not of_a_run.done()
        places.release("a")
        await of_a_run

    asyncio.run(work())


def test_a_place_for_which_the_system_has_no_thread_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def work() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            for _ in range(3):
                with pytest.raises(RuntimeError, match="new thread"):
                    await on_thread(lambda: None)
        assert await on_thread(lambda: "done") == "done"

    asyncio.run(work())


OUTLIVES = """
import asyncio, threading
from openresponses_server.tasks import on_thread
over = threading.Event()
async def work():
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    task = asyncio.create_task(on_thread(lambda: (loop.call_soon_threadsafe(begun.set), over.wait(60))))
    await begun.wait()
asyncio.run(work())
over.set()
"""


def test_a_thread_that_finishes_after_its_event_loop_says_nothing() -> None:
    ended = subprocess.run([sys.executable, "-c", OUTLIVES], capture_output=True)
    assert (ended.returncode, without_durations(ended.stderr)) == (0, b"")
