"""Streams with one of the defects that servers have, at random places, in each dialect: no text is lost or
sent twice, and no call is completed with arguments that are not the model's (law N4)."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.dialects.anthropic_messages import Inbound as AnthropicInbound
from openresponses_bridge.dialects.chat_completions import ChatOptions
from openresponses_bridge.dialects.chat_completions import Inbound as ChatInbound
from openresponses_bridge.dialects.gemini import Inbound as GeminiInbound
from openresponses_bridge.dialects.responses import Inbound as ResponsesInbound
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import FunctionCallArgumentsDelta, FunctionCallArgumentsDone
from openresponses_bridge.protocol.items import FunctionCall
from tests.support import anthropic, chat, gemini
from tests.support.scale import FACTOR

HEAD = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}


class Call(NamedTuple):
    name: str
    value: dict[str, Any]
    pieces: list[str]
    called: str
    """A call as the model makes it."""


# ── the answer and its defect ────────────────────────────────────────────────────────────────────────
def cut(text: str, draw: st.DrawFn) -> list[str]:
    places = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=4)))
    edges = [0, *(place for place in places if place < len(text)), len(text)]
    return [text[start:end] for start, end in pairwise(edges) if start < end]


def cumulative(pieces: list[str], _at: int) -> list[str]:
    return ["".join(pieces[: end + 1]) for end in range(len(pieces))]


IN_ARGUMENTS: dict[str, Callable[[list[str], int], list[str]]] = {
    "none": lambda pieces, _at: pieces,
    "placeholder": lambda pieces, _at: ["{}", *pieces],
    "token": lambda pieces, _at: ["[ARGS]", *pieces],
    "bracket": lambda pieces, _at: [*pieces, "}"],
    "again": lambda pieces, at: [*pieces[: at % len(pieces) + 1], "".join(pieces)],
    "again in pieces": lambda pieces, at: [*pieces[: at % len(pieces) + 1], *pieces],
    "again written otherwise": lambda pieces, at: [
        *pieces[: at % len(pieces) + 1],
        json.dumps(json.loads("".join(pieces)), indent=1),
    ],
    "cumulative": cumulative,
}
IN_NAMES = ("{}", "functions.{}", "default_api:{}", "{}<|channel|>commentary", " {}")
KEYS = st.text("ab {\\", min_size=1, max_size=3)
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('{}[]",:\\a é', max_size=8),
    lambda each: st.lists(each, max_size=2) | st.dictionaries(KEYS, each, max_size=2),
    max_leaves=5,
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[str], list[Call], str]:
    """The pieces of a text, calls, and the positions of noise."""
    words = draw(st.lists(st.text("ab é\n", min_size=1, max_size=5), max_size=4))
    text = [f"w{number}{word}" for number, word in enumerate(words)]
    calls = []
    for name in draw(st.lists(st.sampled_from(["look", "find"]), max_size=2)):
        value = draw(st.dictionaries(KEYS, VALUES, min_size=1, max_size=2))
        defect = IN_ARGUMENTS[draw(st.sampled_from(sorted(IN_ARGUMENTS)))]
        pieces = defect(cut(json.dumps(value), draw), draw(st.integers(0, 5)))
        calls.append(Call(name, value, pieces, draw(st.sampled_from(IN_NAMES)).format(name)))
    return text, calls, draw(st.sampled_from(["none", "empty", "odd"]))


# ── the same answer in each dialect ──────────────────────────────────────────────────────────────────
def of_chat(text: list[str], calls: list[Call], noise: str) -> list[bytes]:
    beside: dict[str, Any] = {"function_call": {"name": "", "arguments": ""}} if noise == "odd" else {}
    frames = [chat.chunk(content=piece, **beside) for piece in text]
    for index, call in enumerate(calls):
        head = chat.part("", name=call.called, id=f"call_{index}", index=index)
        if noise == "odd":
            head["custom"] = {"name": "", "input": ""}
        frames.append(chat.chunk(tool_calls=[head], **beside))
        frames += [chat.calls(chat.part(piece, index=index)) for piece in call.pieces]
    if noise == "empty":
        frames = [each for frame in frames for each in (b"", frame, chat.chunk(content=""))]
    return [*frames, chat.chunk("stop"), chat.DONE]


def of_anthropic(text: list[str], calls: list[Call], noise: str) -> list[bytes]:
    frames = [anthropic.start(), *(anthropic.text(0, *text) if text else [])]
    for index, call in enumerate(calls, 1):
        frames += anthropic.tool(index, f"call_{index}", call.called, *call.pieces)
    ending = anthropic.stop("tool_use" if calls else "end_turn")
    if noise == "empty":
        frames = [each for frame in frames for each in (frame, b"")]
    return [*frames, *([ending[0], b"[DONE]"] if noise == "odd" else ending)]


def of_gemini(text: list[str], calls: list[Call], noise: str) -> list[bytes]:
    frames = [gemini.chunk({"text": piece}) for piece in text]
    for call in calls:
        given: Any = json.dumps(call.value) if noise == "odd" else call.value
        frames.append(gemini.chunk({"functionCall": {"name": call.called, "args": given}}))
    if noise == "empty":
        frames = [each for frame in frames for each in (frame, gemini.chunk({"text": ""}))]
    return [*frames, gemini.chunk(finish="STOP")]


def of_responses(text: list[str], calls: list[Call], noise: str) -> list[bytes]:
    odd = noise == "odd"
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**HEAD, "status": "in_progress"}}
    ]
    if text:
        place = {"output_index": 0, "item_id": "msg_1"}
        part = {"type": "output_text", "text": "".join(text), "annotations": []}
        message = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [part],
            "status": "completed",
        }
        for piece in text:
            events.append({"type": "response.output_text.delta", **place, "content_index": 1, "delta": piece})
        done = {"type": "response.output_text.done", **place, "content_index": 2 if odd else 1}
        events.append({**done, "text": "".join(text)})
        events.append({"type": "response.output_item.done", "output_index": 0, "item": message})
    for index, call in enumerate(calls, 1):
        whole: Any = call.value if odd else json.dumps(call.value)
        item = {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{index}", "name": call.called}
        begun = {**item, "arguments": "{}" if odd else "", "status": "in_progress"}
        place = {"output_index": index, "item_id": f"fc_{index}"}
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        for piece in call.pieces:
            events.append({"type": "response.function_call_arguments.delta", **place, "delta": piece})
        if noise != "empty":
            events.append({"type": "response.function_call_arguments.done", **place, "arguments": whole})
        ended = {**item, "arguments": whole, "status": "completed"}
        events.append({"type": "response.output_item.done", "output_index": index, "item": ended})
    events.append({"type": "response.completed", "response": {**HEAD, "status": "completed"}})
    return [json.dumps(event).encode() for event in events]


DIALECTS: dict[str, tuple[Callable[[ResponseStreamStateMachine], Any], Callable[..., list[bytes]]]] = {
    "chat": (ChatInbound, of_chat),
    "anthropic": (AnthropicInbound, of_anthropic),
    "gemini": (GeminiInbound, of_gemini),
    "responses": (ResponsesInbound, of_responses),
}


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@settings(max_examples=60 * FACTOR)
@given(answers())
def test_n4_no_defect_loses_or_doubles_text_or_completes_a_call_that_is_none(
    dialect: str, answer: tuple[list[str], list[Call], str]
) -> None:
    text, calls, noise = answer
    build, frames_of = DIALECTS[dialect]
    identities = ToolIdentityMap()
    for name in ("look", "find"):
        identities.declare(ToolKind.FUNCTION, name)
    machine = ResponseStreamStateMachine("m", tool_identities=identities)
    inbound = build(machine)
    events = [event for frame in frames_of(text, calls, noise) for event in inbound.feed(frame)]
    events += inbound.close()
    response = machine.snapshot
    if not text and not calls:
        return  # an empty answer may end in either way
    assert response.status in ("completed", "incomplete"), response.error
    items = [item for item in response.output if isinstance(item, FunctionCall)]
    assert response.output_text == "".join(text)
    assert [item.name for item in items] == [call.name for call in calls]
    for item, call in zip(items, calls, strict=True):
        if item.status == "completed":
            assert json.loads(item.arguments) == call.value
        else:
            assert response.status == "incomplete"
    sent: dict[str, str] = {}
    for event in events:
        if isinstance(event, FunctionCallArgumentsDelta):
            sent[event.item_id] = sent.get(event.item_id, "") + event.delta
        elif isinstance(event, FunctionCallArgumentsDone):
            assert sent[event.item_id] == event.arguments


@settings(max_examples=60 * FACTOR)
@given(
    st.lists(st.text("ab é", min_size=1, max_size=6), min_size=2, max_size=6), st.booleans(), st.booleans()
)
def test_text_that_comes_again_is_sent_once_with_the_option(
    words: list[str], cumulated: bool, reasoning: bool
) -> None:
    pieces = [f"{number}{word}" for number, word in enumerate(words)]
    whole = "".join(pieces)
    sent = ["".join(pieces[: end + 1]) for end in range(len(pieces))] if cumulated else [*pieces, whole]
    field = "reasoning_content" if reasoning else "content"
    ran = chat.run(
        *(chat.chunk(**{field: each}) for each in sent),
        chat.chunk("stop"),
        chat.DONE,
        reading=ChatOptions(repeated_text=True),
    )
    (item,) = ran.output
    assert item.content[0].text == whole  # type: ignore[union-attr,index]
