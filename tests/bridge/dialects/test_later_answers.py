"""An answer that is not the first in its response: items of the server's, or another answer, came before."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge.dialects.anthropic_messages import Inbound as AnthropicInbound
from openresponses_bridge.dialects.base import Inbound
from openresponses_bridge.dialects.chat_completions import Inbound as ChatInbound
from openresponses_bridge.dialects.gemini import Inbound as GeminiInbound
from openresponses_bridge.dialects.responses import Inbound as ResponsesInbound
from openresponses_bridge.emitter.stream import StreamFilter
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import FunctionCall, Message
from tests.support import anthropic, chat, gemini
from tests.support.machines import machine

BUILD: dict[str, Callable[[Any], Inbound]] = {
    "chat": ChatInbound,
    "anthropic": AnthropicInbound,
    "gemini": GeminiInbound,
    "responses": ResponsesInbound,
}
CALL = {"id": "call_1", "function": {"name": "look", "arguments": '{"a":1}'}}
PREFACE = {
    "type": "mcp_list_tools",
    "id": "mcpl_1",
    "server_label": "files",
    "tools": [],
}


def responses(whole: bool) -> list[bytes]:
    own = machine("openai")
    events = [*own.start(), *own.text("Hi."), *own.tool_call(0, "call_1", "look", '{"a":1}')]
    events += own.finish("stop")
    return [encode(own.snapshot)] if whole else [encode(event) for event in events]


def gemini_frames(whole: bool) -> list[bytes]:
    text = {"text": "Hi."}
    called = {"functionCall": {"id": "call_1", "name": "look", "args": {"a": 1}}}
    if whole:
        return [gemini.chunk(text, called, finish="STOP")]
    return [gemini.chunk(text), gemini.chunk(called), gemini.chunk(finish="STOP")]


def anthropic_frames(whole: bool) -> list[bytes]:
    if not whole:
        blocks = [*anthropic.text(0, "Hi."), *anthropic.tool(1, "call_1", "look", '{"a":1}')]
        return [anthropic.start(), *blocks, *anthropic.stop("tool_use")]
    called = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"a": 1}}
    return [
        anthropic.frame("message", content=[{"type": "text", "text": "Hi."}, called], stop_reason="tool_use")
    ]


def chat_frames(whole: bool) -> list[bytes]:
    if whole:
        return [chat.completion("tool_calls", content="Hi.", tool_calls=[CALL])]
    streamed = {**CALL, "index": 0}
    return [chat.chunk(content="Hi."), chat.calls(streamed), chat.chunk("tool_calls"), chat.DONE]


FRAMES: dict[str, Callable[[bool], list[bytes]]] = {
    "chat": chat_frames,
    "anthropic": anthropic_frames,
    "gemini": gemini_frames,
    "responses": responses,
}
# an answer without content and without a reason why it ended
EMPTY: dict[str, list[bytes]] = {
    "chat": [chat.chunk(role="assistant", content=""), chat.DONE],
    "anthropic": [anthropic.start(), anthropic.frame("message_stop")],
    "gemini": [gemini.chunk()],
}


class Rounds(StreamFilter):
    """Begins the output with a preface where there is one, keeps back the end of all answers but the last,
    and the calls of those: they run here."""

    def __init__(self, preface: bool, earlier: int) -> None:
        super().__init__(machine("openai"))
        self._preface = preface
        self.earlier = earlier

    def start(self) -> list[Event]:
        events = super().start()
        return events + super().item(PREFACE) if self._preface else events

    def tool_call(self, *given: Any, **named: Any) -> list[Event]:
        return [] if self.earlier else super().tool_call(*given, **named)

    def tool_call_done(self, index: int, *, cut: bool = False) -> list[Event]:
        return [] if self.earlier else super().tool_call_done(index, cut=cut)

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        if not self.earlier:
            return super().finish(reason, incomplete=incomplete)
        self.earlier -= 1
        return self.block_done()


def read(dialect: str, stream: Rounds, frames: list[bytes]) -> None:
    """Feed an answer; as in the server, nothing is closed whose end was kept back."""
    inbound, earlier = BUILD[dialect](stream), stream.earlier
    for frame in frames:
        inbound.feed(frame)
    if stream.earlier == earlier:
        inbound.close()


@pytest.mark.parametrize("preface", [False, True], ids=["plain", "preface"])
@pytest.mark.parametrize("earlier", [0, 1, 2])
@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize("dialect", sorted(FRAMES))
def test_each_answer_is_read_whole(dialect: str, whole: bool, earlier: int, preface: bool) -> None:
    stream = Rounds(preface, earlier)
    for _ in range(earlier + 1):
        read(dialect, stream, FRAMES[dialect](whole))
    output = stream.snapshot.output
    texts = [item.content[0].text for item in output if isinstance(item, Message)]  # type: ignore[union-attr]
    called = [(item.name, json.loads(item.arguments)) for item in output if isinstance(item, FunctionCall)]
    assert texts == ["Hi."] * (earlier + 1)
    assert called == [("look", {"a": 1})]
    assert stream.snapshot.status == "completed"
    assert [str(case) for case in stream.diagnostics if case.kind in ("loss", "ignored")] == []


@pytest.mark.parametrize("preface", [False, True], ids=["plain", "preface"])
@pytest.mark.parametrize("earlier", [0, 1])
@pytest.mark.parametrize("dialect", sorted(EMPTY))
def test_an_empty_answer_is_a_failure_whatever_came_before(dialect: str, earlier: int, preface: bool) -> None:
    stream = Rounds(preface, earlier)
    for _ in range(earlier):
        read(dialect, stream, FRAMES[dialect](False))
    read(dialect, stream, EMPTY[dialect])
    assert stream.snapshot.status == "failed"
    assert stream.snapshot.error is not None
    assert stream.snapshot.error.code == "upstream_empty"


def test_an_answer_of_nothing_but_calls_that_a_filter_keeps_is_not_empty() -> None:
    stream = Rounds(preface=False, earlier=1)
    read("chat", stream, [chat.calls({**CALL, "index": 0}), chat.DONE])
    assert str(stream.phase) == "in_progress"  # the calls run, another answer follows


def test_a_message_behind_the_deltas_of_a_later_answer_repeats_those_alone() -> None:
    stream = Rounds(preface=False, earlier=1)
    read("chat", stream, [chat.chunk("stop", content="First."), chat.DONE])
    repeated = chat.frame(choices=[{"index": 0, "delta": {}, "message": {"content": "Hi."}}])
    read("chat", stream, [chat.chunk(content="Hi."), repeated, chat.chunk("stop"), chat.DONE])
    notes = [f"{case.kind} {case.where}: {case.what}" for case in stream.diagnostics]
    assert notes == ["ignored message: repeats the deltas"]
