"""Requests and answers of Messages, each with one field of a type, and the fate of the field between a client
and an upstream of that API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from openresponses_bridge.dialects.anthropic_messages import (
    Inbound,
    Outbound,
    encode_sse,
    from_messages,
    message,
    to_messages,
)
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer
from tests.support.anthropic import parse_sse
from tests.support.machines import machine
from tests.support.typed_fields import Sample

Json = dict[str, Any]
SEALER: Final = Sealer()
_CLOSED: Final = {"type": "object", "properties": {}, "additionalProperties": False}
NAMED: Final[Json] = {
    "media_type": "image/png",
    "data": "AAAA",
    "url": "https://a.example/b.png",
    "name": "look",
    "id": "t1",
    "tool_use_id": "t1",
    "budget_tokens": 1024,
    "max_tokens": 2048,
    "input_schema": _CLOSED,
}
_TOOL: Final = {"name": "look", "input_schema": _CLOSED}
_CALL: Final = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
_RESULT: Final = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r"}]}
NAMED_OF_ANSWERS: Final = {name: each for name, each in NAMED.items() if name != "media_type"}
HEADERS: Final = {"betas", "user_profile_id", "workspace_id"}
"""Fields that the SDK sends as headers: `tests/server/requests/test_native.py` sends them."""
REQUEST_ROWS: Final = {
    "thread": "answered here: a conversation is continued from the store",
    "thinking": "the models that take no budget get an effort, a loss",
}
ANSWER_ROWS: Final[dict[str, str]] = {}
OURS: Final = {"id", "model"}
"""Fields of an answer that the bridge sets itself: the response's id, by which clients continue it, and the
client's name for the model."""
_AT_START: Final[tuple[str, ...]] = ("id", "type", "role", "model", "diagnostics")
_IN_DELTA: Final[tuple[str, ...]] = ("stop_reason", "stop_sequence", "stop_details", "container")
_AT_END: Final[tuple[str, ...]] = ("context_management", "input_transformations")
"""The places of an answer's fields in a stream: `usage` is at both ends, and `content` between them."""


def said(role: str, *blocks: Json) -> Json:
    return {"role": role, "content": list(blocks)}


def words(text: str) -> Json:
    return {"type": "text", "text": text}


def conversation(block: Json) -> list[Json]:
    """A conversation in which such a block is allowed."""
    kind = block["type"]
    first = said("user", words("a"))
    if kind == "tool_use":
        return [first, said("assistant", block), said("user", _RESULT)]
    if kind == "tool_result":
        return [first, said("assistant", _CALL), said("user", block)]
    if kind in ("tool_addition", "tool_removal"):
        return [first, said("system", block)]
    if kind in ("image", "document", "search_result", "container_upload"):
        return [said("user", block)]
    if kind == "text":
        return [first, said("assistant", block), said("user", words("b"))]
    return [first, said("assistant", block, words("so")), said("user", words("b"))]


def bodies(
    bases: Iterable[Sample], blocks: Iterable[Sample], system: Iterable[Sample]
) -> Iterator[tuple[str, Json]]:
    """(the name of a field, a request that has it), for the types of requests, of blocks and of system
    messages."""
    base: Json = {"model": "claude-opus-5", "max_tokens": 2048, "messages": [said("user", words("Hi"))]}
    for path, value in bases:
        if path[0] not in (HEADERS | {"messages"}):
            tools = {"tools": [_TOOL]} if path[0] == "tool_choice" else {}
            yield ".".join(path), {**base, **tools, path[0]: value[path[0]]}
    for path, block in blocks:
        field = ".".join((f"messages.{block['type']}", *path))
        yield field, {**base, "tools": [_TOOL], "messages": conversation(block)}
    for path, value in system:
        if path[0] != "content":
            messages = [said("user", words("a")), value | {"content": [words("b")]}]
            yield f"messages.system.{'.'.join(path)}", {**base, "messages": messages}


def through(body: Json) -> tuple[Json, list[str]]:
    try:
        request, read = from_messages(encode(body), SEALER)
        payload, written = to_messages(request, sealer=SEALER)
    except BridgeError as error:
        return {}, [f"refused: {error.message}"]
    return json.loads(encode(payload)), [case.where for each in (read, written) for case in each.of("loss")]


