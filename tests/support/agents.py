"""An agent over a scripted upstream: a loop, its driver, tools in a folder, the service in this process."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct, field

from openresponses_agent.loop import LoopEntry, LoopResult, LoopState, ToolCallingLoop
from openresponses_agent.prompt import PromptContext, PromptRenderer
from openresponses_agent.tools.errors import CancellationToken
from openresponses_agent.tools.registry import ToolRegistry
from openresponses_agent.tools.service import ToolsService
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_cli.agents.driving import AskYesNo, LoopDriver, call_with_anyio
from openresponses_cli.agents.model import ServiceModel
from openresponses_server.requests.composition import compose, service_lifespan
from openresponses_server.settings import Capabilities, Settings, UpstreamSettings
from tests.support.loops import Answer
from tests.support.serving import PATIENT
from tests.support.upstream import CUT, DONE, JSON, Script, ScriptedUpstream, Step, call, chunk, frame

MODEL = "scripted"
DIALECTS = ("anthropic", "chat")


def scripted(dialect: str, answers: Sequence[Answer]) -> list[Script]:
    """The answers, streamed in the way of an upstream of this dialect."""
    return [Script(_FRAMES[dialect](answer)) for answer in answers]


def whole(answer: Answer) -> Script:
    """The whole answer of a Chat Completions upstream that does not stream."""
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id, name, arguments in answer.calls
    ]
    message = {"role": "assistant", "content": answer.text or None} | ({"tool_calls": calls} if calls else {})
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [choice],
    }
    return Script([json.dumps(body).encode()], 200, JSON)


def _chat(answer: Answer) -> list[Step]:
    steps: list[Step] = [chunk(role="assistant", content="")]
    if answer.text:
        half = len(answer.text) // 2
        steps += [chunk(content=piece) for piece in (answer.text[:half], answer.text[half:]) if piece]
    for index, (call_id, name, raw) in enumerate(answer.calls):
        arguments = raw if isinstance(raw, str) else json.dumps(raw)
        steps += [call(index, "", name, call_id), call(index, arguments[:7]), call(index, arguments[7:])]
    if answer.cut:
        return [*steps, CUT]
    steps.append(chunk(answer.reason or ("tool_calls" if answer.calls else "stop")))
    if answer.usage is not None:
        sums = {"prompt_tokens": answer.usage.input_tokens, "completion_tokens": answer.usage.output_tokens}
        steps.append(frame(choices=[], usage=sums | {"total_tokens": sum(sums.values())}))
    return [*steps, DONE]


def _event(**fields: Any) -> bytes:
    return f"event: {fields['type']}\ndata: {json.dumps(fields)}\n\n".encode()


def _block(index: int, block: dict[str, Any], deltas: Sequence[dict[str, Any]]) -> list[Step]:
    return [
        _event(type="content_block_start", index=index, content_block=block),
        *(_event(type="content_block_delta", index=index, delta=delta) for delta in deltas),
        _event(type="content_block_stop", index=index),
    ]


def _anthropic(answer: Answer) -> list[Step]:
    usage = {"input_tokens": 10 if answer.usage is None else answer.usage.input_tokens, "output_tokens": 1}
    head = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "usage": usage,
    }
    steps: list[Step] = [_event(type="message_start", message=head | {"content": []})]
    blocks: list[list[Step]] = []
    if answer.thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": answer.thinking},
            {"type": "signature_delta", "signature": "c2lnbmF0dXJl"},
        ]
        blocks.append(_block(0, {"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if answer.text:
        text = [{"type": "text_delta", "text": answer.text}]
        blocks.append(_block(len(blocks), {"type": "text", "text": ""}, text))
    for call_id, name, raw in answer.calls:
        arguments = raw if isinstance(raw, str) else json.dumps(raw)
        pieces = [
            {"type": "input_json_delta", "partial_json": piece} for piece in (arguments[:7], arguments[7:])
        ]
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        blocks.append(_block(len(blocks), block, pieces))
    for each in blocks:
        steps += each
    if answer.cut:
        return [*steps, CUT]
    reason = {"length": "max_tokens", None: "tool_use" if answer.calls else "end_turn"}[answer.reason]
    ending = {"stop_reason": reason, "stop_sequence": None}
    steps.append(_event(type="message_delta", delta=ending, usage={"output_tokens": 5}))
    return [*steps, _event(type="message_stop")]


def _gemini(answer: Answer) -> list[Step]:
    """Sign the calls, as Gemini 3 does."""
    parts: list[dict[str, Any]] = [{"text": answer.text}] if answer.text else []
    for call_id, name, raw in answer.calls:
        arguments = json.loads(raw) if isinstance(raw, str) else raw
        signed = (
            {"thoughtSignature": "c2lnbmF0dXJl"} if not any("functionCall" in each for each in parts) else {}
        )
        parts.append({"functionCall": {"id": call_id, "name": name, "args": arguments}, **signed})
    prompt_tokens = 10 if answer.usage is None else answer.usage.input_tokens
    counts = {
        "promptTokenCount": prompt_tokens,
        "candidatesTokenCount": 5,
        "totalTokenCount": prompt_tokens + 5,
    }
    pieces = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    end = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": counts}
    return [f"data: {json.dumps(each)}\n\n".encode() for each in (*pieces, end)]


_FRAMES: dict[str, Callable[[Answer], list[Step]]] = {
    "anthropic": _anthropic,
    "chat": _chat,
    "gemini": _gemini,
}


class Agent(Struct):
    """An agent for tests: `run` drives a loop to its end; `entries` are what the loop recorded, `notes` what
    the requests lost."""

    service: Any
    tools: ToolRegistry
    entries: list[LoopEntry]
    token: CancellationToken
    workspace: str = ""
    notes: Diagnostics = field(default_factory=Diagnostics)

    async def run(
        self,
        query: str = "Do it",
        *,
        confirm: Any = None,
        ask_user: AskYesNo | None = None,
        stateful: bool = False,
        renderer: PromptRenderer | None = None,
        **options: Any,
    ) -> LoopResult:
        loop = ToolCallingLoop(
            PromptContext(system=["You are a test."], query=query, tools=list(self.tools)),
            renderer or PromptRenderer(),
            state=LoopState(list(self.entries)),
            record=self.entries.append,
            parallel=lambda name: (tool := self.tools.get(name)) is not None and tool.parallel,
            token=self.token,
            retry_delay=0.01,
            stateful=stateful,
            clock=lambda: 1_700_000_000.0,
            **options,
        )
        tools = ToolsService(self.tools, call=call_with_anyio, confirm=confirm)
        model = ServiceModel(self.service, MODEL, stateful=stateful)
        self.notes = model.diagnostics
        return await LoopDriver(loop, model, tools, ask_user=ask_user).run()


@asynccontextmanager
async def agent(
    upstream: ScriptedUpstream, dialect: str, tools: ToolRegistry, able: Capabilities | None = None
) -> AsyncIterator[Agent]:
    """An agent with these abilities, whose model is the upstream's script under `MODEL`."""
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url, dialect=dialect, name=MODEL)],
        models={} if able is None else {MODEL: able},
        timeouts=PATIENT,
    )
    service = compose(settings)
    async with service_lifespan(service):
        yield Agent(service, tools, [], CancellationToken())
