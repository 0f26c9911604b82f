"""Random messages: anthropic → events → anthropic is the identity, on both wires, streamed and whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import message as whole_message
from openresponses_bridge.seal import Sealer
from tests.support.anthropic import CheckedAnthropic, add_up
from tests.support.anthropic_strategies import messages, streams
from tests.support.machines import WIRES, plain
from tests.support.scale import with_many_examples


def complete(message, frames=()):
    """Whether every call is whole: a limit cuts one that was streamed no arguments, not even `{}`, and one
    that has none in a message given whole."""
    limited = message["stop_reason"] in ("max_tokens", "refusal")
    last = message["content"][-1:]
    if not (limited and last and last[0]["type"] == "tool_use"):
        return True
    if not frames:
        return bool(last[0]["input"])
    deltas = [json.loads(frame).get("delta", {}) for frame in frames]
    begun = max(at for at, frame in enumerate(frames) if json.loads(frame)["type"] == "content_block_start")
    return any(delta.get("partial_json") for delta in deltas[begun:])


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("key", [None, b"k" * 32], ids=["plain", "sealed"])
@given(made=streams())
def test_anthropic_to_events_to_anthropic_is_the_identity(wire, key, made):
    message, frames = made
    fed = CheckedAnthropic(frames, wire=wire, sealer=Sealer(key)).close()
    back = add_up(fed.chunks())
    assert {name: back[name] for name in message} == message
    assert fed.notes("loss") == []


@given(made=streams())
def test_the_message_that_is_not_streamed_equals_the_streamed_one(made):
    message, frames = made
    fed = CheckedAnthropic(frames, wire="openai").close()
    lost = Diagnostics()
    whole = whole_message(fed.response, fed.sealer, diagnostics=lost)
    streamed = add_up(fed.chunks())
    if not complete(message, frames):
        assert [case.where for case in lost] == ["item.function_call"]
        streamed["content"].pop()
    assert whole == streamed


@given(message=messages())
def test_a_message_given_whole_is_the_same_response_as_streamed(message):
    body = json.dumps({"type": "message", "id": "msg_1", "role": "assistant", **message}).encode()
    fed = CheckedAnthropic([body]).close()
    back = add_up(fed.chunks())
    if complete(message):
        assert {name: back[name] for name in message} == message


@given(made=streams())
def test_the_same_frames_give_the_same_events(made):
    _, frames = made
    first, second = CheckedAnthropic(frames).close(), CheckedAnthropic(frames).close()
    assert [plain(event) for event in first.events] == [plain(event) for event in second.events]


@given(made=streams())
def test_a_stream_cut_anywhere_keeps_the_laws(made):
    _, frames = made
    for length in range(len(frames) - 2):
        assert CheckedAnthropic(frames[:length]).close().response.status == "failed"


test_many_anthropic_streams = with_many_examples(
    test_anthropic_to_events_to_anthropic_is_the_identity,
    wire=st.sampled_from(WIRES),
    key=st.sampled_from([None, b"k" * 32]),
    made=streams(),
)
