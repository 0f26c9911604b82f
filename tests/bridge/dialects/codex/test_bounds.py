"""The memory of an inbound grows with its open items, not with the length of the turn."""

import gc
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

from openresponses_bridge import Diagnostics, ResponseStreamPhase
from openresponses_bridge.calls.aggregator import MOST_RECENT, BoundedDict, ToolCallAggregator
from openresponses_bridge.dialects.codex import Inbound
from tests.support.checked_inbound import CheckedInbound, Frame
from tests.support.codex import item, legacy, proxied


class Sink:
    """A machine that keeps nothing."""

    phase = ResponseStreamPhase.IN_PROGRESS

    def __init__(self) -> None:
        self.diagnostics = Diagnostics()

    def __getattr__(self, name: str) -> Callable[..., list[Any]]:
        return _nothing


def _nothing(*_: Any, **__: Any) -> list[Any]:
    return []


def kept(root: object) -> int:
    """How many objects are reached from this one."""
    seen: set[int] = set()
    open_ones = [root]
    while open_ones:
        each = open_ones.pop()
        if id(each) not in seen and not isinstance(each, type | ModuleType | FunctionType):
            seen.add(id(each))
            open_ones += gc.get_referents(each)
    return len(seen)


def calls(many: int) -> Iterator[Frame]:
    for n in range(many):
        call = {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": "find"}
        yield proxied("output_item.added", item=call)
        yield proxied("output_item.done", item=call | {"arguments": "{}"})


def messages(many: int) -> Iterator[Frame]:
    for n in range(many):
        message = {"type": "message", "id": f"msg_{n}", "phase": "commentary"}
        yield proxied("output_item.added", item=message)
        yield proxied("output_text.delta", item_id=f"msg_{n}", delta="Hi")
        if n % 2:
            yield proxied("output_item.done", item=message)


def searches(many: int) -> Iterator[Frame]:
    for n in range(many):
        yield proxied("output_item.added", item={"type": "web_search_call", "id": f"ws_{n}"})


def commands(many: int) -> Iterator[Frame]:
    for n in range(many):
        yield item("started", "commandExecution", f"cmd_{n}")
        yield item("completed", "commandExecution", f"cmd_{n}")
        yield item("completed", "agentMessage", f"msg_{n}", text="Hi")


def older(many: int) -> Iterator[Frame]:
    for n in range(many):
        yield legacy("exec_command_begin", call_id=f"cmd_{n}")
        yield legacy("exec_command_end", call_id=f"cmd_{n}")
        message = {"type": "AgentMessage", "id": f"msg_{n}", "text": "Hi"}
        yield legacy("item_completed", item=message)


def unknown(many: int) -> Iterator[Frame]:
    return ({"type": f"response.novel_{n}"} for n in range(many))


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("frames", "many"),
    [
        (calls, 10_000),
        pytest.param(calls, 100_000, marks=pytest.mark.slow),
        (messages, 4_000),
        (searches, 9_000),
        (commands, 4_000),
        (older, 4_000),
        (unknown, 7_000),
    ],
)
def test_what_is_kept_does_not_grow_with_the_turn(
    frames: Callable[[int], Iterator[Frame]], many: int
) -> None:
    inbound = Inbound(Sink())  # type: ignore[arg-type]
    most = 0
    for place, frame in enumerate(frames(many)):
        inbound.feed_frame(frame)
        if place == 2 * 3 * MOST_RECENT:
            most = kept(inbound)
    assert most < 12 * MOST_RECENT
    assert kept(inbound) <= most * 1.05


@pytest.mark.untraced
def test_finished_calls_leave_the_aggregator() -> None:
    aggregator = ToolCallAggregator()
    drained = 0
    for frame in calls(5_000):
        aggregator.ingest_delta(frame)
        drained += len(aggregator.drain_completed_calls())
    assert (drained, len(aggregator), aggregator.next_index) == (5_000, 0, 5_000)
    assert kept(aggregator) < 12 * MOST_RECENT


def test_recent_keeps_the_last_keys() -> None:
    recent: BoundedDict[int] = BoundedDict(2)
    for number, key in enumerate("abcb"):
        recent[key] = number
    assert recent == {"b": 3, "c": 2}


@pytest.mark.parametrize("again", [0, 1, MOST_RECENT + 9])
@pytest.mark.untraced
def test_what_the_end_lists_is_not_sent_again_however_long_ago_it_was(again: int) -> None:
    frames = list(calls(MOST_RECENT + 10))
    final = [frame["item"] for frame in frames[2 * again + 1 :: 2]]
    stream = CheckedInbound(Inbound, close=False)
    for frame in frames:
        stream.run.events += stream.inbound.feed_frame(frame)
    stream.run.events += stream.inbound.feed_frame(proxied("completed", response={"output": final}))
    assert len(stream.response.output) == MOST_RECENT + 10
    assert stream.status == "completed"
