"""Usage of any upstream with counts that are out of bounds or contradict each other."""

import pytest

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.dialects import chat_completions, copilot
from openresponses_bridge.dialects.base import counted as foreign
from openresponses_bridge.protocol.usage import MOST_TOKENS, Usage
from tests.support.checked_inbound import CheckedInbound

ALL = Usage.of(3, 2, cached_tokens=3, reasoning_tokens=2)
ALL_THREE = ["usage.input_tokens", "usage.cached_tokens", "usage.total_tokens"]


def counted(given: Usage) -> tuple[Usage | None, list[str]]:
    """The usage of a response that was given these counts, and which were put right."""
    machine = ResponseStreamStateMachine("m")
    machine.start()
    machine.usage(foreign(given, machine.diagnostics))
    machine.finish("stop")
    return machine.snapshot.usage, [case.where for case in machine.diagnostics.of("repair")]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (0, 0),
        (MOST_TOKENS, MOST_TOKENS),
        (MOST_TOKENS + 1, MOST_TOKENS),
        (10**400, MOST_TOKENS),
        (-1, 0),
        (-(10**400), 0),
        (1e300, MOST_TOKENS),
        (1.5, 0),
        (True, 0),
        ("9", 9),
        ("-9", 0),
        ("nine", 0),
        (None, 0),
    ],
)
def test_each_count_is_within_its_bounds(given: object, taken: int) -> None:
    sound = type(given) is int and given == taken
    total = taken * 2
    counts = Usage.of(given, given, cached_tokens=given, reasoning_tokens=given, total_tokens=total)  # type: ignore[arg-type]
    usage, repaired = counted(counts)
    assert usage == Usage.of(taken, taken, cached_tokens=taken, reasoning_tokens=taken)
    names = ["input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"]
    assert repaired == ([] if sound else [f"usage.{name}" for name in names])


@pytest.mark.parametrize(
    ("given", "taken", "where"),
    [
        (Usage.of(3, 2), Usage.of(3, 2), []),
        (ALL, ALL, []),
        (Usage.of(3, 2, total_tokens=9), Usage.of(3, 2), ["usage.total_tokens"]),
        (Usage.of(3, 2, total_tokens=0), Usage.of(3, 2), ["usage.total_tokens"]),
        (Usage.of(3, 2, total_tokens=5.0), Usage.of(3, 2), ["usage.total_tokens"]),  # type: ignore[arg-type]
        (Usage.of(3, 2, cached_tokens=4), Usage.of(3, 2, cached_tokens=3), ["usage.cached_tokens"]),
        (Usage.of(3, 2, reasoning_tokens=9), Usage.of(3, 2, reasoning_tokens=2), ["usage.reasoning_tokens"]),
        (Usage.of(-3, 2, cached_tokens=1), Usage.of(0, 2), ALL_THREE),
    ],
)
def test_counts_agree_with_each_other(given: Usage, taken: Usage, where: list[str]) -> None:
    usage, repaired = counted(given)
    assert (usage, repaired) == (taken, where)
    assert counted(taken) == (taken, [])


@pytest.mark.parametrize("digits", [b"1" + b"0" * 400, b"9" * 5000, b"1e400"])
def test_a_log_probability_that_is_no_number_loses_no_text(digits: bytes) -> None:
    logprobs = b'{"content":[{"token":"Hi","logprob":-%b}]}'
    template = b'{"choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":' + logprobs + b"}]}"
    chat = CheckedInbound(chat_completions.Inbound, [template % digits, b"[DONE]"])
    assert (chat.status, chat.response.output_text) == ("completed", "Hi")
    sent = (
        b'{"text":"Hi","index":0,"delta":{"text":"Hi","logprobs":{"content":[{"token":"Hi","logprob":-%b}]}}}'
    )
    parts = CheckedInbound(copilot.Inbound, [sent % digits, b'{"reason":"stop"}'])
    assert (parts.status, parts.response.output_text) == ("completed", "Hi")
