"""Counts that can't be counts, where every upstream's usage passes."""

import pytest

from bridge import ResponseStreamStateMachine
from bridge.dialects import chat_completions, copilot
from bridge.protocol.usage import MOST_TOKENS, Usage
from tests.support.fed import Fed


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
        ("9", 0),
        (None, 0),
    ],
)
def test_each_count_is_within_its_bounds(given: object, taken: int) -> None:
    machine = ResponseStreamStateMachine("m")
    machine.start()
    machine.usage(Usage.of(given, 1, cached_tokens=given, reasoning_tokens=given, total_tokens=7))  # type: ignore[arg-type]
    machine.finish("stop")
    assert machine.snapshot.usage == Usage.of(
        taken, 1, cached_tokens=taken, reasoning_tokens=taken, total_tokens=7
    )
    repaired = [case.where for case in machine.diagnostics.of("repair")]
    assert repaired == (
        []
        if given == taken and type(given) is int
        else ["usage.input_tokens", "usage.cached_tokens", "usage.reasoning_tokens"]
    )


@pytest.mark.parametrize("digits", [b"1" + b"0" * 400, b"9" * 5000, b"1e400"])
def test_a_log_probability_that_is_no_number_loses_no_text(digits: bytes) -> None:
    logprobs = b'{"content":[{"token":"Hi","logprob":-%b}]}'
    said = b'{"choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":' + logprobs + b"}]}"
    chat = Fed(chat_completions.Inbound, [said % digits, b"[DONE]"])
    assert (chat.status, chat.response.output_text) == ("completed", "Hi")
    told = (
        b'{"text":"Hi","index":0,"delta":{"text":"Hi","logprobs":{"content":[{"token":"Hi","logprob":-%b}]}}}'
    )
    parts = Fed(copilot.Inbound, [told % digits, b'{"reason":"stop"}'])
    assert (parts.status, parts.response.output_text) == ("completed", "Hi")
