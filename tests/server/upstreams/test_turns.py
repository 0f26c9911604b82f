"""What a pass of the event loop spends on what has come from upstreams is bounded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import uvloop

from openresponses_server.http.client import body as turns_module
from openresponses_server.http.client.body import PIECE, FairScheduler
from openresponses_server.http.flow import Discard
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.dialects import CHAT
from openresponses_server.upstreams.http import HttpUpstream
from tests.support.serving import PATIENT
from tests.support.upstream import Script, ScriptedUpstream, chunk

FEW = 100


class Clock:
    """A loop whose passes are run by hand, and a processor whose time goes by when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spent = 0.0
        self.called: list[Callable[[], None]] = []
        self.done: list[str] = []
        monkeypatch.setattr(turns_module, "perf_counter", lambda: self.spent)
        monkeypatch.setattr(turns_module.asyncio, "get_running_loop", lambda: self)
        self.scheduler = FairScheduler()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.called.append(callback)

    def turn(self, name: str, seconds: float, again: int = 0) -> Callable[[], None]:
        """What takes so long, and waits again as long as much is left."""

        def take() -> None:
            self.done.append(name)
            self.spent += seconds
            if again:
                self.scheduler.schedule(PIECE, self.turn(name, seconds, again - 1))

        return take

    def run(self) -> list[str]:
        """One pass, and whose turn it was in it."""
        self.done.clear()
        called, self.called = self.called, []
        for callback in called:
            callback()
        return list(self.done)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_nobody_waits_before_a_share_is_spent(clock: Clock) -> None:
    assert not clock.scheduler.must_wait(PIECE)
    clock.spent += 0.0005
    assert not clock.scheduler.must_wait(PIECE)
    clock.spent += 0.002
    assert clock.scheduler.must_wait(PIECE)
    assert clock.scheduler.must_wait(FEW)
    clock.run()
    assert not clock.scheduler.must_wait(FEW)
    assert not clock.scheduler.must_wait(PIECE)


def test_a_crowd_with_a_few_tokens_each_is_noticed(clock: Clock) -> None:
    """One at a time costs no callback."""
    calls = 0
    while not clock.scheduler.must_wait(FEW):
        clock.spent += 0.0001
        calls += 1
        assert calls < 100
    assert calls > 20
    assert len(clock.called) == 1
    clock.run()
    assert not clock.scheduler.must_wait(FEW)
    assert not clock.called


def test_a_few_tokens_come_before_many_and_nobody_is_left_out(clock: Clock) -> None:
    for name in ("a", "b"):
        clock.scheduler.schedule(PIECE, clock.turn(name, 0.003, again=1))
    clock.scheduler.schedule(FEW, clock.turn("few", 0.0))
    assert clock.run() == ["few", "a"]
    for _ in range(3):
        clock.scheduler.schedule(FEW, clock.turn("slow", 0.003))
    assert clock.run() == ["slow", "b"]
    assert clock.run() == ["slow", "a"]
    assert clock.run() == ["slow", "b"]
    assert clock.run() == []


def test_who_comes_with_much_does_not_pass_those_who_wait(clock: Clock) -> None:
    clock.scheduler.schedule(PIECE, clock.turn("a", 0.0))
    assert clock.scheduler.must_wait(PIECE)
    assert not clock.scheduler.must_wait(FEW)
    assert clock.run() == ["a"]
    assert not clock.scheduler.must_wait(PIECE)


def test_a_turn_that_fails_keeps_nobody_from_his(clock: Clock) -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    clock.scheduler.schedule(FEW, broken)
    clock.scheduler.schedule(PIECE, clock.turn("a", 0.0))
    with pytest.raises(RuntimeError, match="broken"):
        clock.run()
    assert clock.run() == ["a"]


