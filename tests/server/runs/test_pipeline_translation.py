"""What ends a translation, and what counts against its limit."""

import pytest

from openresponses_bridge.dialects.chat_completions import ChatOptions, Inbound
from openresponses_server.runs.pipeline import Translation
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
