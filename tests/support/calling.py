"""One answer with a text and two calls, in each dialect, streamed and whole."""

import json
from typing import Any, Final

from openresponses_bridge.dialects.anthropic_messages import Inbound as AnthropicInbound
from openresponses_bridge.dialects.bedrock_converse import Inbound as BedrockInbound
from openresponses_bridge.dialects.chat_completions import Inbound as ChatInbound
from openresponses_bridge.dialects.copilot import Inbound as CopilotInbound
from openresponses_bridge.dialects.gemini import Inbound as GeminiInbound
from openresponses_bridge.dialects.interactions import Inbound as InteractionsInbound
from openresponses_bridge.dialects.responses import Inbound as ResponsesInbound
from tests.support import anthropic, chat, converse, gemini

SAID, GIVEN, ARGUMENTS = "I look.", {"a": 1}, '{"a":1}'


def _chat(name: dict[str, Any], whole: bool, reason: str) -> list[Any]:
    end = "length" if reason else "tool_calls"
    calls = [
        chat.part(ARGUMENTS, id="call_1", index=0),
        chat.part(ARGUMENTS, name="look", id="call_2", index=1),
    ]
    calls[0]["function"] |= name
    if whole:
        return [chat.completion(end, content=SAID, tool_calls=calls)]
    return [chat.chunk(content=SAID), *map(chat.calls, calls), chat.chunk(end), chat.DONE]


def _anthropic(name: dict[str, Any], whole: bool, reason: str) -> list[Any]:
    end = "max_tokens" if reason else "tool_use"
    nameless = {"type": "tool_use", "id": "call_1", **name}
    named = {"type": "tool_use", "id": "call_2", "name": "look", "input": GIVEN}
    if whole:
        content = [{"type": "text", "text": SAID}, {**nameless, "input": GIVEN}, named]
        return [{"type": "message", "id": "m", "role": "assistant", "content": content, "stop_reason": end}]
    return [
        anthropic.start(),
        *anthropic.text(0, SAID),
        anthropic.frame("content_block_start", index=1, content_block={**nameless, "input": {}}),
        anthropic.delta(1, "input_json_delta", partial_json=ARGUMENTS),
        anthropic.closed(1),
        *anthropic.tool(2, "call_2", "look", ARGUMENTS),
        *anthropic.stop(end),
    ]


def _bedrock(name: dict[str, Any], whole: bool, reason: str) -> list[Any]:
    end = "max_tokens" if reason else "tool_use"
    nameless = {"toolUseId": "call_1", **name}
    if whole:
        calls = [{**nameless, "input": GIVEN}, {"toolUseId": "call_2", "name": "look", "input": GIVEN}]
        content = [{"text": SAID}, *({"toolUse": call} for call in calls)]
        return [{"output": {"message": {"role": "assistant", "content": content}}, "stopReason": end}]
    return [
        converse.start(),
        *converse.text(0, SAID),
        {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": nameless}}},
        converse.delta(1, toolUse={"input": ARGUMENTS}),
        converse.stop(1),
        *converse.call(2, "call_2", "look", ARGUMENTS),
        *converse.end(end),
    ]


def _gemini(name: dict[str, Any], whole: bool, reason: str) -> list[Any]:
    end = "MAX_TOKENS" if reason else "STOP"
    calls = [{"id": "call_1", **name, "args": GIVEN}, {"id": "call_2", "name": "look", "args": GIVEN}]
    parts: list[dict[str, Any]] = [{"text": SAID}, *({"functionCall": call} for call in calls)]
    if whole:
        return [gemini.chunk(*parts, finish=end)]
    return [*map(gemini.chunk, parts), gemini.chunk(finish=end)]


def _interactions(name: dict[str, Any], whole: bool, reason: str) -> list[Any]:
    steps: list[dict[str, Any]] = [
        {"type": "model_output", "content": [{"type": "text", "text": SAID}]},
        {"type": "function_call", "id": "call_1", **name, "arguments": GIVEN},
        {"type": "function_call", "id": "call_2", "name": "look", "arguments": GIVEN},
    ]
    status = "incomplete" if reason else "requires_action"
    if whole:
        return [{"object": "interaction", "id": "v1_a", "status": status, "steps": steps}]
    return [
        *(
            {"event_type": f"step.{verb}", "index": index, **({"step": step} if verb == "start" else {})}
            for index, step in enumerate(steps)
            for verb in ("start", "stop")
        ),
        {"event_type": "interaction.completed", "interaction": {"status": status}},
    ]


def _responses(name: dict[str, Any], whole: bool, reason: str) -> list[Any]:
    call = {"type": "function_call", "arguments": ARGUMENTS, "status": "completed"}
    text = {"type": "output_text", "text": SAID, "annotations": []}
    output: list[dict[str, Any]] = [
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]},
        {**call, "id": "fc_1", "call_id": "call_1", **name},
        {**call, "id": "fc_2", "call_id": "call_2", "name": "look"},
    ]
    status = "incomplete" if reason else "completed"
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status}
    response |= {"incomplete_details": {"reason": reason}} if reason else {}
    if whole:
        return [{**response, "output": output}]
    return [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        *(
            {"type": "response.output_item.done", "output_index": index, "item": item}
            for index, item in enumerate(output)
        ),
        {"type": f"response.{status}", "response": {**response, "output": []}},
    ]


