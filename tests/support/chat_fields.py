"""Requests and answers of Chat Completions, each with one field of a type, and the fate of the field between
a client and an upstream of that API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from openresponses_bridge.dialects.chat_completions import (
    ChatOptions,
    Inbound,
    Outbound,
    completion,
    from_chat,
    to_chat,
)
from openresponses_bridge.dialects.chat_completions import encode as encode_chunks
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer
from tests.support.machines import machine
from tests.support.typed_fields import Sample

Json = dict[str, Any]
_SEALER: Final = Sealer()
TOOL_NAMED: Final[Json] = {"type": "function", "function": {"name": "look"}}
_TOOL: Final[Json] = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
NAMED: Final[Json] = {
    "name": "look",
    "url": "https://a.example/a.png",
    "file_data": "data:application/pdf;base64,AAAA",
    "data": "AAAA",
    "parameters": {"type": "object"},
    "tool_call_id": "c1",
    "arguments": "{}",
    "refusal": "no",
    "n": 1,
    "max_tokens": 9,
}
_HI: Final[Json] = {"role": "user", "content": "Hi"}
_CALL: Final[Json] = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_OPTIONS: Final = ChatOptions(
    developer_role="developer", cache_breakpoints=True, web_search="openai", takes_n=True
)
REQUEST_ROWS: Final[dict[str, str]] = {
    # sent in other words that mean the same
    "functions": "sent as tools",
    "function_call": "sent as tool_choice",
    "messages.function": "sent as the output of a tool",
    "messages.assistant.function_call": "sent as a call of a tool",
    "messages.assistant.content": "what was refused is sent as text",
    "max_tokens": "sent as max_completion_tokens",
    "n": "the server asks for several choices, and for one by saying nothing",
    "response_format": "text is what is answered unless something else is asked for",
    "stream_options": "said of a stream alone, which the test does not ask for",
    "tools.custom": "sent as a function of one text, which any server has",
    "tools.type": "a custom tool's",
    "tool_choice": "of a custom tool, or of several: sent as the choice among functions",
    "messages.assistant.tool_calls": "a custom tool's",
    "messages.user.content.file": "a name alone, without a file",
}


def conversation(message: Json) -> list[Json]:
    """A conversation in which such a message is allowed."""
    role = message["role"]
    if role == "tool":
        return [_HI, {"role": "assistant", "content": None, "tool_calls": [_CALL]}, message]
    if role == "function":
        return [_HI, {"role": "assistant", "content": None, "function_call": _CALL["function"]}, message]
    if calls := message.get("tool_calls"):
        return [_HI, message, {"role": "tool", "tool_call_id": calls[0]["id"], "content": "seen"}]
    if "function_call" in message:
        return [_HI, message, {"role": "function", "name": "look", "content": "seen"}]
    return [message, _HI] if role in ("system", "developer") else [_HI, message, _HI]


def bodies(bases: Iterable[Sample], messages: Iterable[Sample]) -> Iterator[tuple[str, Json]]:
    """(the name of a field, a request that has it), for the types of requests and of messages."""
    base: Json = {"model": "m", "messages": [_HI]}
    for path, value in bases:
        if path[0] == "messages":
            continue
        beside: Json = {"tools": [_TOOL]} if path[0] in ("tool_choice", "parallel_tool_calls") else {}
        beside |= {"logprobs": True} if path[0] == "top_logprobs" else {}
        yield ".".join(path), {**base, **beside, path[0]: value[path[0]]}
    for path, value in messages:
        field = ".".join((f"messages.{value['role']}", *path))
        yield field, {**base, "messages": conversation(value)}


def alike(body: Json) -> Json:
    """The body in which a content of a single text is that text, which means the same."""
    return {**body, "messages": [_alike(message) for message in body.get("messages", ())]}


def _alike(message: Json) -> Json:
    parts = message.get("content")
    if isinstance(parts, list) and len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return {**message, "content": parts[0]["text"]}
    return message


def through(body: Json) -> tuple[Json, list[str]]:
    try:
        request, read = from_chat(encode(body), _SEALER)
        payload, written = to_chat(request, sealer=_SEALER, options=_OPTIONS)
    except BridgeError as error:
        return {}, [f"refused: {error.message}"]
    return alike(json.loads(encode(payload))), [str(case) for case in (*read, *written)]


OURS: Final = {"id", "object", "created", "model"}
"""Fields of an answer that the bridge sets itself: its id and time, and the client's name for the model."""
_CUSTOM: Final = "a custom call"
ANSWER_ROWS: Final[dict[str, str]] = {
    "obfuscation": "padding of the upstream's stream; the server's own is its own",
    _CUSTOM: "custom tools go out as functions, so that no custom call comes back",
}
NAMED_OF_ANSWERS: Final[Json] = {
    **{name: each for name, each in NAMED.items() if name != "refusal"},
    "index": 0,
}
_MESSAGE: Final[Json] = {"role": "assistant", "content": "so", "refusal": None}
_ANSWER: Final[Json] = {
    "id": "chatcmpl-9", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": _MESSAGE}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6},
}  # fmt: skip
TOKEN: Final[Json] = {"token": "so", "logprob": -0.5, "bytes": [115, 111], "top_logprobs": []}


