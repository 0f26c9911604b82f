"""Law S8: what all keys and each one may have at once, and whose turn it is."""

import asyncio
import contextlib

import pytest

from openresponses_server.errors import HttpError
from openresponses_server.limits.gate import Gate
from openresponses_server.settings import Limits
from tests.support.waiting import until

KINDS = {
    "runs": ("concurrent", "too_many_concurrent_requests"),
    "waiting": ("background", "too_many_background_requests"),
    "readers": ("readers", "too_many_readers"),
}


def gate_with(kind: str, total: int, per_key: int) -> Gate:
    name = KINDS[kind][0]
    return Gate(Limits(**{name: total, f"{name}_per_key": per_key}))


@pytest.mark.parametrize("kind", KINDS)
def test_s8_one_key_does_not_starve_the_others(kind: str) -> None:
    limit = getattr(gate_with(kind, total=5, per_key=2), kind)
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(limit.held("greedy"))
        with pytest.raises(HttpError) as refused:
            stack.enter_context(limit.held("greedy"))
        assert (refused.value.http_status, refused.value.code) == (429, KINDS[kind][1])
        assert refused.value.headers == {"retry-after": "1"}
        assert "One API key may have at most 2" in refused.value.message
        for _ in range(2):
            stack.enter_context(limit.held("modest"))
        stack.enter_context(limit.held("third"))
        with pytest.raises(HttpError, match="The server has at most 5"):
            stack.enter_context(limit.held("fourth"))
        assert (limit.count, limit.of("greedy"), limit.of("third")) == (5, 2, 1)
    assert (limit.count, limit.of("greedy")) == (0, 0)


def test_s8_without_keys_only_the_sum_counts() -> None:
    limit = gate_with("runs", total=4, per_key=1).runs
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(limit.held(""))
        assert limit.full
        assert not limit.may_have("")


def test_s8_what_is_counted_leaves_nothing_behind() -> None:
    limit = gate_with("readers", total=5, per_key=5).readers
    for number in range(1000):
        with limit.held(f"key-{number}"):
            pass
    assert limit._held == {}


class Line:
    """Runs that wait at a gate, and the order in which they got their places."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.order: list[str] = []
        self.ends = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    def wait(self, owner: str, name: str | None = None) -> asyncio.Task[None]:
        async def run() -> None:
            async with self.gate.slot(owner, waits=True):
                self.order.append(name or owner)
                await self.ends.wait()

        self.tasks.append(asyncio.create_task(run()))
        return self.tasks[-1]

    async def all_end(self) -> None:
        self.ends.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_s8_a_long_line_of_one_key_holds_nobody_else_up() -> None:
    line = Line(Gate(Limits(concurrent=1)))
    async with line.gate.slot("greedy", waits=False):
        for _ in range(2000):
            line.wait("greedy")
        await asyncio.sleep(0)
        line.wait("modest")
        line.wait("third")
        await asyncio.sleep(0)
        assert line.order == []
    line.ends.set()
    await until(lambda: "third" in line.order)
    assert line.order.index("modest") <= 1
    assert line.order.index("third") <= 2
    await line.all_end()
    assert len(line.order) == 2002
    assert line.gate.running == 0


async def test_s8_those_of_one_key_keep_their_order() -> None:
    line = Line(Gate(Limits(concurrent=1)))
    line.ends.set()
    async with line.gate.slot("", waits=False):
        for number in range(20):
            line.wait("", str(number))
        await asyncio.sleep(0)
    await line.all_end()
    assert line.order == [str(number) for number in range(20)]


async def test_s8_a_key_at_its_limit_is_passed_over() -> None:
    line = Line(Gate(Limits(concurrent=3, concurrent_per_key=2)))
    for _ in range(5):
        line.wait("greedy")
    await asyncio.sleep(0)
    assert line.order == ["greedy", "greedy"]
    line.wait("modest")
    await asyncio.sleep(0)
    assert line.order == ["greedy", "greedy", "modest"]
    await line.all_end()
    assert line.gate.running == 0


async def test_s8_who_stops_waiting_leaves_the_line() -> None:
    line = Line(Gate(Limits(concurrent=1)))
    async with line.gate.slot("a", waits=False):
        storm = [line.wait("a") for _ in range(2000)]
        await asyncio.sleep(0)
        for task in reversed(storm):
            task.cancel()
        await asyncio.wait(storm)
        assert line.gate._queue == {}
        line.wait("a")
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert line.order == ["a"]
    await line.all_end()


async def test_s8_who_stops_in_the_moment_of_its_turn_gives_its_place_on() -> None:
    line = Line(Gate(Limits(concurrent=1)))
    async with line.gate.slot("a", waits=False):
        first = line.wait("a", "first")
        line.wait("a", "second")
        await asyncio.sleep(0)
    first.cancel()  # its place is given to it, and it has not run since
    await until(lambda: line.order == ["second"])
    await line.all_end()
    assert line.gate.running == 0


@pytest.mark.parametrize("waits", [True, False], ids=["queued", "at once"])
async def test_s8_who_stops_waiting_as_another_ends_takes_nothing_from_it(*, waits: bool) -> None:
    """It is cancelled, and has not run since, when the place is free."""
    line = Line(Gate(Limits(concurrent=1)))
    async with line.gate.slot("a", waits=waits):
        cancelled = line.wait("a", "cancelled")
        line.wait("b", "next")
        await asyncio.sleep(0)
        cancelled.cancel()
    await until(lambda: line.order == ["next"])
    assert cancelled.cancelled()
    await line.all_end()
    assert (line.gate.running, line.gate._queue) == (0, {})


async def test_s8_what_waits_gets_its_turn_while_the_server_leaves_and_not_when_the_rest_is_cut_off() -> None:
    """What another worker can make has gone there by then."""
    line = Line(Gate(Limits(concurrent=1)))
    async with line.gate.slot("a", waits=False):
        line.wait("a")
        await asyncio.sleep(0)
        line.gate.close()
    await until(lambda: line.order == ["a"])
    line.wait("b")
    await asyncio.sleep(0)
    line.gate.cut_off()
    line.ends.set()
    line.wait("c")
    await asyncio.sleep(0.05)
    assert (line.order, line.gate.running) == (["a"], 0)
    for task in line.tasks:
        task.cancel()
    await line.all_end()


async def test_s8_the_rest_is_cut_off_while_some_of_it_is_ending_by_itself() -> None:
    """A response that is cancelled just then does not keep the server from cutting off the others."""
    gate = Gate(Limits())
    begun: list[int] = []

    async def make(number: int) -> None:
        async with asyncio.timeout(None) as deadline:
            gate.deadlines.add(deadline)
            begun.append(number)
            try:
                if number == 0:
                    deadline.reschedule(asyncio.get_running_loop().time())
                await asyncio.Event().wait()
            finally:
                if number == 0:
                    await until(lambda: len(begun) == 3)
                    gate.cut_off()
                gate.deadlines.discard(deadline)

    making = [asyncio.create_task(make(number)) for number in range(3)]
    with pytest.raises(TimeoutError):
        await asyncio.gather(*making)
    await asyncio.wait(making)
    assert [type(each.exception()) for each in making] == [TimeoutError] * 3