def _copilot(name: dict[str, Any], whole: bool, reason: str) -> list[Any]:
    calls = [
        {"id": "call_1", **name, "arguments": ARGUMENTS},
        {"id": "call_2", "name": "look", "arguments": ARGUMENTS},
    ]
    end = {"reason": "length" if reason else "tool_calls", "index": 0}
    if whole:
        return [{"delta": {"text": SAID}}, {**end, "toolCalls": calls}]
    begun = {"text": "", "beginToolCalls": [{"id": "call_1", **name}]}
    handed_over = {"text": "", "copilotToolCalls": calls}
    return [{"delta": {"text": SAID}}, {"delta": begun}, {"delta": handed_over}, end]


CALLING: Final[dict[str, Any]] = {
    "anthropic": (AnthropicInbound, _anthropic),
    "bedrock": (BedrockInbound, _bedrock),
    "chat": (ChatInbound, _chat),
    "copilot": (CopilotInbound, _copilot),
    "gemini": (GeminiInbound, _gemini),
    "interactions": (InteractionsInbound, _interactions),
    "responses": (ResponsesInbound, _responses),
}
"""Dialect → its inbound, and the frames of the answer: `name` are the fields of the first call that name it,
the second one is `look`; `reason` is why the answer ended if it did not end by itself."""


def with_functions(frames: list[Any]) -> list[Any]:
    """The frames with the name and the arguments of each call that has a name within `function`."""
    return [_within_function(json.loads(each) if isinstance(each, bytes) else each) for each in frames]


def _within_function(value: Any) -> Any:
    if isinstance(value, list):
        return [_within_function(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("name") not in ("find", "look"):
        return {field: _within_function(each) for field, each in value.items()}
    fields = ("name", "arguments", "input")
    function = {field: value[field] for field in fields if field in value}
    return {**{field: each for field, each in value.items() if field not in fields}, "function": function}


def with_arguments_as(name: str, frames: list[Any]) -> list[Any]:
    """The frames in which the arguments of each named call are under this field."""
    return [
        _renamed(name, json.loads(each) if isinstance(each, bytes) else each)
        for each in frames
        if each != chat.DONE
    ]


def _renamed(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(name, each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("name") not in ("find", "look"):
        return {field: _renamed(name, each) for field, each in value.items()}
    return {
        name if field in ("arguments", "input", "args") and each else field: each
        for field, each in value.items()
    }
