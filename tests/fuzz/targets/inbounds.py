"""Invariant: whatever an upstream sends, an inbound ends its stream exactly once, with a terminal event;
every event is valid and their fold equals the snapshot; the result does not depend on how the bytes are
split; and nothing is raised."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from openresponses_bridge import ResponseAccumulator, ResponseStreamStateMachine, SSEDecoder, StreamValidator
from openresponses_bridge.dialects import (
    anthropic_messages,
    chat_completions,
    codex,
    copilot,
    responses,
    vscode,
)
from openresponses_bridge.dialects.table import TABLE, dialects
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.sse import encode_data
from openresponses_bridge.state import TERMINAL_PHASES
from tests.fuzz.core import Target
from tests.fuzz.outward import sent_on
from tests.support import anthropic, chat, damaged_responses
from tests.support import codex as notes
from tests.support.checked_inbound import Frame, encoded
from tests.support.machines import machine as new_machine
from tests.support.machines import same
from tests.support.model_frames import frames
from tests.support.model_scripts import SCRIPTS

Feed = Callable[[bytes, str], list[Event]]
_FEW = 40  # frames up to which the fold is compared after each frame; beyond, only at the end


class _Watched:
    """An inbound, and everything that its events are compared with."""

    def __init__(self, build: Callable[[ResponseStreamStateMachine], Any], named: bool, wire: str) -> None:
        self.machine = new_machine(wire)
        self.inbound = build(self.machine)
        self.events: list[Event] = []
        self._named = named
        self._fold, self._validator = ResponseAccumulator(), StreamValidator(wire)  # type: ignore[arg-type]
        self._fed = 0

    def feed(self, data: bytes, name: str) -> None:
        self._fed += 1
        self._take(self.inbound.feed(data, name) if self._named else self.inbound.feed(data))

    def close(self) -> list[bytes]:
        self._fed = 0
        self._take(self.inbound.close())
        assert not (left := self._validator.close()), [str(each) for each in left]
        assert self.machine.phase in TERMINAL_PHASES, self.machine.phase
        assert not self.inbound.close()
        return [encode(event) for event in self.events]

    def _take(self, events: list[Event]) -> None:
        for event in events:
            assert event.sequence_number == len(self.events), "E2"
            self.events.append(event)
            self._fold.feed(event)
            assert not (broken := self._validator.feed(event)), [str(each) for each in broken]
        if events and self._fed < _FEW:
            assert same(self._fold.response, self.machine.snapshot), "E1"


def _sse_frames(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, str]]:
    decoder = SSEDecoder()
    try:
        for piece in pieces:
            yield from ((frame.data, frame.event) for frame in decoder.feed(piece))
        yield from ((frame.data, frame.event) for frame in decoder.close())
    except WireError:
        return


def _lines(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, str]]:
    return ((line, "") for line in b"".join(pieces).split(b"\n") if line.strip())


def any_stream(
    data: bytes, build: Callable[[ResponseStreamStateMachine], Any], named: bool = False, lines: bool = False
) -> None:
    for wire in ("openresponses", "openai"):
        cuts = [[data]]
        if not lines:
            cuts.append([data[at : at + 3] for at in range(0, len(data), 3)])
            if b"\r" not in data:
                cuts.append([piece + b"\n\n" for piece in data.split(b"\n\n")])
        answers = []
        for pieces in cuts if wire == "openai" else cuts[:1]:
            watched = _Watched(build, named, wire)
            for frame in (_lines if lines else _sse_frames)(pieces):
                watched.feed(*frame)
            answers.append(watched.close())
        assert all(answer == answers[0] for answer in answers)
        sent_on(watched.events)


# ── seeds ──────────────────────────────────────────────────────────────────────────────────────────────
def _sse(*frames: Frame, named: bool = False) -> bytes:
    sent = b""
    for frame in frames:
        data = encoded(frame)
        name = b"event: " + json.loads(data)["type"].encode() + b"\n" if named else b""
        sent += name + encode_data(data)
    return sent


def _json_lines(*frames: Frame) -> bytes:
    return b"\n".join(map(encoded, frames))


_CHAT = (
    _sse(chat.chunk(role="assistant", content=""), chat.chunk(content="Hi"), chat.chunk("stop"), chat.DONE),
    _sse(
        chat.chunk(content="<think>a"),
        chat.chunk(content="b</think> "),
        chat.chunk(content="c", reasoning_content="d", refusal="e"),
        chat.frame(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}),
        chat.chunk("length"),
    ),
    _sse(
        chat.calls(
            chat.part('{"a":', name="f", id="c1", index=0), chat.part("1}", name="g", id="c2", index=1)
        ),
        chat.calls(chat.part("2}", index=0), {"function": None, "index": None, "id": ""}),
        chat.chunk("tool_calls"),
        chat.DONE,
    ),
    _sse(
        chat.completion(
            content="whole", tool_calls=[{"id": "a", "function": {"name": "f", "arguments": "{}"}}]
        )
    ),
    _sse({"error": {"message": "no", "code": 429, "type": "rate", "param": None}}),
)
_ANTHROPIC = (
    _sse(
        anthropic.start(),
        *anthropic.thinking(0, "hm", "m"),
        *anthropic.text(1, "Hi ", "there"),
        *anthropic.tool(2, "t1", "f", '{"a"', ":1}"),
        *anthropic.stop("tool_use"),
        named=True,
    ),
    _sse(
        anthropic.start(cache_read_input_tokens=2),
        anthropic.opened(0, "redacted_thinking", data="eA=="),
        anthropic.closed(0),
        anthropic.opened(1, "server_tool_use", id="s", name="web_search", input={}),
        anthropic.delta(1, "input_json_delta", partial_json='{"query":"q"}'),
        anthropic.closed(1),
        anthropic.opened(
            2,
            "web_search_tool_result",
            tool_use_id="s",
            content=[{"type": "web_search_result", "url": "u", "title": "t"}],
        ),
        anthropic.closed(2),
        anthropic.opened(3, "text", text="", citations=[]),
        anthropic.delta(3, "citations_delta", citation={"type": "char_location", "cited_text": "c"}),
        anthropic.opened(4, "compaction", content=None),
        anthropic.delta(4, "compaction_delta", content="short"),
        *anthropic.stop("max_tokens", cache_creation_input_tokens=None),
        named=True,
    ),
    _sse(
        anthropic.frame("ping"), anthropic.frame("error", error={"type": "overloaded_error", "message": "m"})
    ),
)
RESPONSES = (
    _sse(
        damaged_responses.created(),
        damaged_responses.added(damaged_responses.message(status="in_progress")),
        damaged_responses.say("Hel"),
        damaged_responses.say("lo"),
        damaged_responses.whole("output_text", "text", "Hello"),
        damaged_responses.done(damaged_responses.message("Hello")),
        damaged_responses.ended(
            "completed", damaged_responses.message("Hello"), usage={"input_tokens": 1, "output_tokens": 2}
        ),
        named=True,
    ),
    _sse(
        damaged_responses.created(),
        damaged_responses.added(damaged_responses.reasoning()),
        damaged_responses.delta("reasoning_summary_text", "s", id="rs_u"),
        damaged_responses.delta("reasoning_text", "r", id="rs_u"),
        damaged_responses.done(damaged_responses.reasoning("r", summary=["s"], encrypted_content="x")),
        damaged_responses.added(damaged_responses.call(), 1),
        damaged_responses.argue('{"a":1', 1),
        damaged_responses.done(damaged_responses.call('{"a":1}'), 1),
        damaged_responses.added(
            {"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "n", "input": ""}, 2
        ),
        damaged_responses.delta("custom_tool_call_input", "in", 2, "ct"),
        damaged_responses.ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
        named=True,
    ),
    _sse(
        {"type": "error", "error": {"type": "t", "code": "c", "message": "m"}},
        damaged_responses.ended("failed"),
    ),
)
_CODEX = (
    _json_lines(
        notes.started(),
        notes.item("started", "agentMessage", "msg_a", text=""),
        notes.said("Hel"),
        notes.said("lo"),
        notes.item("completed", "agentMessage", "msg_a", text="Hello"),
        notes.item("started", "commandExecution", "cmd", command="ls"),
        notes.item("completed", "commandExecution", "cmd", command="ls", aggregatedOutput="a", exitCode=0),
        notes.notify("item/reasoning/textDelta", itemId="rs", delta="hm", contentIndex=0),
        notes.notify("thread/tokenUsage/updated", tokenUsage={"total": notes.counts(3, 2)}),
        notes.ended(),
    ),
    _json_lines(
        {
            "method": "codex/event/agent_message_delta",
            "params": {"msg": {"type": "agent_message_delta", "delta": "a"}},
        },
        {"method": "codex/event/task_complete", "params": {"msg": {"type": "task_complete"}}},
    ),
    _json_lines(
        {"method": "response.output_text.delta", "params": {"delta": "a"}},
        {"method": "response.completed", "params": {}},
    ),
    _json_lines(
        notes.started(), {"method": "error", "params": {"error": {"message": "no"}}}, notes.ended("failed")
    ),
)
_COPILOT = (
    _json_lines(
        {"text": "Hi", "index": 0, "delta": {"text": "Hi", "thinking": {"id": "t", "text": "hm"}}},
        {"text": "", "delta": {"text": "", "beginToolCalls": [{"name": "find", "id": "call_a"}]}},
        {
            "delta": {
                "text": "",
                "copilotToolCallStreamUpdates": [{"id": "call_a", "name": "find", "arguments": "{"}],
            }
        },
        {
            "delta": {
                "text": "",
                "copilotToolCalls": [{"id": "call_a", "name": "find", "arguments": '{"a":1}'}],
            }
        },
        {"reason": "stop", "index": 0, "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    ),
    _json_lines({"text": "a"}, {"text": "ab"}, {"reason": "length"}),
)
_VSCODE = (
    _json_lines(
        {"type": "LanguageModelTextPart", "value": "Hi"},
        {"type": "LanguageModelThinkingPart", "value": ["a", "b"], "id": "t", "metadata": {"x": 1}},
        {"type": "LanguageModelToolCallPart", "callId": "gw-call", "name": "f", "input": {"a": 1}},
        {"type": "LanguageModelDataPart", "mimeType": "usage", "data": "eyJwcm9tcHRfdG9rZW5zIjogMX0="},
        {"type": "LanguageModelDataPart", "mimeType": "image/png", "data": [137, 80, 78, 71]},
    ),
    b'{"type":"LanguageModelDataPart","mimeType":"stateful_marker","data":"bVxyZXNwXzE="}',
)
WORDS = (b"[DONE]", b"event: ", b"data: ", b'"index":', b'"id":', b'"type":', b'"delta":', b'{"text":')
_ADOPTING: Any = partial(responses.Inbound, adopt=True)
TARGETS = [
    Target("chat", partial(any_stream, build=chat_completions.Inbound), _CHAT, WORDS),
    Target("anthropic", partial(any_stream, build=anthropic_messages.Inbound, named=True), _ANTHROPIC, WORDS),
    Target("responses", partial(any_stream, build=_ADOPTING, named=True), RESPONSES, WORDS),
    Target("codex", partial(any_stream, build=codex.Inbound, lines=True), _CODEX, WORDS),
    Target("copilot", partial(any_stream, build=copilot.Inbound, lines=True), _COPILOT, WORDS),
    Target("vscode", partial(any_stream, build=vscode.Inbound, lines=True), _VSCODE, WORDS),
]
_LISTED = {each.name for each in TARGETS}
TARGETS += [
    Target(
        each.name,
        partial(any_stream, build=dialects()[each.name].capture.inbound),
        tuple(_sse(*frames(each.package, steps)) for steps in SCRIPTS.values()),
        WORDS,
    )
    for each in TABLE
    if each.name not in _LISTED
]
