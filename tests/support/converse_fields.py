"""Every field that botocore's description of Converse has, in requests and answers as they are on the wire.

`tests/bridge/dialects/bedrock_converse/fields.json` stores the result of `fields_of_sdk`, so that the tests
need no SDK. `tests/clients/test_boto3.py` compares both; `python -m tests.support.converse_fields` writes the
file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from openresponses_bridge.dialects.bedrock_converse import (
    ConverseOptions,
    Inbound,
    Outbound,
    answer,
    from_converse,
    to_converse,
)
from openresponses_bridge.dialects.bedrock_converse.client.message import Folding
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.seal import Sealer
from tests.support.gemini_fields import written
from tests.support.strict_converse import service_model

Json = dict[str, Any]
SEALER: Final = Sealer()
LIST: Final = Path(__file__).parents[1] / "bridge" / "dialects" / "bedrock_converse" / "fields.json"
OPTIONS: Final = ConverseOptions(s3="send")
_HELLO: Final[Json] = {"role": "user", "content": [{"text": "Hello"}]}
_SPEC: Final[Json] = {"toolSpec": {"name": "text", "inputSchema": {"json": {"type": "object"}}}}
_CALL: Final[Json] = {"toolUse": {"toolUseId": "text", "name": "text", "input": {}}}
_RESULT: Final[Json] = {"toolResult": {"toolUseId": "text", "content": [{"text": "seen"}]}}
_NAMED: Final[Json] = {
    "uri": "s3://bucket/a.png",
    "url": "https://a.example/page",
    "schema": '{"type":"object","properties":{"a":{"type":"string"}}}',
    "document": {"a": {"b": [1, None]}},
}
_BY_MODELS: Final = ("toolUse", "reasoningContent", "citationsContent")
_CHANGES: Final = ("toolAddition", "toolRemoval")


def fields_in_list() -> Json:
    """Return `requests` and `answers` from the file: a wire value by the path of each field."""
    fields: Json = json.loads(LIST.read_text("utf-8"))
    return fields


def fields_of_sdk() -> Json:
    """Return `requests` and `answers`, derived from the installed botocore."""
    return {"requests": dict(_requests()), "answers": dict(_answers())}


def _least(shape: Any, name: str = "") -> Any:
    """The smallest value of a shape; for a union, of its first kind."""
    if shape.type_name == "structure" and getattr(shape, "is_document_type", False):
        return _NAMED["document"]
    if shape.type_name == "structure":
        names = [*shape.members][:1] if getattr(shape, "is_tagged_union", False) else shape.required_members
        return {each: _least(shape.members[each], each) for each in names}
    if shape.type_name == "list":
        return [_least(shape.member)]
    if shape.type_name == "map":
        return {"key": _least(shape.value)}
    if shape.type_name == "string":
        return (getattr(shape, "enum", None) or [_NAMED.get(name, "text")])[0]
    values: Json = {"blob": "AAAA", "integer": 7, "long": 7, "float": 0.5, "double": 0.5, "boolean": True}
    return values[shape.type_name]


def _each(shape: Any, name: str = "") -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) for each field of a shape; for an enumeration, one for each of its values."""
    if shape.type_name == "structure" and not getattr(shape, "is_document_type", False):
        union = getattr(shape, "is_tagged_union", False)
        least = {} if union else _least(shape, name)
        if not shape.members:
            yield (), {}
        for member, inner in shape.members.items():
            for path, value in _each(inner, member):
                yield (member, *path), {**least, member: value}
    elif shape.type_name == "list":
        for path, value in _each(shape.member):
            yield path, [value]
    elif shape.type_name == "map":
        for path, value in _each(shape.value):
            yield ("*", *path), {"key": value}
    elif shape.type_name == "string" and getattr(shape, "enum", None):
        for value in shape.enum:
            yield (f"={value}",), value
    else:
        yield (), _least(shape, name)


def _turns(block: Json) -> list[Json]:
    """A conversation in which this block is allowed."""
    kind = next(iter(block))
    if "type" in block.get(kind, {}) and kind in ("toolUse", "toolResult"):  # of a tool that the server ran
        return [_HELLO, {"role": "assistant", "content": [block, {"text": "Said"}]}, _HELLO]
    if kind == "toolUse":
        call = block | {"toolUse": {**block["toolUse"], "toolUseId": "text"}}
        turn = {"role": "assistant", "content": [call]}
        return [_HELLO, turn, {"role": "user", "content": [{**_RESULT}, {"text": "Hello"}]}]
    if kind == "toolResult":
        called = {"role": "assistant", "content": [_CALL]}
        return [_HELLO, called, {"role": "user", "content": [block]}]
    if kind in _BY_MODELS:
        return [_HELLO, {"role": "assistant", "content": [block, {"text": "Said"}]}, _HELLO]
    content = [{"text": "Look"}, block]
    if kind in _CHANGES:
        return [_HELLO, {"role": "system", "content": content}, _HELLO]
    return [{"role": "user", "content": content}]


