"""Law E12: amortised constant cost per delta, and text kept only once. The tests compare ratios and sizes,
never seconds."""

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.dialects.anthropic_messages.upstream.inbound import Inbound as FromAnthropic
from openresponses_bridge.dialects.bedrock_converse.upstream.inbound import Inbound as FromBedrock
from openresponses_bridge.dialects.chat_completions.upstream.deltas import ThinkTags
from openresponses_bridge.dialects.chat_completions.upstream.inbound import Inbound as FromChat
from openresponses_bridge.dialects.chat_completions.upstream.text_calls import TextCalls
from openresponses_bridge.dialects.gemini.upstream.inbound import Inbound as FromGemini
from openresponses_bridge.dialects.interactions.upstream.inbound import Inbound as FromInteractions
from openresponses_bridge.dialects.responses.inbound import Inbound as FromResponses
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_server.requests.answer_format import FenceFilter, json_in
from tests.support.costs import assert_proportional
from tests.support.costs import seconds as seconds_of

# ten times fewer if every line is traced for coverage
FEW, MANY = (20_000, 200_000) if sys.gettrace() is None else (2_000, 20_000)
PIECE = "five "
Feed = Callable[[ResponseStreamStateMachine, int], object]

DELTAS: dict[str, Feed] = {
    "text": lambda machine, _: machine.text(PIECE),
    "text_beyond_ascii": lambda machine, _: machine.text("fünf "),
    "refusal": lambda machine, _: machine.refusal(PIECE),
    "reasoning": lambda machine, _: machine.reasoning(PIECE),
    "reasoning_summary": lambda machine, _: machine.reasoning_summary(PIECE),
    "tool_call": lambda machine, _: machine.tool_call(0, None, None, PIECE),
    "custom_call": lambda machine, _: machine.tool_call(1, None, None, PIECE),
    "held_call": lambda machine, _: machine.tool_call(2, None, None, PIECE),
    "extension_event": lambda machine, _: machine.extension_event("acme:tick", {}),
}
ITEMS: dict[str, Feed] = {
    "messages": lambda machine, _: (machine.text("a"), machine.block_done()),
    "summary_parts": lambda machine, at: machine.reasoning_summary("a", at),
    "calls": lambda machine, at: machine.tool_call(at, f"call_{at}", "f", "{}"),
    "calls_on_one_index": lambda machine, at: machine.tool_call(0, f"call_{at}", "f", "{}"),
    "calls_of_one_id": lambda machine, at: machine.tool_call(at + 10, "same", "f", "{}"),
    "incomplete_calls": lambda machine, at: machine.tool_call(at, f"call_{at}", "f", '{"a'),
    "nameless_calls": lambda machine, at: machine.tool_call(at + 10, f"call_{at}", None, '{"a'),
    "held_calls": lambda machine, at: machine.tool_call(at + 10, f"call_{at}", "shell", '{"a'),
    "a_call_that_grows_beside_others": lambda machine, at: (
        machine.tool_call(0, None, None, ',"a"') if at else machine.tool_call(0, "first", "f", '["a"'),
        machine.tool_call(at + 10, f"call_{at}", "f", "{}"),
    ),
    "text_between_incomplete_calls": lambda machine, at: (
        machine.text("a"),
        machine.tool_call(at + 10, f"call_{at}", "f", '{"a'),
    ),
    "text_between_calls": lambda machine, at: (
        machine.text("a"),
        machine.tool_call(at + 10, f"c{at}", "f", "{}"),
    ),
    "whole_items": lambda machine, at: machine.item({"type": "acme:x", "id": str(at)}),
}


def started() -> ResponseStreamStateMachine:
    """A machine of the openai wire in which a function call, a custom call and a shell call have begun."""
    identities = ToolIdentityMap()
    identities.declare(ToolKind.CUSTOM, "patch")
    identities.declare(ToolKind.SHELL, "shell")
    machine = ResponseStreamStateMachine("m", tool_identities=identities, wire="openai")
    machine.start()
    return machine


def with_calls() -> ResponseStreamStateMachine:
    machine = started()
    machine.tool_call(0, "a", "f", '{"x": "')
    machine.tool_call(1, "b", "patch", '{"input": "')
    machine.tool_call(2, "c", "shell", '{"command": "')
    return machine