def answers(of_message: Iterable[Sample]) -> Iterator[tuple[str, Json]]:
    """(the name of a field, an answer that has it), for the type of answers."""
    base: Json = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5",
        "content": [words("so")], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }  # fmt: skip
    for path, value in of_message:
        if path[0] == "content":
            block = value["content"][0]
            ended = "tool_use" if block["type"] == "tool_use" else "end_turn"
            field = ".".join(("content", block["type"], *path[1:]))
            yield field, {**base, "content": [block], "stop_reason": ended}
        elif path[0] == "usage":
            yield ".".join(path), {**base, "usage": base["usage"] | value["usage"]}
        elif path[0] == "stop_details":
            yield (
                ".".join(path),
                {**base, "stop_reason": "refusal", **{"stop_details": value["stop_details"]}},
            )
        else:
            ended = "stop_sequence" if path[0] == "stop_sequence" else "end_turn"
            yield ".".join(path), {**base, "stop_reason": ended, path[0]: value[path[0]]}


def streamed(answer: Json) -> list[Json]:
    """The answer as a stream of the API."""
    start, end, beside = (
        {name: answer[name] for name in names if name in answer} for names in (_AT_START, _IN_DELTA, _AT_END)
    )
    begun = {**start, "content": [], "stop_reason": None, "usage": {**answer["usage"], "output_tokens": 1}}
    frames: list[Json] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(answer["content"]):
        opened, deltas = dict(block), list[Json]()
        kind = block["type"]
        if kind == "text":
            opened |= {"text": ""}
            deltas = [{"type": "text_delta", "text": block["text"]}]
            cited = opened.pop("citations", None) or ()
            deltas += [{"type": "citations_delta", "citation": each} for each in cited]
        elif kind == "thinking":
            opened |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif "input" in block:
            opened |= {"input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        at = {"index": index}
        frames.append({"type": "content_block_start", **at, "content_block": opened})
        frames += [{"type": "content_block_delta", **at, "delta": each} for each in deltas]
        frames.append({"type": "content_block_stop", **at})
    frames.append({"type": "message_delta", "delta": end, "usage": answer["usage"], **beside})
    return [*frames, {"type": "message_stop"}]


def folded(chunks: list[Json]) -> Json:
    """The message that a stream's frames add up to, with all of their fields."""
    whole: Json = {}
    for chunk in chunks:
        kind = chunk["type"]
        if kind == "message_start":
            whole = {**chunk["message"], "content": []}
        elif kind == "content_block_start":
            whole["content"].append(dict(chunk["content_block"]))
        elif kind == "content_block_delta":
            block, delta = whole["content"][-1], chunk["delta"]
            if delta["type"] == "input_json_delta":
                block["_json"] = block.get("_json", "") + delta["partial_json"]
            elif delta["type"] == "citations_delta":
                block.setdefault("citations", []).append(delta["citation"])
            else:
                for name, text in delta.items():
                    if name != "type":
                        block[name] = (block.get(name) or "") + text
        elif kind == "content_block_stop" and "_json" in whole["content"][-1]:
            block = whole["content"][-1]
            block["input"] = json.loads(block.pop("_json"))
        elif kind == "message_delta":
            rest = {name: each for name, each in chunk.items() if name not in ("type", "delta", "usage")}
            whole |= {**chunk["delta"], **rest, "usage": whole["usage"] | chunk["usage"]}
    return whole


def answered(answer: Json, *, from_stream: bool, to_stream: bool) -> tuple[Json, list[str]]:
    stream = machine(unknown_fields=False)
    inbound = Inbound(stream, SEALER)
    frames = streamed(answer) if from_stream else [answer]
    events = [event for frame in frames for event in inbound.feed(encode(frame), frame["type"])]
    events += inbound.close()
    lost = stream.diagnostics
    if to_stream:
        outbound = Outbound(SEALER)
        chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
        result = folded(parse_sse(encode_sse(chunks)))
        lost.extend(outbound.diagnostics)
    else:
        result = message(stream.snapshot, SEALER, diagnostics=lost)
    return json.loads(encode(result)), [case.where for case in lost if case.kind in ("loss", "ignored")]