def _requests() -> Iterator[tuple[str, Json]]:
    shape = service_model().operation_model("Converse").input_shape
    for member, inner in shape.members.items():
        if member not in ("modelId", "messages"):
            for path, value in _each(inner, member):
                yield ".".join((member, *path)), {"messages": [_HELLO], member: _apt(member, value)}
    for path, block in _each(shape.members["messages"].member.members["content"].member):
        messages = _turns(block)
        called = path[0] in ("toolUse", "toolResult")
        config = {"toolConfig": {"tools": [_SPEC]}} if called else {}
        yield ".".join(("messages", *path)), {"messages": messages, **config}


def _apt(member: str, value: Any) -> Any:
    """Return the value of a field, with the other fields that it requires."""
    if member == "toolConfig":
        tools = value["tools"] if "toolChoice" not in value else [_SPEC]
        return {**value, "tools": [_SPEC, *tools] if "cachePoint" in tools[0] else tools}
    return [{"text": "Be brief."}, *value] if member == "system" and "cachePoint" in value[0] else value


_PLAIN: Final[Json] = {
    "stopReason": "end_turn",
    "usage": {"inputTokens": 7, "outputTokens": 7, "totalTokens": 14},
    "metrics": {"latencyMs": 7},
}


def _answers() -> Iterator[tuple[str, Json]]:
    shape = service_model().operation_model("Converse").output_shape
    for member, inner in shape.members.items():
        if member != "output":
            for path, value in _each(inner, member):
                content = _CALL if value == "tool_use" else {"text": "Said"}
                yield ".".join((member, *path)), {**_PLAIN, **_output(content), member: value}
    blocks = shape.members["output"].members["message"].members["content"].member
    for path, block in _each(blocks):
        reason = "tool_use" if path[0] == "toolUse" and "type" not in block["toolUse"] else "end_turn"
        if path[0] == "citationsContent":
            block = {
                path[0]: {"content": [{"text": "Said"}], "citations": [{"title": "A"}], **block[path[0]]}
            }
        yield ".".join(("output", *path)), {**_PLAIN, **_output(block), "stopReason": reason}


def _output(block: Json) -> Json:
    return {"output": {"message": {"role": "assistant", "content": [block]}}}


def sent(body: Json) -> tuple[Json, list[str]]:
    """Return what the upstream gets of such a body, and the reported losses."""
    request, read = from_converse(encode(body), SEALER)
    payload, wrote = to_converse(request, model="m", sealer=SEALER, options=OPTIONS)
    wire: Json = decode_json(encode(payload))
    return wire, [str(case) for case in (*read, *wrote)]


def frames(whole: Json) -> list[Json]:
    """A whole answer as the events of its stream."""
    events: list[Json] = [{"messageStart": {"role": "assistant"}}]
    for index, block in enumerate(whole["output"]["message"]["content"]):
        start, deltas = _pieces(block)
        if start is not None:
            events.append({"contentBlockStart": {"contentBlockIndex": index, "start": start}})
        events += [{"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}} for delta in deltas]
        events.append({"contentBlockStop": {"contentBlockIndex": index}})
    names = ("stopReason", "additionalModelResponseFields")
    events.append({"messageStop": {name: whole[name] for name in names if name in whole}})
    about = {name: value for name, value in whole.items() if name not in (*names, "output")}
    return [*events, {"metadata": about}]


def _pieces(block: Json) -> tuple[Json | None, list[Json]]:
    """(start, deltas) of a block."""
    ((kind, value),) = block.items()
    if kind == "text":
        return None, [block]
    if kind == "reasoningContent":
        inner = value.get("reasoningText", value)
        return None, [{kind: {name: each}} for name, each in inner.items()]
    if kind == "citationsContent":
        texts = [{"text": each["text"]} for each in value.get("content", ()) if "text" in each]
        return None, texts + [{"citation": each} for each in value.get("citations", ())]
    if kind == "toolUse":
        start = {name: each for name, each in value.items() if name != "input"}
        return {kind: start}, [{kind: {"input": json.dumps(value["input"])}}]
    if kind == "toolResult":
        return {kind: {name: each for name, each in value.items() if name != "content"}}, [
            {kind: value["content"]}
        ]
    return block, []


def returned(events: list[Json]) -> tuple[Json, Json, list[str]]:
    """Return what a client gets for the events of an upstream: (the folded stream, the whole answer, the
    reported losses)."""
    machine = ResponseStreamStateMachine("m", wire="openai")
    inbound, outbound = Inbound(machine, SEALER), Outbound(SEALER)
    folding = Folding(outbound.diagnostics)
    stream_events = [event for frame in events for event in inbound.feed(encode(frame))] + inbound.close()
    for event in stream_events:
        folding.feed(outbound.feed(event))
    whole = answer(machine.snapshot, SEALER) or {}
    report = [str(case) for case in (*machine.diagnostics, *outbound.diagnostics) if case.kind != "ignored"]
    return decode_json(encode(folding.answer)), decode_json(encode(whole)), report


if __name__ == "__main__":
    LIST.write_text(written(fields_of_sdk()), "utf-8")
