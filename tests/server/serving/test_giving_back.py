"""A process returns memory to the system once it is idle after a load, not during one."""

import pytest

from openresponses_server.serving import memory
from openresponses_server.serving.memory import MemoryTrimmer


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    times: list[int] = []
    monkeypatch.setattr(memory, "trim_memory", lambda: times.append(1))
    return times


def ticks(giving: MemoryTrimmer, requests: int, *, busy: bool = False, count: int = 100) -> None:
    for _ in range(count):
        giving.tick(requests, busy)


def test_memory_is_given_back_once_after_a_load(given: list[int]) -> None:
    giving = MemoryTrimmer()
    ticks(giving, 1_000, busy=True)
    assert given == []
    ticks(giving, 1_000)
    assert given == [1]
    ticks(giving, 2_000, busy=True)
    ticks(giving, 2_000)
    assert given == [1, 1]


def test_it_is_given_back_again_when_nothing_is_kept_for_further_requests(given: list[int]) -> None:
    giving = MemoryTrimmer()
    ticks(giving, 1_000, busy=True)
    ticks(giving, 1_000, count=250)
    assert given == [1]
    ticks(giving, 1_000, count=1_000)
    assert given == [1, 1]
    ticks(giving, 1_010, busy=True)
    ticks(giving, 1_010, count=1_000)
    assert given == [1, 1]


def test_a_few_requests_are_not_worth_it(given: list[int]) -> None:
    giving = MemoryTrimmer()
    for requests in range(10):
        ticks(giving, requests)
    assert given == []


def test_what_was_not_worth_it_adds_up(given: list[int]) -> None:
    giving = MemoryTrimmer()
    for requests in range(0, 60, 10):
        giving.tick(requests, busy=True)
        ticks(giving, requests)
    assert given == [1]
