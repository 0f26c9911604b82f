"""Whatever a peer sends: nothing raises, every part can be encoded, and the cost is linear in the input (law
E12)."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.decoder import (
    PartDecoder,
    ResponseAccumulator,
    encode_part,
    encode_parts,
)
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.codec import encode, event_from
from openresponses_bridge.protocol.events import Event
from tests.support.parts import decode_part
from tests.support.scripts import Script, everything
from tests.support.vscode_parts import (
    Decoded,
    Raw,
    added,
    completed,
    created,
    done,
    function,
    message,
    output_text,
    reasoning,
)

CUSTOM = Script().custom_call("a", "b").finish()[2:]
EVENTS: list[Raw] = [
    *everything(),
    *CUSTOM,
    {"type": "error", "message": "x"},
    added(function(0, "{")),
    done(function(0, "[1]", call_id="call_1")),
    done({"type": "image_generation_call", "id": "ig", "result": "eA=="}),
    done(message(output_text("\ud83d"))),
    done(reasoning("\ud83d", encrypted_content="x")),
    completed(function(0, '"\\ud83d"'), status="incomplete"),
]
junk = (
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.just([{}])
    | st.just({"type": "x"})
    | st.just("\ud83d")
)


@st.composite
def spoiled(draw: st.DrawFn) -> list[Raw]:
    """Events in any order, with fields missing or of another kind, one level down too."""
    events: list[Raw] = []
    for raw in draw(st.lists(st.sampled_from(EVENTS), max_size=25)):
        event: dict[str, Any] = dict(raw)
        for name in draw(st.lists(st.sampled_from(sorted(event)), max_size=2)):
            inner = event.get(name)
            if isinstance(inner, dict) and inner and draw(st.booleans()):
                event[name] = inner | {draw(st.sampled_from(sorted(inner))): draw(junk)}
            elif name != "type":
                event[name] = draw(junk)
        events.append(event)
    return events


@given(spoiled(), st.sampled_from(["part", "text", "drop"]), st.booleans())
def test_nothing_that_a_peer_sends_raises(events: list[Raw], thinking: Any, flag: bool) -> None:
    decoder = PartDecoder(
        thinking,
        include_encrypted_thinking=flag,
        custom_tools=flag,
        paragraph_breaks=flag,
        max_argument_bytes=9,
    )
    accumulator = ResponseAccumulator()
    parts = []
    for raw in events:
        event = event_from(raw)
        parts += decoder.feed(event)
        accumulator.feed(event)
        encode(accumulator.response)
    parts += decoder.close()
    assert decoder.result.finish_reason is not None
    assert [decode_part(encode_part(part)) for part in parts] == parts


def text_stream(deltas: int) -> list[Event]:
    return [ev.OutputTextDelta(n, "msg_0", 0, 0, "token ") for n in range(deltas)]


def call_stream(deltas: int) -> list[Event]:
    return [ev.FunctionCallArgumentsDelta(n, "fc_0", 0, "token ") for n in range(deltas)]


def item_stream(items: int) -> list[Event]:
    finished = message(output_text("a"), id="")
    whole = event_from(done(finished))
    assert isinstance(whole, ev.OutputItemDone)
    return [ev.OutputItemDone(n, n, whole.item) for n in range(items)]


def seconds(make: Any, events: list[Event]) -> float:
    best = float("inf")
    for _ in range(3):
        feed = make().feed
        begun = time.perf_counter()
        for event in events:
            feed(event)
        best = min(best, time.perf_counter() - begun)
    return best


@pytest.mark.bench
@pytest.mark.parametrize("stream", [text_stream, call_stream, item_stream])
@pytest.mark.parametrize("make", [ResponseAccumulator, lambda: PartDecoder(max_argument_bytes=10**9)])
def test_e12_the_cost_of_an_event_does_not_grow(stream: Any, make: Any) -> None:
    few, many = (seconds(make, stream(count)) / count for count in (2_000, 100_000))
    assert many < 5 * few, f"{few * 1e9:.0f} ns an event at 2,000, {many * 1e9:.0f} at 100,000"


def test_half_a_surrogate_pair_in_a_hosted_item_with_an_image_is_no_obstacle() -> None:
    half = "a\ud800b"
    image = {"type": "image_generation_call", "id": half, "result": "aGk=", "output_format": half, half: half}
    decoded = Decoded([created(), done(image), done({**image, "id": half * 2, "result": half}), completed()])
    assert decoded.data("image/a\ufffdb") == [b"hi"]
    assert encode_parts(decoded.parts)
    assert decoded.notes("loss") == {"image_generation_call.result": "not base64, not shown"}
