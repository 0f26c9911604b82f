"""The ends of a translation, and what counts towards its limit."""

import pytest

from openresponses_bridge.dialects.chat_completions import ChatOptions, Inbound
from openresponses_bridge.protocol.codec import encode
from openresponses_server.runs.exchange import Translation
from openresponses_server.settings import Limits
from tests.support.machines import machine
from tests.support.upstream import chunk

ONE = chunk(content="one")


def test_a_refused_delta_ends_the_response() -> None:
    started = machine()
    translation = Translation(started, Inbound(started, options=ChatOptions(think="off")))
    for _ in range(3):
        translation.feed(ONE)
    started.cancel()
    assert translation.feed(ONE) == []
    assert translation.is_complete


@pytest.mark.parametrize(
    "empty", [b":\n\n", b"\n\n", b"event: a\n\n", b"id:1\n\n", b'data: {"choices":[]}\n\n']
)
def test_what_gives_no_event_counts_as_more_than_its_bytes(empty: bytes) -> None:
    """A compressed stream of comments has millions of them in a few bytes, and each takes time."""
    started = machine()
    translation = Translation(started, Inbound(started), most=1_000_000)
    block, fed = (empty + b"\n\n") * 1000, 0
    while not translation.ended and fed < 50:
        translation.feed(block)
        fed += 1
    assert translation.failure is not None
    assert translation.failure.code == "upstream_output_too_long"
    assert 2 <= fed <= 12


def test_keep_alives_of_an_hour_are_no_output() -> None:
    started = machine()
    translation = Translation(started, Inbound(started), most=Limits().output_bytes)
    for _ in range(36_000):
        translation.feed(b": keep-alive\n\n")
    assert not translation.ended


@pytest.mark.parametrize(
    ("field", "objects", "code"),
    [
        ("tool_calls", 5_001, "upstream_invalid_response"),
        ("tool_calls", 100, None),
        ("logprobs", 20_000, None),
    ],
)
def test_a_frame_holds_the_loop_for_a_bounded_time(field: str, objects: int, code: str | None) -> None:
    """Each object in an array may be an item with several events, and a frame is translated at once."""
    calls = [
        {"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(objects)
    ]
    delta = {"tool_calls": calls} if field == "tool_calls" else {"content": "one"}
    choice = {"index": 0, "delta": delta, "logprobs": {"content": calls} if field == "logprobs" else None}
    started = machine()
    translation = Translation(started, Inbound(started))
    events = translation.feed(b"data: " + encode({"choices": [choice]}) + b"\n\n")
    assert (translation.failure.code if translation.failure else None) == code
    assert len(events) < 1_000