def seconds(make: Callable[[], ResponseStreamStateMachine], feed: Feed, times: int) -> float:
    machine = make()
    gc.collect()
    before = process_time()
    for at in range(times):
        feed(machine, at)
    return process_time() - before


def growth(make: Callable[[], ResponseStreamStateMachine], feed: Feed, few: int, many: int) -> float:
    """The cost per call with many calls, as a multiple of the cost with few; the best of several runs."""
    gc.disable()
    try:
        at_many = min(seconds(make, feed, many) for _ in range(2)) / many
        return at_many / (min(seconds(make, feed, few) for _ in range(4)) / few)
    finally:
        gc.enable()


@pytest.mark.bench
@pytest.mark.parametrize("kind", DELTAS)
def test_e12_a_delta_costs_the_same_however_long_the_text(kind: str) -> None:
    share = 1 if kind in ("text", "tool_call") else 4  # the slower operations run fewer times
    assert growth(with_calls, DELTAS[kind], FEW // share, MANY // share) < 3


@pytest.mark.bench
@pytest.mark.parametrize("kind", ITEMS)
def test_e12_an_item_costs_the_same_however_many_there_are(kind: str) -> None:
    assert growth(started, ITEMS[kind], FEW // 40, MANY // 40) < 3


Frames = tuple[Callable[[ResponseStreamStateMachine], Any], Callable[[int], Any]]


def chunk(**delta: Any) -> Any:
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}


def chat_call(**place: Any) -> Any:
    return chunk(tool_calls=[{**place, "function": {"name": "f", "arguments": "{"}}])


def anthropic_block(_: int) -> Any:
    return {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}}


def anthropic_delta(at: int) -> Any:
    delta = {"type": "input_json_delta", "partial_json": " "}
    return {"type": "content_block_delta", "delta": delta} if at % 2 else anthropic_block(at)


def bedrock_delta(at: int) -> Any:
    start = {"contentBlockIndex": at, "start": {"toolUse": {"toolUseId": f"c{at}", "name": "f"}}}
    delta = {"delta": {"toolUse": {"input": " "}}}
    return {"contentBlockDelta": delta} if at % 2 else {"contentBlockStart": start}


def gemini_call(at: int) -> Any:
    call = {"id": f"c{at}", "name": "f", "willContinue": True}
    return {"candidates": [{"content": {"role": "model", "parts": [{"functionCall": call}]}}]}


def interactions_step(at: int) -> Any:
    step = {"type": "function_call", "id": f"c{at}", "name": "f"}
    return {"event_type": "step.start", "index": at, "step": step}


def responses_call(at: int) -> Any:
    item = {"type": "function_call", "id": f"f{at}", "call_id": f"c{at}", "name": "f", "arguments": ""}
    return {"type": "response.output_item.added", "item": item}


def responses_text(at: int) -> Any:
    return {"type": "response.output_text.delta", "output_index": at, "content_index": 0, "delta": "x"}


