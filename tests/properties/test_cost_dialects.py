"""Law E12 at the edges: what a stream costs grows with its length, whatever an upstream sends."""

import json
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.dialects import anthropic_messages, chat_completions, responses
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_event, encode

FEW = 300 if sys.gettrace() is None else 100
TIMES = 8


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
}


def chat(frames: list[bytes]) -> tuple[float, list[Any]]:
    inbound = chat_completions.Inbound(ResponseStreamStateMachine("m"))
    before = process_time()
    events = [event for frame in frames for event in inbound.feed(frame)]
    events += inbound.close()
    return process_time() - before, events


def grows(spent: Callable[[int], float]) -> float:
    """How many times as much the longer one costs; measured again where another process may interfere."""
    few, many = [], []
    for _ in range(4):
        few.append(min(spent(FEW) for _ in range(3)))
        many.append(min(spent(FEW * TIMES) for _ in range(2)))
        if min(many) < 2 * TIMES * min(few):
            break
    return min(many) / min(few)


@pytest.mark.parametrize("kind", CHAT)
def test_e12_chat_fragments(kind: str) -> None:
    assert grows(lambda times: chat(CHAT[kind](times))[0]) < 3 * TIMES


def test_e12_a_list_without_an_index_is_one_call() -> None:
    _, events = chat(CHAT["objects in a list without an index"](3))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.arguments for item in done] == []  # cut: the list never closes
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

    assert grows(spent) < 3 * TIMES


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

    assert grows(spent) < 3 * TIMES


@pytest.mark.parametrize("announced", [False, True], ids=["alone", "after others"])
def test_e12_items_that_only_the_terminal_response_has(announced: bool) -> None:
    """Of each is looked which of those before it can be; with ids that rotate, none has its id."""

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

    assert grows(spent) < 3 * TIMES
