"""Requests and answers of Responses, each with one field of a type, and the fate of the field between a
client and an upstream of that API."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from openresponses_bridge.dialects.responses import Inbound, ResponsesOptions, to_responses
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.ids import prefix_of
from tests.support.machines import machine, plain
from tests.support.typed_fields import Path, Sample

Json = dict[str, Any]
NAMED: Final[Json] = {
    "name": "look",
    "call_id": "c1",
    "image_url": "https://a.example/a.png",
    "file_url": "https://a.example/a.pdf",
    "file_data": "data:application/pdf;base64,AAAA",
    "max_output_tokens": 100,
    "approval_request_id": "mcpr_1",
}
_HI: Final[Json] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
_OUTPUT: Final[Json] = {"call_id": "c1", "output": "seen"}
_PAIRS: Final[dict[str, Json]] = {
    "function_call": {"call_id": "c1", "name": "look", "arguments": "{}"},
    "custom_tool_call": {"call_id": "c1", "name": "look", "input": "x"},
    "shell_call": {"call_id": "c1", "action": {"commands": ["ls"]}},
    "local_shell_call": {
        "id": "lsh_1", "call_id": "c1", "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    "tool_search_call": {"call_id": "c1", "arguments": {}, "execution": "client"},
    "apply_patch_call": {
        "call_id": "c1", "status": "completed", "operation": {"type": "delete_file", "path": "a"}
    },
}  # fmt: skip
_OUTPUTS: Final = {"tool_search_call": "tool_search_output"}
_ANSWERS: Final[dict[str, Json]] = {
    "shell_call": {"output": [{"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    "local_shell_call": {"id": "lsh_1", "output": "seen"},
    "apply_patch_call": {"status": "completed"},
    "tool_search_call": {"tools": [], "execution": "client"},
}
_BETAS: Final = "betas"
"""Fields that the SDK sends as a header: `tests/server/requests/test_native.py` sends them."""
REQUEST_ROWS: Final = {
    "stream_options": "said of a stream alone, which the test does not ask for",
    "tool_choice.tools": "a tool is named by its type and its name",
    "input.message.content.logprobs": "nothing that a request can say",
}


def in_conversation(item: Json) -> list[Json]:
    """A conversation in which such an item is allowed."""
    kind = str(item.get("type", "message"))
    if kind.startswith("tool_search"):
        item = {"execution": "client", "call_id": "c1"} | item
    for call, fields in _PAIRS.items():
        output = _OUTPUTS.get(call, f"{call}_output")
        if kind == output:
            return [_HI, {"type": call, **fields}, {"call_id": "c1"} | item]
        if kind == call:
            return [_HI, item, {"type": output, **_OUTPUT, **_ANSWERS.get(kind, {})}]
    return [_HI, item]


def bodies(bases: Iterable[Sample], items: Iterable[Sample]) -> Iterator[tuple[str, Json]]:
    """(the name of a field, a request that has it), for the types of requests and of items."""
    for path, value in bases:
        if path[0] not in ("input", _BETAS):
            yield ".".join(path), {"model": "gpt-6", "input": [_HI], path[0]: value[path[0]]}
    for path, value in items:
        yield _body_with(path, value)


def _body_with(path: Path, value: Json) -> tuple[str, Json]:
    """(the name of a field of an item, a request with the item)."""
    kind = str(value.get("type", "message"))
    own = value | {"id": f"{prefix_of(kind)}_1"} if "id" in value else value
    return ".".join((f"input.{kind}", *path)), {"model": "gpt-6", "input": in_conversation(own)}


def through(body: Json) -> tuple[Json, list[str]]:
    try:
        payload, written = to_responses(decode_request(encode(body)), options=ResponsesOptions(stateful=True))
    except BridgeError as error:
        return {}, [f"refused: {error.message}"]
    return json.loads(encode(payload)), [str(case) for case in written]


OURS: Final = {"id", "object", "created_at", "model"}
"""Fields of an answer that the bridge sets itself: the response's id and time, and the client's name for the
model."""
ANSWER_ROWS: Final = {
    "completed_at": "when the answer was complete here",
    "output.mcp_approval_response": "an item of a request, whose id is made anew",
}
ANSWER: Final[Json] = {
    "id": "resp_9", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-6",
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {},
    "output": [
        {
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "so", "annotations": []}],
        }
    ],
    "usage": {
        "input_tokens": 3, "output_tokens": 3, "total_tokens": 6,
        "input_tokens_details": {"cached_tokens": 3}, "output_tokens_details": {"reasoning_tokens": 3},
    },
}  # fmt: skip
THOUGHT: Final[Json] = {
    "type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "so"}],
}  # fmt: skip
NAMED_OF_ANSWERS: Final = NAMED | {"status": "completed", "total_tokens": 6}
_NOT_ECHOED: Final = {"service_tier", "reasoning", "moderation", "prompt", "conversation"}
_ECHOED_BESIDE: Final = {"presence_penalty", "frequency_penalty"}


def answers(
    responses: Iterable[Sample], of_requests: Collection[str], *, streamed: bool
) -> Iterator[tuple[str, Json]]:
    """Yield (the name of a field, an answer that has it), for the types of responses. `of_requests` are the
    fields of requests: a response repeats most of them, and the bridge does that itself."""
    echoed = set(of_requests) - _NOT_ECHOED | _ECHOED_BESIDE
    for path, value in responses:
        if path[0] not in echoed:
            yield from _answer_with(path, value, streamed=streamed)


def _answer_with(path: Path, value: Json, *, streamed: bool) -> Iterator[tuple[str, Json]]:
    """Yield (the name of a field of a response, an answer that has it), unless the bridge answers the field
    itself."""
    field, content = ".".join(path), value[path[0]]
    if path[0] == "output":
        (item,) = content
        item |= {"id": f"{prefix_of(item['type'])}_1"} if "id" in item else {}
        parts = item.get(path[1]) if path[1] in ("content", "summary", "output") else None
        part = [parts[0].get("type", "")] if len(path) > 2 and isinstance(parts, list) else []
        field = ".".join(("output", item["type"], path[1], *part, *path[2:]))
        yield field, {**ANSWER, "output": [item]}
    elif path[0] == "error":
        if streamed:  # a whole answer with an error is a refusal, which the server handles
            yield field, {**ANSWER, "status": "failed", "error": content}
    elif path[0] == "incomplete_details":
        cut = [{**ANSWER["output"][0], "status": "incomplete"}]
        yield field, {**ANSWER, "status": "incomplete", "output": cut, path[0]: content}
    else:
        yield field, {**ANSWER, path[0]: content}


def answered(answer: Json, *, streamed: bool) -> tuple[Json, list[str]]:
    stream = machine("openai")
    inbound = Inbound(stream)
    frames = [answer]
    if streamed:
        begun = {**answer, "status": "in_progress", "output": [], "usage": None, "error": None}
        kinds = (("response.created", begun), (f"response.{answer['status']}", answer))
        frames = [
            {"type": kind, "sequence_number": number, "response": each}
            for number, (kind, each) in enumerate(kinds)
        ]
    for frame in frames:
        inbound.feed(encode(frame))
    inbound.close()
    return plain(stream.snapshot), [case.where for case in stream.diagnostics if case.kind == "loss"]