class Counted(Discard):
    """Counts bytes, for each piece of which it takes so many seconds of the processor."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.size = 0
        self._seconds = seconds

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        until = time.thread_time() + self._seconds
        while time.thread_time() < until:
            pass


@pytest.mark.parametrize("left_at", [None, 3])
def test_s4_those_who_have_much_do_not_hold_up_a_pass(
    monkeypatch: pytest.MonkeyPatch, left_at: int | None
) -> None:
    """What each pass takes of the processor, at most, while twelve answers come at once; also when they are
    left in the middle, after the first pieces."""

    def longest(upstream: HttpUpstream) -> float:
        passes: list[float] = []

        async def passing(over: asyncio.Event) -> None:
            while not over.is_set():
                before = time.thread_time()
                await asyncio.sleep(0)
                passes.append(time.thread_time() - before)

        async def read(number: int) -> int:
            counted = Counted(0.001)
            async with upstream.open(UpstreamRequest("/chat/completions", b'{"model":"m"}', "r")) as reply:
                reply.start(counted)
                if left_at is None or number % left_at:
                    await counted.ended.wait()
                else:
                    await asyncio.sleep(0.05)
            return counted.size

        async def everyone() -> list[int]:
            over = asyncio.Event()
            ticking = asyncio.create_task(passing(over))
            sizes = await asyncio.gather(*map(read, range(12)))
            over.set()
            await ticking
            await upstream.close()
            return sizes

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            sizes = runner.run(everyone())
        whole = sizes if left_at is None else [size for at, size in enumerate(sizes) if at % left_at]
        assert set(whole) == {len(body) * 30}
        return max(passes)

    body = b"".join(chunk(content="x" * 50) for _ in range(100))
    with ScriptedUpstream({"m": Script([body] * 30)}) as scripted:
        upstream = HttpUpstream("m", scripted.url, CHAT, PATIENT)
        bounded = min(longest(upstream) for _ in range(2))
        monkeypatch.setattr(turns_module, "_ITERATION_SECONDS", 60.0)
        assert longest(upstream) > 2 * bounded


async def test_a_turn_that_comes_after_the_end_leaves_the_connection_to_who_has_it_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection is another request's as soon as the answer on it has ended, before who read that has had
    his turn."""

    def late(_turns: FairScheduler, _size: int, turn: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(0.03, turn)

    monkeypatch.setattr(FairScheduler, "must_wait", lambda _turns, _size: True)
    monkeypatch.setattr(FairScheduler, "schedule", late)
    steps = [step for _ in range(4) for step in (chunk(content="x"), 0.05)]

    async def ask(upstream: HttpUpstream, begins: float) -> int:
        counted = Counted()
        await asyncio.sleep(begins)
        async with upstream.open(UpstreamRequest("/chat/completions", b'{"model":"m"}', "r")) as reply:
            reply.start(counted)
            await counted.ended.wait()
        return counted.size

    async def two(url: str, later: float) -> list[int]:
        """The second is asked when the first answer has ended, on its connection."""
        upstream = HttpUpstream("m", url, CHAT, PATIENT)
        sizes = await asyncio.gather(ask(upstream, 0.0), ask(upstream, later))
        await upstream.close()
        return sizes

    with ScriptedUpstream({"m": Script(steps)}) as scripted:
        results = await asyncio.gather(*(two(scripted.url, 0.2 + number * 0.005) for number in range(8)))
    assert {size for sizes in results for size in sizes} == {4 * len(chunk(content="x"))}


async def test_of_long_iterations_the_rest_gets_a_part_of_what_all_else_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a millisecond of each, however long they are, less would be translated than arrives."""
    now = 0.0
    monkeypatch.setattr(turns_module, "perf_counter", lambda: now)
    scheduler = FairScheduler()
    done: list[int] = []

    def translate() -> None:
        nonlocal now
        now += 0.0005
        done.append(1)

    for _ in range(400):
        scheduler.schedule(10, translate)
    counts = []
    for others in (0.0, 0.0, 0.1, 60.0):
        now += others
        before = len(done)
        await asyncio.sleep(0)
        counts.append(len(done) - before)
    assert counts == [pytest.approx(count, abs=2) for count in (2, 2, 50, 100)]