def answers(completions: Iterable[Sample]) -> Iterator[tuple[str, Json]]:
    """(the name of a field, an answer that has it, in the form of a completion), for the types of completions
    and of their chunks."""
    for path, value in completions:
        answer = _answer_with(path, value)
        calls = answer["choices"][0]["message"].get("tool_calls") or [{}]
        yield ".".join(path if calls[0].get("type") != "custom" else (_CUSTOM, *path)), answer


def _answer_with(path: tuple[str, ...], value: Json) -> Json:
    if path[0] == "usage":
        return {**_ANSWER, "usage": _ANSWER["usage"] | value["usage"] | {"total_tokens": 6}}
    if path[0] != "choices":
        return {**_ANSWER, path[0]: value[path[0]]}
    (first,) = value["choices"]
    fields = first.get("message") or first.get("delta") or {}
    message = {**_MESSAGE, **{name: each for name, each in fields.items() if each is not None}}
    message["role"] = "assistant"
    for call in message.get("tool_calls", ()):
        call.pop("index", None)
        call |= {"id": "c1", "type": call.get("type", "function")}
        needed = {"name": "look", "arguments" if call["type"] == "function" else "input": "{}"}
        call[call["type"]] = needed | (call.get(call["type"]) or {})
    if "function_call" in message:
        message["function_call"] = {"name": "look", "arguments": "{}"} | message["function_call"]
    reason = first.get("finish_reason") if path[-1] == "finish_reason" else "stop"
    calls = (
        "tool_calls" if message.get("tool_calls") else "function_call" if "function_call" in message else ""
    )
    if reason in ("tool_calls", "function_call") and not calls:
        reason = "stop"
    choice = {**_ANSWER["choices"][0], "finish_reason": calls or reason, "message": message}
    return {**_ANSWER, "choices": [{**choice, "logprobs": first.get("logprobs")}]}


def streamed(answer: Json) -> list[Json]:
    """The answer as a stream of the API."""
    head = {name: each for name, each in answer.items() if name not in ("choices", "usage", "moderation")}
    head |= {"object": "chat.completion.chunk"}
    (choice,) = answer["choices"]
    message = dict(choice["message"])
    calls, audio = message.pop("tool_calls", None), message.pop("audio", None)
    deltas: list[Json] = [{**message, "content": ""}, {"content": message["content"]}]
    deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(calls or ())]
    for name, each in (audio or {}).items():
        pieces = each if isinstance(each, str) and name != "id" else [each]
        deltas += [{"audio": {name: piece}} for piece in pieces]
    deltas[0]["content"] = "" if message["content"] else None
    frames = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    frames[1]["choices"][0]["logprobs"] = choice["logprobs"]
    end = {name: each for name, each in choice.items() if name not in ("message", "logprobs")}
    frames.append({**head, "choices": [{**end, "delta": {}}]})
    more = {"moderation": answer["moderation"]} if "moderation" in answer else {}
    return [*frames, {**head, "choices": [], "usage": answer["usage"], **more}]


def folded_back(chunks: list[Json]) -> Json:
    """The completion that a stream's chunks add up to, with all of their fields."""
    whole: Json = {"choices": []}
    message: Json = {"content": None}
    choice: Json = {"message": message}
    for chunk in chunks:
        whole |= {name: each for name, each in chunk.items() if name != "choices" and each is not None}
        for part in chunk["choices"]:
            choice |= {name: each for name, each in part.items() if name not in ("delta", "logprobs")}
            for name, tokens in (part.get("logprobs") or {}).items():
                choice.setdefault("logprobs", {}).setdefault(name, []).extend(tokens)
            _grow(message, part["delta"])
    return {**whole, "object": "chat.completion", "choices": [choice]}


def _grow(whole: Json, delta: Json) -> None:
    for name, each in delta.items():
        if name == "tool_calls":
            for call in each:
                known = whole.setdefault(name, [])
                if call["index"] == len(known):
                    known.append({})
                _grow(known[call["index"]], {key: value for key, value in call.items() if key != "index"})
        elif isinstance(each, dict):
            _grow(whole.setdefault(name, {}), each)
        elif isinstance(each, list):
            whole[name] = whole.get(name, []) + each
        elif isinstance(each, str) and name not in ("id", "type", "role"):
            whole[name] = (whole.get(name) or "") + each
        elif each is not None:
            whole[name] = each


def answered(answer: Json, *, from_stream: bool, to_stream: bool) -> tuple[Json, list[str]]:
    stream = machine(unknown_fields=False)
    inbound = Inbound(stream)
    frames = streamed(answer) if from_stream else [answer]
    events = [event for frame in frames for event in inbound.feed(encode(frame))]
    events += inbound.feed(b"[DONE]") if from_stream else []
    events += inbound.close()
    lost = stream.diagnostics
    legacy = "function_call" in answer["choices"][0]["message"]
    if to_stream:
        outbound = Outbound(include_usage=True, sealer=_SEALER, legacy_functions=legacy)
        chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
        lines = encode_chunks(chunks).decode().splitlines()
        body = folded_back([json.loads(line[6:]) for line in lines if line.startswith("data: {")])
        lost.extend(outbound.diagnostics)
    else:
        payload = completion(stream.snapshot, diagnostics=lost, sealer=_SEALER, legacy_functions=legacy)
        body = json.loads(encode(payload))
    return body, [str(case) for case in lost]
