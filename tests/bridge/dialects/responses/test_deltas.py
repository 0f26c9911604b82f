"""Deltas of text and of arguments: which item each goes to, and what is noted of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.emitter.stopping import StopFilter
from openresponses_bridge.protocol.codec import encode
from tests.support.chat import new_machine
from tests.support.damaged_responses import (
    Json,
    added,
    argue,
    call,
    created,
    done,
    ended,
    message,
    say,
    whole,
)
from tests.support.machines import WIRES

TOKEN = {"token": "x", "logprob": -0.1, "bytes": [120], "top_logprobs": []}
TEXT = st.sampled_from(["", "Hi", " ", "é", "\ud83d", "\ude42", "stop"])
ID = st.sampled_from(["msg_u", "fc_u", "a", "b", ""])
AT = st.integers(0, 1)
BESIDE = st.fixed_dictionaries(
    {},
    optional={
        "logprobs": st.sampled_from([[], [TOKEN], None, {}]),
        "obfuscation": st.sampled_from(["xx", 7, None]),
        "content_index": st.integers(0, 1),
        "sequence_number": st.integers(-1, 4),
        "output_index": st.sampled_from([0, "0", None]),
        "unknown": st.just(1),
    },
)
EVENT = st.one_of(
    st.builds(say, TEXT, AT, ID),
    st.builds(lambda text, at, beside: say(text, at) | beside, TEXT, AT, BESIDE),
    st.builds(argue, TEXT, AT, ID),
    st.builds(argue, st.sampled_from(["{", "}", '{"a":1}', ""]), AT),
    st.builds(lambda text, at: {**argue(text, at), "obfuscation": "x"}, TEXT, AT),
    st.builds(lambda text, at, id: whole("output_text", "text", text, at, id), TEXT, AT, ID),
    st.builds(lambda text, at, id: whole("function_call_arguments", "arguments", text, at, id), TEXT, AT, ID),
    st.builds(lambda at, id: added(message(id=id), at), AT, ID),
    st.builds(lambda at, id, text: added(call(text, id=id), at), AT, ID, TEXT),
    st.builds(lambda at, id, text: done(message(text, id=id), at), AT, ID, TEXT),
    st.builds(lambda at, id, text: done(call(text, id=id), at), AT, ID, TEXT),
    st.sampled_from([created(), ended(), ended("failed"), {"type": "x.y"}, {"type": "x:y"}]),
)


def numbered(events: list[Json]) -> list[bytes]:
    return [encode({"sequence_number": at} | event) for at, event in enumerate(events)]


@given(st.lists(EVENT, max_size=12), st.sampled_from(WIRES), st.sampled_from(["", "stop"]))
def test_any_stream_leaves_valid_and_adds_up(events: list[Json], wire: Any, stop: str) -> None:
    machine = new_machine(wire=wire)
    inbound = Inbound(StopFilter(machine, (stop,)) if stop else machine)
    sent = [event for frame in numbered(events) for event in inbound.feed(frame)]
    sent += inbound.close()
    validator, accumulator = StreamValidator(wire), ResponseAccumulator()
    for event in sent:
        assert not validator.feed(event)
        accumulator.feed(event)
    if sent:
        assert accumulator.response == machine.snapshot


BEGUN = "repair: response.output_item.added: missing, added"
RENAMED = "repair: item_id: changed within an item, the index was followed"
TWICE = "repair: output_index: used for two items, renumbered"
BY_ID = "output_index: names another item, found by its id"
OF_TEXT = f"repair: response.output_text.delta {BY_ID}"
OF_CALL = f"repair: response.function_call_arguments.delta {BY_ID}"
# the events → the deltas that leave, each after its output index, and the notes
STREAMS: dict[str, tuple[list[Json], list[str], list[str]]] = {
    "text": ([say("a"), say("b", logprobs=[]), say("c", obfuscation="xx")], ["0a", "0b", "0c"], [BEGUN]),
    "ids that rotate": (
        [say("a"), say("b", id="x"), say("c", id="y"), say("d")],
        ["0a", "0b", "0c", "0d"],
        [BEGUN, f"{RENAMED} (×2)"],
    ),
    "arguments": ([added(call()), argue("{"), argue("}")], ["0{", "0}"], []),
    "arguments, ids that rotate": (
        [added(call()), argue("{"), argue("1", id="x"), argue("}", id="y")],
        ["0{", "01", "0}"],
        [f"{RENAMED} (×2)"],
    ),
    "log probabilities": ([say("a"), say("b", logprobs=[TOKEN])], ["0a", "0b"], [BEGUN]),
    "another part": ([say("a"), say("b", content_index=1)], ["0a", "0b"], [BEGUN]),
    "another item": ([say("a"), say("b", 1)], ["0a", "0b"], [BEGUN, OF_TEXT]),
    "another item's id": (
        [say("a"), added(message(id="b"), 1), say("b", id="b")],
        ["0a", "1b"],
        [BEGUN, OF_TEXT],
    ),
    "an id of nothing": (
        [say("a"), say("b", id="b"), say("", id="c"), say("d", id="")],
        ["0a", "0b", "0d"],
        [BEGUN, RENAMED],
    ),
    "another item at the index": (
        [added(message()), say("a"), added(message(id="b")), say("b", id="c")],
        ["0a", "1b"],
        [TWICE, RENAMED],
    ),
    "after the end": (
        [say("a"), ended(), say("b"), say("c", id="c")],
        ["0a"],
        [BEGUN, "ignored: frame: came after the end (×2)"],
    ),
    "numbers that fall": (
        [say("a"), say("b", sequence_number=0), say("c")],
        ["0a", "0b", "0c"],
        [
            BEGUN,
            "repair: sequence_number: does not increase, renumbered",
            "repair: sequence_number: has gaps, renumbered",
        ],
    ),
    "arguments before their call": (
        [argue("{"), added(call("{}")), argue("1")],
        ["0{", "0}1"],
        [
            BEGUN,
            "repair: response.output_item.added: came after the item's first text",
            "repair: tool_call.arguments: they came again from their beginning, the rest was added",
        ],
    ),
    "another call's id": (
        [added(call()), argue("{"), added(call(id="b"), 1), argue("{", id="b")],
        ["0{", "1{"],
        ["repair: tool_call.id: given to two calls, made unique", OF_CALL],
    ),
    "arguments for a message": (
        [added(call()), argue("{"), added(message()), argue("}")],
        ["0{", "0}"],
        [TWICE, OF_CALL],
    ),
    "arguments of no length": ([added(call()), argue("{"), argue(""), argue("", id="x")], ["0{"], [RENAMED]),
    "arguments after the call": (
        [done(call("{}")), argue("{"), argue("}", id="x")],
        ["0{}"],
        [
            BEGUN,
            "repair: call done: had more than its deltas, the rest was sent",
            "loss: tool_call.arguments: came after the call had ended (×2)",
            RENAMED,
        ],
    ),
}
FILLED = "repair: response: required fields missing, filled"


@pytest.mark.parametrize(("events", "deltas", "notes"), STREAMS.values(), ids=STREAMS)
def test_each_delta_goes_to_its_item(events: list[Json], deltas: list[str], notes: list[str]) -> None:
    machine = new_machine()
    inbound = Inbound(machine)
    sent = [event for frame in numbered([created(), *events]) for event in inbound.feed(frame)]
    delta_events: list[Any] = [event for event in sent if event.type.endswith(".delta")]
    assert [f"{event.output_index}{event.delta}" for event in delta_events] == deltas
    assert [str(each) for each in machine.diagnostics if not str(each).startswith(FILLED)] == notes