FRAMES: dict[str, Frames] = {
    "Chat, calls with an index": (FromChat, lambda at: chat_call(index=at, id=f"c{at}")),
    "Chat, calls without an index": (FromChat, lambda at: chat_call(id=f"c{at}")),
    "Anthropic, blocks without an index": (FromAnthropic, anthropic_block),
    "Anthropic, deltas without an index": (FromAnthropic, anthropic_delta),
    "Bedrock, deltas without an index": (FromBedrock, bedrock_delta),
    "Gemini, calls that go on": (FromGemini, gemini_call),
    "Interactions, steps": (FromInteractions, interactions_step),
    "Responses, items without an index": (FromResponses, responses_call),
    "Responses, texts of items that have not begun": (FromResponses, responses_text),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_e12_a_frame_costs_the_same_however_many_blocks_are_open(kind: str) -> None:
    """An upstream opens blocks and never ends them."""
    inbound, frame = FRAMES[kind]

    def cost(times: int) -> float:
        frames = [json.dumps(frame(at)).encode() for at in range(times)]
        reader = inbound(ResponseStreamStateMachine("m", wire="openai"))
        return seconds_of(lambda: [reader.feed(each) for each in frames])

    assert_proportional(cost, 500, 8_000)


def memory(kind: str, times: int) -> tuple[int, int]:
    """(peak during the deltas, memory kept afterwards) in bytes."""
    machine = with_calls()
    feed = DELTAS[kind]
    gc.collect()
    tracemalloc.start()
    try:
        for at in range(times):
            feed(machine, at)
        current, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak, current


@pytest.mark.parametrize("kind", ["text", "reasoning", "tool_call", "custom_call"])
def test_e12_text_is_kept_once(kind: str) -> None:
    """A buffer has spare room while it grows: in all, less than three times the text."""
    deltas = MANY // 4
    characters = deltas * len(PIECE)
    peak, current = memory(kind, deltas)
    assert current <= peak < 3 * characters
    assert current >= characters


def test_e12_events_that_leave_no_text_leave_nothing() -> None:
    # objects that are made only once take some 20 KB, and threads that other tests left take some too
    assert any(memory("extension_event", FEW)[0] < 5 * FEW for _ in range(3))


def test_e12_no_object_stays_per_delta() -> None:
    machine = with_calls()
    machine.text(PIECE)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(FEW):
        machine.text(PIECE)
        machine.tool_call(0, None, None, PIECE)
        machine.tool_call(1, None, None, PIECE)
    gc.collect()
    assert len(gc.get_objects()) - before < 100


@pytest.mark.bench
def test_e12_the_fold_of_a_long_text_is_linear_too() -> None:
    def fold(times: int) -> float:
        machine = with_calls()
        events = [machine.text(PIECE)[-1] for _ in range(times)]
        accumulator = ResponseAccumulator()
        before = process_time()
        for event in events:
            accumulator.feed(event)
        return process_time() - before

    few = min(fold(FEW // 4) for _ in range(4))
    assert min(fold(MANY // 4) for _ in range(2)) / 10 / few < 3


HELD_BACK: dict[str, Callable[[], Callable[[str], object]]] = {
    "white space before a think tag": lambda: ThinkTags().feed,
    "reasoning that does not end": lambda: fed(ThinkTags().feed, "<think>a"),
    "a call written as text that does not end": lambda: fed(
        TextCalls(frozenset({"hermes", "glm"}), ToolIdentityMap()).feed, "<tool_call>"
    ),
    "white space before a fence": lambda: FenceFilter().feed,
    "white space in a fence": lambda: fed(FenceFilter().feed, "```\n{}"),
    "the line of a fence": lambda: fed(FenceFilter().feed, "```"),
}


def fed(feed: Callable[[str], object], text: str) -> Callable[[str], object]:
    feed(text)
    return feed


@pytest.mark.parametrize("what", HELD_BACK)
def test_e12_what_is_held_back_is_not_read_anew_with_each_delta(what: str) -> None:
    def spent(times: int) -> float:
        feed = HELD_BACK[what]()
        before = process_time()
        for _ in range(times):
            feed("  ")
        return process_time() - before

    assert_proportional(spent, FEW // 4, MANY // 4)


AROUND = {
    "brackets": ("{[", "]}"),
    "brackets that never close": ("[{", ""),
    "fences": ("```\n", "```"),
    "words": ("a {", "} b"),
    "white space": (" ", "\n"),
}


@pytest.mark.parametrize("what", AROUND)
def test_json_is_found_in_linear_time(what: str) -> None:
    before, behind = AROUND[what]

    def spent(times: int) -> float:
        text = f"x {before * times}{behind * times} y"
        begun = process_time()
        for _ in range(5):
            json_in(text)
        return process_time() - begun

    assert_proportional(spent, FEW, MANY)


@pytest.mark.parametrize("end", ["\n", "``", "```", "``` x", "````"])
def test_e12_the_end_of_a_fence_takes_linear_time(end: str) -> None:
    def spent(times: int) -> float:
        answer = fed(FenceFilter().feed, "```\n")
        text = " " * times + end + " " * times
        before = process_time()
        answer(text)
        answer("x" + text + "x")
        return process_time() - before

    assert_proportional(spent, FEW, MANY)
