"""Streams of our own machine pass through the dialect unchanged, event by event, since they need no repair.

The exceptions: a part without a word beside parts that have some is left out (generated parts hold
text), since only its own end event shows it; a whole item that is incomplete in the midst of others
(generated ones are whole), which the protocol forbids; arguments of a function that don't begin as an object
(generated ones do) are held until they are complete; and the end of a cut call is sent with the end of the
response, since an incomplete item must be the last one.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.dialects.responses import Inbound, Outbound
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import (
    CreateResponse,
    JsonSchemaFormatParam,
    ReasoningOptions,
    TextParam,
)
from openresponses_bridge.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool
from openresponses_bridge.protocol.unknown import UnknownTool
from tests.support.machines import CLOCK, WIRES, Run, machine, plain
from tests.support.scale import with_many_examples

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
CITATION = {
    "type": "url_citation",
    "url": "https://a.example",
    "start_index": 0,
    "end_index": 1,
    "title": "A",
}
TOKEN = {"token": "t", "logprob": -1.0, "bytes": [116], "top_logprobs": []}
ITEMS: list[dict[str, Any]] = [
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}},
    {"type": "compaction", "id": "cmp", "encrypted_content": "sealed"},
    {"type": "acme:look", "id": "", "status": "completed", "seen": [1]},
    {"type": "function_call_output", "id": "o", "call_id": "c", "output": "ok", "status": "completed"},
    {
        "type": "function_call",
        "id": "f",
        "call_id": "c",
        "name": "n",
        "arguments": "{}",
        "status": "completed",
    },
    {
        "type": "custom_tool_call",
        "id": "k",
        "call_id": "c",
        "name": "n",
        "input": "raw",
        "status": "completed",
    },
    {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "sealed", "status": "completed"},
    {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []},
    {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "phase": "commentary",
        "content": [
            {"type": "output_text", "text": "Hi", "annotations": [CITATION], "logprobs": [TOKEN]},
            {"type": "refusal", "refusal": "No"},
            {"type": "output_text", "text": "Ho", "annotations": [], "logprobs": []},
        ],
    },
]
CALLS = ("function_call", "custom_tool_call")
indexes = st.integers(0, 3)
steps = st.one_of(
    st.tuples(st.just("text"), words),
    st.tuples(st.just("text"), words, st.just([TOKEN])),
    st.tuples(st.just("refusal"), words),
    st.tuples(st.just("reasoning"), words),
    st.tuples(st.just("reasoning_summary"), words, indexes),
    st.tuples(st.just("reasoning_encrypted"), words),
    st.tuples(st.just("annotation"), st.just(CITATION)),
    st.tuples(st.sampled_from(["part_done", "block_done"])),
    st.tuples(
        st.just("begin"), indexes, st.sampled_from(["look", "grammar", "ns__peek"]), st.sampled_from("fc")
    ),
    st.tuples(
        st.just("argue"), indexes, st.sampled_from(['{"a"', ":1}", "{}", " ", '{"input":"', '"}', "é🙂"])
    ),
    st.tuples(st.just("tool_call_done"), indexes),
    st.tuples(st.just("item"), st.sampled_from(ITEMS)),
    st.tuples(st.just("announced"), st.sampled_from(ITEMS[:4]), st.booleans()),
    st.tuples(st.just("extension_event"), st.just("acme:beat"), st.just({"left": 3})),
    st.tuples(st.just("usage"), st.just({"input_tokens": 3, "output_tokens": 4})),
)
endings = st.sampled_from(
    [
        ("finish", "stop"),
        ("finish", "length"),
        ("finish", "content_filter"),
        ("fail", {"type": "rate", "code": "slow", "message": "Wait", "param": "input"}),
        ("fail", {"code": "slow", "message": "Wait"}),
        ("cancel",),
    ]
)
REQUEST = CreateResponse(
    model="m",
    instructions="Be brief.",
    tools=[
        FunctionToolParam("look"),
        CustomTool("grammar"),
        NamespaceTool("ns", [FunctionToolParam("peek")]),
        UnknownTool({"type": "web_search"}),
    ],
    text=TextParam(JsonSchemaFormatParam("shape", schema={"type": "object"}), "low"),
    reasoning=ReasoningOptions("minimal", "auto"),
    metadata={"a": "b"},
    service_tier="flex",
)


def identities() -> ToolIdentityMap:
    known = ToolIdentityMap()
    known.declare(ToolKind.FUNCTION, "look")
    known.declare(ToolKind.CUSTOM, "grammar")
    known.declare(ToolKind.FUNCTION, "peek", "ns")
    return known


class Performance:
    """Makes the calls that are legal where they come; the others are left out."""

    def __init__(self, wire: str) -> None:
        self.run = Run(wire, REQUEST, identities(), schema=False)
        self._begun = 0
        self._headless: set[int] = set()  # indexes of functions' calls whose arguments have not begun

    def __call__(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        special: Callable[..., None] | None = getattr(self, f"_{name}", None)
        try:
            if special is None:
                self.run(name, *arguments)
            else:
                special(*arguments)
        except BridgeError:
            pass

    def _begin(self, index: int, name: str, kind: str) -> None:
        self._begun += 1
        self.run(
            "tool_call", index, f"call_{self._begun}", name, None, {"f": "function", "c": "custom"}[kind]
        )
        (self._headless.add if kind == "f" else self._headless.discard)(index)

    def _argue(self, index: int, arguments: str) -> None:
        if arguments.startswith("{"):
            self._headless.discard(index)
        if index in self.run.machine._blocks.calls and (index not in self._headless or arguments.isspace()):
            self.run("tool_call", index, arguments=arguments)


def perform(wire: str, script: list[tuple[Any, ...]], ending: tuple[Any, ...]) -> Run:
    performance = Performance(wire)
    for number, step in enumerate(script):
        if step[0] == "announced":
            item = {**step[1], "id": f"an_{number}"}
            performance(("item_added", item))
            if step[2]:
                performance(("item_event", item["id"], "response.web_search_call.searching", {"query": "q"}))
            performance(("item", item))
        else:
            performance(step)
    performance(ending)
    if performance.run.machine.phase == "in_progress":
        performance.run("fail", "broken")
    return performance.run


@given(st.sampled_from(WIRES), st.lists(steps, max_size=14), endings)
def test_our_own_stream_comes_out_equal(
    wire: str, script: list[tuple[Any, ...]], ending: tuple[Any, ...]
) -> None:
    run = perform(wire, script, ending)
    again = machine(wire)
    inbound = Inbound(again, adopt=True)
    events = [event for sent in run.events for event in inbound.feed(encode(sent))] + inbound.close()
    assert without_cut_ends(plain(events)) == without_cut_ends(plain(run.events))
    assert plain(again.snapshot) == plain(run.machine.snapshot)
    assert {str(case) for case in inbound.diagnostics} <= {str(case) for case in run.machine.diagnostics}


def without_cut_ends(events: list[Any]) -> list[Any]:
    """The events; where calls were cut, without their ends and the numbers that these shift."""
    ends = [
        event
        for event in events
        if event["type"] == "response.output_item.done"
        and event["item"]["type"] in CALLS
        and event["item"]["status"] == "incomplete"
    ]
    if not ends:
        return events
    return [{**event, "sequence_number": 0} for event in events if event not in ends]


@given(st.sampled_from(WIRES), st.lists(steps, max_size=10), endings)
def test_a_respelled_stream_says_the_same(
    wire: str, script: list[tuple[Any, ...]], ending: tuple[Any, ...]
) -> None:
    """openai → openresponses → openai: events are respelled, never added or lost."""
    run = perform(wire, script, ending)
    other = WIRES[1 - WIRES.index(wire)]
    there, back = Outbound(other), Outbound(wire)
    events = [ours for event in run.events for theirs in there.feed(event) for ours in back.feed(theirs)]
    for event, original in zip(plain(events), plain(run.events), strict=True):
        if event["type"] == "error":
            assert event.get("error", event)["message"] == original.get("error", original)["message"]
        else:
            assert event == original
    assert there.close() == []


@pytest.mark.parametrize("wire", WIRES)
def test_padding_is_left_out(wire: str) -> None:
    """`obfuscation` is noise by design."""
    run = perform(wire, [("text", "Hi")], ("finish", "stop"))
    again = machine(wire)
    inbound = Inbound(again, adopt=True)
    events = []
    for sent in plain(run.events):
        padded = sent | ({"obfuscation": "xyz"} if sent["type"].endswith("delta") else {})
        events += inbound.feed(encode(padded))
    assert plain(events) == plain(run.events)
    assert again.snapshot.created_at == CLOCK


test_many_of_our_own_streams = with_many_examples(
    test_our_own_stream_comes_out_equal, st.sampled_from(WIRES), st.lists(steps, max_size=14), endings
)
test_many_respelled_streams = with_many_examples(
    test_a_respelled_stream_says_the_same, st.sampled_from(WIRES), st.lists(steps, max_size=10), endings
)


@pytest.mark.parametrize("wire", WIRES)
def test_arguments_that_come_after_a_whole_item_keep_their_place_before_a_text(wire: str) -> None:
    script = [("begin", 0, "look", "f"), ("item", ITEMS[0]), ("argue", 0, "{}"), ("text", "Hi")]
    run = perform(wire, script, ("finish", "stop"))
    inbound = Inbound(machine(wire), adopt=True)
    events = [event for sent in run.events for event in inbound.feed(encode(sent))] + inbound.close()
    assert plain(events) == plain(run.events)
