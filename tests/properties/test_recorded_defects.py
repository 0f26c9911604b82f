"""Recorded streams with one of the defects that servers have, at places over their whole length: the text and
the calls are the same as without the defect, or the calls are marked incomplete (law N4)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from openresponses_bridge.dialects.anthropic_messages import Inbound as AnthropicInbound
from openresponses_bridge.dialects.chat_completions import Inbound as ChatInbound
from openresponses_bridge.dialects.gemini import Inbound as GeminiInbound
from openresponses_bridge.dialects.responses import Inbound as ResponsesInbound
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.items import FunctionCall
from openresponses_bridge.protocol.response import Response
from tests.support import anthropic, chat, chat_folds, gemini
from tests.support.scale import FACTOR
from tests.support.shared import shared_files

Frame = tuple[bytes, str]
PLACES = 4 * FACTOR


class Dialect(NamedTuple):
    """`noise` is what a server may send between any two frames. `again` is a frame, and another one to put
    before it, in which a call repeats all its arguments."""

    inbound: Callable[[ResponseStreamStateMachine], Any]
    noise: dict[str, Frame]
    again: Callable[[list[Any]], Iterator[tuple[int, bytes]]]


def parsed(frames: list[Frame]) -> list[Any]:
    return [json.loads(data) if data.lstrip().startswith(b"{") else {} for data, _ in frames]


def again_in_chat(chunks: list[Any]) -> Iterator[tuple[int, bytes]]:
    by_index: dict[int, str] = {}
    for at, each in enumerate(chunks):
        choice = (each.get("choices") or [{}])[0]
        for part in (choice.get("delta") or {}).get("tool_calls") or ():
            pieces = part.get("function", {}).get("arguments") or ""
            by_index[part.get("index", 0)] = by_index.get(part.get("index", 0), "") + pieces
        if choice.get("finish_reason"):
            for index, arguments in by_index.items():
                yield at, chat.calls(chat.part(arguments, index=index))
            return


def again_in_messages(events: list[Any]) -> Iterator[tuple[int, bytes]]:
    by_index: dict[int, str] = {}
    for at, each in enumerate(events):
        delta = each.get("delta") or {}
        if delta.get("type") == "input_json_delta":
            by_index[each["index"]] = by_index.get(each["index"], "") + delta["partial_json"]
        elif each.get("type") == "content_block_stop" and by_index.get(each["index"]):
            delta = {"type": "input_json_delta", "partial_json": by_index[each["index"]]}
            yield at, anthropic.frame("content_block_delta", index=each["index"], delta=delta)


def again_in_responses(events: list[Any]) -> Iterator[tuple[int, bytes]]:
    for at, each in enumerate(events):
        if each.get("type") == "response.function_call_arguments.done":
            place = {name: each[name] for name in ("item_id", "output_index", "sequence_number")}
            delta = {"type": "response.function_call_arguments.delta", **place, "delta": each["arguments"]}
            yield at, json.dumps(delta).encode()


DIALECTS = {
    "chat": Dialect(
        ChatInbound,
        {
            "blank": (b"", ""),
            "empty text": (chat.chunk(content=""), ""),
            "no delta": (chat.chunk(), ""),
            "empty function": (chat.chunk(function_call={"name": "", "arguments": ""}), ""),
        },
        again_in_chat,
    ),
    "anthropic": Dialect(
        AnthropicInbound,
        {"blank": (b"", ""), "blank ping": (b"", "ping"), "odd ping": (b"ping", "ping")},
        again_in_messages,
    ),
    "gemini": Dialect(
        GeminiInbound,
        {"blank": (b"", ""), "empty text": (gemini.chunk({"text": ""}), "")},
        lambda _: iter(()),
    ),
    "responses": Dialect(
        ResponsesInbound,
        {"blank": (b"", ""), "keep-alive": (b'{"type": "keepalive", "sequence_number": 0}', "")},
        again_in_responses,
    ),
}


def frames_of(dialect: str, path: Path) -> list[Frame]:
    if dialect == "gemini":
        return [(data, "") for data in gemini.recorded(path)]
    if dialect == "chat":
        return [(data, "") for data in chat_folds.recorded(path)]
    return anthropic.recorded(path)


def answer(dialect: Dialect, frames: list[Frame]) -> Response:
    machine = ResponseStreamStateMachine("m")
    inbound = dialect.inbound(machine)
    for data, event in frames:
        inbound.feed(data, event)
    inbound.close()
    return machine.snapshot


def said(response: Response) -> tuple[Any, ...]:
    calls = [(each.name, each.arguments) for each in response.output if isinstance(each, FunctionCall)]
    return response.status, response.output_text, calls


def places(size: int) -> list[int]:
    return sorted({size * number // PLACES for number in range(PLACES)})


RECORDED = [
    pytest.param(dialect, *each.values, id=f"{dialect}-{each.id}", marks=each.marks)
    for dialect, folder, patterns in (
        ("chat", "chat", ("*.sse", "*.txt")),
        ("anthropic", "anthropic", ("*",)),
        ("gemini", "gemini", ("*.sse", "*.txt")),
        ("responses", "responses", ("*.txt",)),
    )
    for each in shared_files(folder, *patterns)
]


@pytest.mark.untraced
@pytest.mark.parametrize(("name", "path"), RECORDED)
def test_n4_noise_within_a_recorded_stream_changes_nothing(name: str, path: Path) -> None:
    dialect, frames = DIALECTS[name], frames_of(name, path)
    clean = said(answer(dialect, frames))
    for what, noise in dialect.noise.items():
        for at in places(len(frames)):
            noisy = said(answer(dialect, [*frames[:at], noise, *frames[at:]]))
            assert noisy == clean, (what, at)


@pytest.mark.untraced
@pytest.mark.parametrize(("name", "path"), RECORDED)
def test_n4_arguments_that_come_again_in_a_recorded_stream_complete_no_other_call(
    name: str, path: Path
) -> None:
    dialect, frames = DIALECTS[name], frames_of(name, path)
    clean = said(answer(dialect, frames))
    for at, frame in dialect.again(parsed(frames)):
        response = answer(dialect, [*frames[:at], (frame, ""), *frames[at:]])
        assert response.output_text == clean[1]
        calls = [each for each in response.output if isinstance(each, FunctionCall)]
        assert [each.name for each in calls] == [called for called, _ in clean[2]]
        for call, (_, arguments) in zip(calls, clean[2], strict=True):
            if call.status == "completed":
                assert json.loads(call.arguments) == json.loads(arguments)
            else:
                assert response.status == "incomplete"
