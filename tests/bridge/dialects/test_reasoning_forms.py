"""Reasoning that has a summary and a content: clients with one place for it get the form that came first, in
a stream and in a whole answer, and the other is a loss."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.dialects import anthropic_messages, chat_completions
from openresponses_bridge.dialects.chat_completions.client.completion import Folding
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event

CONTENT, SUMMARY = ("reasoning", "Two and two."), ("reasoning_summary", "Adding up.")
SECOND = ("reasoning_summary", "And again.", 1)
Calls = list[tuple[Any, ...]]
ORDERS: dict[str, tuple[Calls, list[str], list[str]]] = {
    "content first": ([CONTENT, SUMMARY], ["Two and two."], ["reasoning.summary"]),
    "summary first": ([SUMMARY, CONTENT], ["Adding up."], ["reasoning.content"]),
    "interleaved": ([SUMMARY, CONTENT, SECOND], ["Adding up.\n\nAnd again."], ["reasoning.content"]),
    "content alone": ([CONTENT], ["Two and two."], []),
    "summary alone": ([SUMMARY, SECOND], ["Adding up.\n\nAnd again."], []),
    "two items": (
        [SUMMARY, CONTENT, ("block_done",), CONTENT, SUMMARY],
        ["Adding up.", "Two and two."],
        ["reasoning.content", "reasoning.summary"],
    ),
    "whole": (
        [
            (
                "item",
                {
                    "type": "reasoning",
                    "id": "rs",
                    "summary": [{"type": "summary_text", "text": "Adding up."}],
                    "content": [{"type": "reasoning_text", "text": "Two and two."}],
                },
            )
        ],
        ["Two and two."],
        ["reasoning.summary"],
    ),
}


def made(calls: Calls, wire: str) -> tuple[ResponseStreamStateMachine, list[Event]]:
    machine = ResponseStreamStateMachine("m", wire=wire)
    events = machine.start()
    for name, *arguments in [*calls, ("text", "4"), ("finish", "stop")]:
        events += getattr(machine, name)(*arguments)
    return machine, events


def chat(machine: ResponseStreamStateMachine, events: list[Event]) -> tuple[str, str, list[str]]:
    """The reasoning in the stream and in the whole answer, and what the stream lost of it."""
    outbound, folding = chat_completions.Outbound(), Folding()
    for event in events:
        for chunk in outbound.feed(event):
            folding.feed(chunk)
    whole = chat_completions.completion(machine.in_one_form)
    losses = [case.where for case in outbound.diagnostics.of("loss") if "left out" in case.what]
    return (
        str(folding.completion.choices[0].message.reasoning_content),
        str(whole.choices[0].message.reasoning_content),
        losses,
    )


def messages(
    machine: ResponseStreamStateMachine, events: list[Event]
) -> tuple[list[str], list[str], list[str]]:
    outbound = anthropic_messages.Outbound()
    blocks: dict[int, list[str]] = {}
    for event in events:
        for chunk in outbound.feed(event):
            delta = getattr(chunk, "delta", None)
            if thinking := getattr(delta, "thinking", None):
                blocks.setdefault(chunk.index, []).append(thinking)
    whole = anthropic_messages.message(machine.in_one_form)
    shown = [block["thinking"] for block in whole["content"] if block["type"] == "thinking"]
    losses = [case.where for case in outbound.diagnostics.of("loss") if case.where != "reasoning"]
    return ["".join(pieces) for pieces in blocks.values()], shown, losses


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_form_that_came_first_is_the_answers_streamed_and_whole(order: str, wire: str) -> None:
    calls, texts, lost = ORDERS[order]
    machine, events = made(calls, wire)
    assert messages(machine, events) == (texts, texts, lost)
    streamed, whole, losses = chat(machine, events)
    assert streamed == whole
    assert streamed.replace("\n\n", "") == "".join(texts).replace("\n\n", "")
    assert losses == lost
    assert machine.snapshot == events[-1].response, "nothing is left out of the response itself"  # type: ignore[union-attr]


FORMS = st.sampled_from(
    [CONTENT, SUMMARY, SECOND, ("block_done",), ("part_done",), ("reasoning_encrypted", "x")]
)


@given(st.lists(FORMS, max_size=8), st.sampled_from(["openai", "openresponses"]))
def test_any_reasoning_is_the_same_streamed_and_whole(calls: Calls, wire: str) -> None:
    machine, events = made(calls, wire)
    streamed, whole, _ = chat(machine, events)
    assert streamed == whole
    blocks, shown, _ = messages(machine, events)
    assert blocks == shown
