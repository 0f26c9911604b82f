"""Law E12 in the dialects: the cost of a stream is linear in its length, whatever an upstream sends."""

import json
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.dialects import anthropic_messages, chat_completions, responses
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_event, encode
from tests.support.costs import FEW, TIMES, assert_proportional


def fragment(index: int | None = None, arguments: str | None = None, id: str = "", name: str = "") -> bytes:
    function = {"name": name or None, "arguments": arguments}
    call = {"index": index, "id": id or None, "type": "function", "function": function}
    return encode({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})


CHAT: dict[str, Callable[[int], list[bytes]]] = {
    "objects in a list without an index": lambda times: [
        fragment(None, "[", "a", "f"),
        *(fragment(None, piece) for _ in range(times) for piece in ("{}", ",")),
    ],
    "objects in a list under one id": lambda times: [
        fragment(0, "[", "a", "f"),
        *(fragment(0, "{},", "a") for _ in range(times)),
    ],
    "many calls without an index": lambda times: [
        *(fragment(None, "{}", f"a{at}", "f") for at in range(times)),
        *(fragment(None, " ") for _ in range(times)),
    ],
    "incomplete calls": lambda times: [fragment(None, "{", f"a{at}", "f") for at in range(times)],
    "a finish reason with each piece": lambda times: [
        encode({"choices": [{"delta": {"content": f"a longer piece {at}"}, "finish_reason": "stop"}]})
        for at in range(times * 4)
    ],
}


def chat(frames: list[bytes]) -> tuple[float, list[Any]]:
    inbound = chat_completions.Inbound(ResponseStreamStateMachine("m"))
    before = process_time()
    events = [event for frame in frames for event in inbound.feed(frame)]
    events += inbound.close()
    return process_time() - before, events


@pytest.mark.parametrize("kind", CHAT)
def test_e12_chat_fragments(kind: str) -> None:
    assert_proportional(lambda times: chat(CHAT[kind](times))[0], FEW, FEW * TIMES)


def test_e12_a_list_without_an_index_is_one_call() -> None:
    _, events = chat(CHAT["objects in a list without an index"](3))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.arguments for item in done] == []  # cut: the list never ends
    ended = encode({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    _, events = chat([*CHAT["objects in a list without an index"](2)[:-1], fragment(None, "]"), ended])
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [json.loads(item.arguments) for item in done] == [[{}, {}]]


def test_e12_anthropic_s_items_out_of_turn() -> None:
    def spent(times: int) -> float:
        _, events = chat(CHAT["incomplete calls"](times))
        outbound = anthropic_messages.Outbound()
        before = process_time()
        for event in events:
            outbound.feed(event)
        return process_time() - before

    assert_proportional(spent, FEW, FEW * TIMES)


def test_e12_items_that_collide() -> None:
    def spent(times: int) -> float:
        events = [
            decode_event(
                encode(
                    {
                        "type": "response.output_item.added",
                        "sequence_number": at,
                        "output_index": 0,
                        "item": {
                            "type": "message",
                            "id": f"m{at}",
                            "status": "in_progress",
                            "role": "assistant",
                            "content": [],
                        },
                    }
                )
            )
            for at in range(times)
        ]
        accumulator = ResponseAccumulator()
        before = process_time()
        for event in events:
            accumulator.feed(event)
        return process_time() - before

    assert_proportional(spent, FEW, FEW * TIMES)


@pytest.mark.parametrize("announced", [False, True], ids=["alone", "after others"])
def test_e12_items_that_only_the_terminal_response_has(announced: bool) -> None:
    """Each such item is compared with the earlier ones that it can be; if ids rotate, none has the same
    id."""

    def spent(times: int) -> float:
        items = [
            {"type": "function_call", "id": f"f{at}", "call_id": f"c{at}", "name": "f", "arguments": "{}"}
            for at in range(4 * times)
        ]
        frames = [
            encode(
                {"type": "response.output_item.done", "output_index": at, "item": {**item, "id": f"g{at}"}}
            )
            for at, item in enumerate(items if announced else [])
        ]
        frames.append(encode({"type": "response.completed", "response": {"output": items}}))
        inbound = responses.Inbound(ResponseStreamStateMachine("m"))
        before = process_time()
        for frame in frames:
            inbound.feed(frame)
        return process_time() - before

    assert_proportional(spent, FEW, FEW * TIMES)


@pytest.mark.parametrize("same", [True, False])
def test_e12_parts_that_no_index_fits(same: bool) -> None:
    """Each part of a whole item is looked up among those that were sent."""

    def spent(times: int) -> float:
        inbound = responses.Inbound(ResponseStreamStateMachine("m"))
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        parts = [
            {"type": "output_text", "text": "t" if same else f"t{at}", "annotations": []}
            for at in range(times)
        ]
        begun = {"output_index": 0, "item_id": "msg_1", "content_index": 0, "delta": "q"}
        frames = [
            {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
            {"type": "response.output_text.delta", **begun},
            {"type": "response.output_item.done", "output_index": 0, "item": item | {"content": parts}},
        ]
        before = process_time()
        for frame in frames:
            inbound.feed(encode(frame))
        return process_time() - before

    assert_proportional(spent, FEW, FEW * TIMES)


def test_e12_fields_of_an_upstream_s_own_in_each_frame() -> None:
    """The number of such fields in the response is bounded, however many frames have new ones."""
    machine = ResponseStreamStateMachine("m")
    inbound = anthropic_messages.Inbound(machine)
    inbound.feed(encode({"type": "message_start", "message": {"role": "assistant", "content": []}}))
    for at in range(1000):
        fields = {f"own_{at}": at, "delta": {f"own_{at}": at}, "usage": {f"own_{at}": at}}
        inbound.feed(encode({"type": "message_delta", **fields}))
    inbound.feed(encode({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}))
    inbound.feed(encode({"type": "message_stop"}))
    assert machine.snapshot.native
    native = machine.snapshot.native["anthropic"]
    assert native["own_0"] == 0
    assert len(native) < 1000
    assert len(native["delta"]) < 1000
