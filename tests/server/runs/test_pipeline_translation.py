"""A read that is one frame like the last is taken whole, and says what its frame says."""

import pytest

from openresponses_bridge.dialects.chat_completions import Inbound
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.sse import SSEDecoder
from openresponses_server.runs.pipeline import Translation
from openresponses_server.settings import Limits
from tests.support.machines import machine
from tests.support.upstream import call, chunk, frame

ONE = chunk(content="one")
ODD: dict[str, bytes] = {
    "alike": chunk(content="two"),
    "escaped": chunk(content='\n"\\\u00e9\U0001f600'),
    "empty": chunk(content=""),
    "two frames": chunk(content="two") + chunk(content="three"),
    "a frame and a part": chunk(content="two") + chunk(content="three")[:40],
    "a part": ONE[:-1],
    "half a frame end": ONE[:-1] + b"\r",
    "CRLF": chunk(content="two").replace(b"\n", b"\r\n"),
    "a comment before": b": wait\n\n" + ONE,
    "a name before": b"event: x\n" + ONE,
    "a line end in the string": ONE.replace(b"one", b"o\n\ne"),
    "no string": ONE.replace(b'"one"', b"1"),
    "half a pair": ONE.replace(b"one", b"\\ud83d"),
    "reasoning": chunk(reasoning_content="hm"),
    "a call": call(0, "", "f", "call_1"),
    "usage": frame(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
    "the end": chunk("stop") + b"data: [DONE]\n\n",
    "an error": frame(error={"message": "no", "code": "x"}),
}
ENDS = ("the end", "an error", "a line end in the string")


def read(pieces: list[bytes]) -> tuple[bytes, bool]:
    """The events of these reads, and whether the last one was the end."""
    started = machine()
    translation = Translation(started, Inbound(started, think_tags=False))
    events = [event for piece in pieces for event in translation.feed(piece)]
    over = translation.is_complete
    return encode_sse(events + translation.end()), over


@pytest.mark.parametrize("name", ODD)
def test_whatever_comes_between_alike_frames_is_read_as_its_frames(name: str) -> None:
    reads = [ONE, ONE, ONE, ODD[name], ONE, ONE]
    bytewise = [bytes([byte]) for each in reads for byte in each]
    assert read(reads)[0] == read(bytewise)[0]
    assert read(reads[:4])[1] == (name in ENDS)


def test_no_frame_is_looked_for_in_a_read_like_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    started = machine()
    translation = Translation(started, Inbound(started, think_tags=False))
    for _ in range(3):
        translation.feed(ONE)
    with monkeypatch.context() as patched:
        patched.setattr(SSEDecoder, "feed", None)
        for word in ("two", "three", "\n"):
            (event,) = translation.feed(chunk(content=word))
            assert b'"delta":' in encode_sse([event])
    assert started.snapshot.output_text == "oneoneonetwothree\n"


def test_a_refused_delta_ends_the_response() -> None:
    started = machine()
    translation = Translation(started, Inbound(started, think_tags=False))
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
