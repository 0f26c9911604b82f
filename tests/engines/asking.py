"""One request in the words of each of our surfaces, and what each of them answers, in one form for all.

A surface that can't say a part of a request is not asked it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from openresponses_bridge.conformance import StreamValidator, WireName
from openresponses_bridge.wire import OPENAI, OPENRESPONSES, WIRE_HEADER
from tests.support.anthropic import add_up, parse_sse
from tests.support.chat_folds import Folded, chunks
from tests.support.serving import Reply, call

Json = dict[str, Any]
End = Literal["stop", "length", "calls", "error"]

PARAMETERS: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "temperature": {"type": "integer"}},
    "required": ["city", "temperature"],
    "additionalProperties": False,
}
TOOL: Final = "get_weather"
_ABOUT: Final = "the weather in a city"
_CALL_ID, _CALLED, _RESULT = "call_1", '{"city": "Paris"}', "18 degrees"
PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@dataclass(frozen=True)
class Ask:
    """What a user asks a model. `tools` offers one, `choice` is Chat's word or the name of a tool, `limit` a
    number of tokens."""

    prompt: str
    tools: bool = False
    choice: str | None = None
    one_call: bool = False
    schema: bool = False
    limit: int | None = None
    stop: str | None = None
    logprobs: bool = False
    n: int = 1
    image: bool = False
    temperature: float = 0
    after_tool: bool = False
    """Whether it follows a call of the tool with its result."""

    @property
    def parts(self) -> set[str]:
        """The names of what it has beside a prompt and tools."""
        flags = {
            "one_call": self.one_call,
            "schema": self.schema,
            "stop": self.stop is not None,
            "logprobs": self.logprobs,
            "n": self.n > 1,
            "named": self.choice == TOOL,
            "none": self.choice == "none",
        }
        return {name for name, is_used in flags.items() if is_used}


@dataclass
class Answer:
    """What came. `end` is None where the surface does not say why an answer ended; `problems` are what a
    client of the surface could not have read, `losses` what the server reported as left out."""

    status: int = 200
    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    end: End | None = None
    usage: tuple[int, int] | None = None
    logprobs: int = 0
    choices: list[str] = field(default_factory=list)
    error: Json | None = None
    problems: list[str] = field(default_factory=list)
    losses: str = ""
    request_id: str = ""

    @property
    def content(self) -> tuple[str, str, list[tuple[str, Any]]]:
        """What is the same over every surface."""
        return self.text, self.thinking, self.calls


def _arguments(text: str) -> Any:
    """JSON, or the text that is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


# --- Responses -------------------------------------------------------------------------------------------


def _responses(ask: Ask, model: str) -> Json:
    content: list[Json] = [{"type": "input_text", "text": ask.prompt}]
    if ask.image:
        content.append({"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"})
    body: Json = {
        "model": model,
        "input": [{"type": "message", "role": "user", "content": content}],
        "temperature": ask.temperature,
        "store": False,
    }
    if ask.after_tool:
        called = {"type": "function_call", "call_id": _CALL_ID, "name": TOOL, "arguments": _CALLED}
        result = {"type": "function_call_output", "call_id": _CALL_ID, "output": _RESULT}
        body["input"] += [called, result]
    if ask.tools:
        function = {"type": "function", "name": TOOL, "description": _ABOUT, "parameters": PARAMETERS}
        body |= {"tools": [function | {"strict": False}], "parallel_tool_calls": not ask.one_call}
    if ask.choice:
        body["tool_choice"] = {"type": "function", "name": TOOL} if ask.choice == TOOL else ask.choice
    if ask.schema:
        body["text"] = {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}}
    if ask.limit:
        body["max_output_tokens"] = ask.limit
    if ask.logprobs:
        body |= {"top_logprobs": 2, "include": ["message.output_text.logprobs"]}
    return body


def _of_response(response: Json, answer: Answer) -> None:
    for item in response["output"]:
        if item["type"] == "message":
            for part in item["content"]:
                answer.text += part.get("text", part.get("refusal", ""))
                answer.logprobs += len(part.get("logprobs") or ())
        elif item["type"] == "reasoning":
            parts = item.get("content") or item.get("summary") or ()
            answer.thinking += "".join(part["text"] for part in parts)
        elif item["type"] == "function_call":
            answer.calls.append((item["name"], _arguments(item["arguments"])))
    answer.error = response.get("error")
    reason = (response.get("incomplete_details") or {}).get("reason")
    if response["status"] == "completed":
        answer.end = "calls" if answer.calls else "stop"
    else:
        answer.end = "length" if reason == "max_output_tokens" else "error"
    if usage := response.get("usage"):
        answer.usage = usage["input_tokens"], usage["output_tokens"]


def _read_response(reply: Reply, streamed: bool, wire: WireName) -> Answer:
    answer = Answer()
    if not streamed:
        _of_response(reply.json, answer)
        return answer
    validator = StreamValidator(wire)
    for each in reply.frames:
        validator.feed_frame(each)
    validator.close()
    answer.problems += [f"{wire}: {violation}" for violation in validator.violations]
    _of_response(reply.final, answer)
    return answer


# --- Chat Completions ------------------------------------------------------------------------------------

_CHAT_ENDS: Final[Mapping[str | None, End]] = {"stop": "stop", "length": "length", "tool_calls": "calls"}


def _chat(ask: Ask, model: str) -> Json:
    content: Any = ask.prompt
    if ask.image:
        url = {"url": f"data:image/png;base64,{PIXEL}"}
        content = [{"type": "text", "text": ask.prompt}, {"type": "image_url", "image_url": url}]
    messages: list[Json] = [{"role": "user", "content": content}]
    body: Json = {"model": model, "messages": messages, "temperature": ask.temperature}
    if ask.after_tool:
        function = {"name": TOOL, "arguments": _CALLED}
        called = {"id": _CALL_ID, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [called]})
        messages.append({"role": "tool", "tool_call_id": _CALL_ID, "content": _RESULT})
    if ask.tools:
        function = {"name": TOOL, "description": _ABOUT, "parameters": PARAMETERS}
        tools = [{"type": "function", "function": function}]
        body |= {"tools": tools, "parallel_tool_calls": not ask.one_call}
    if ask.choice:
        named = {"type": "function", "function": {"name": TOOL}}
        body["tool_choice"] = named if ask.choice == TOOL else ask.choice
    if ask.schema:
        form = {"name": "place", "schema": SCHEMA, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    if ask.limit:
        body["max_completion_tokens"] = ask.limit
    if ask.stop:
        body["stop"] = [ask.stop]
    if ask.logprobs:
        body |= {"logprobs": True, "top_logprobs": 2}
    if ask.n > 1:
        body["n"] = ask.n
    return body


def _read_chat(reply: Reply, streamed: bool, wire: WireName) -> Answer:
    answer = Answer()
    if streamed:
        sent = chunks(reply.body)
        count = 1 + max((choice["index"] for each in sent for choice in each.get("choices") or ()), default=0)
        folded = [Folded(sent, index) for index in range(count)]
        first = folded[0]
        answer.text, answer.thinking = first.words["content"], first.words["reasoning"]
        answer.calls = [(name, _arguments(text)) for _, name, text in first.calls.values()]
        answer.logprobs, usage = len(first.logprobs), first.usage
        answer.choices = [each.words["content"] for each in folded]
        answer.error, reason = first.error, first.finish_reason
    else:
        message = reply.json["choices"][0]["message"]
        answer.text, answer.thinking = message["content"] or "", message.get("reasoning_content") or ""
        functions = [each["function"] for each in message.get("tool_calls") or ()]
        answer.calls = [(each["name"], _arguments(each["arguments"])) for each in functions]
        answer.logprobs = len((reply.json["choices"][0].get("logprobs") or {}).get("content") or ())
        answer.choices = [each["message"]["content"] or "" for each in reply.json["choices"]]
        usage, reason = reply.json.get("usage"), reply.json["choices"][0]["finish_reason"]
    answer.end = _CHAT_ENDS.get(reason, "error")
    if usage:
        answer.usage = usage["prompt_tokens"], usage["completion_tokens"]
    return answer


# --- Messages --------------------------------------------------------------------------------------------

_MESSAGES_ENDS: Final[Mapping[str | None, End]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "calls",
}


def _messages(ask: Ask, model: str) -> Json:
    content: list[Json] = [{"type": "text", "text": ask.prompt}]
    if ask.image:
        source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
        content.append({"type": "image", "source": source})
    body: Json = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "temperature": ask.temperature,
        "max_tokens": ask.limit or 512,
    }
    if ask.after_tool:
        called = {"type": "tool_use", "id": _CALL_ID, "name": TOOL, "input": json.loads(_CALLED)}
        result = {"type": "tool_result", "tool_use_id": _CALL_ID, "content": _RESULT}
        body["messages"] += [
            {"role": "assistant", "content": [called]},
            {"role": "user", "content": [result]},
        ]
    if ask.tools:
        body["tools"] = [{"name": TOOL, "description": _ABOUT, "input_schema": PARAMETERS}]
        kinds = {"required": {"type": "any"}, TOOL: {"type": "tool", "name": TOOL}, "none": {"type": "none"}}
        chosen = kinds.get(ask.choice or "", {"type": "auto"})
        if ask.choice != "none":
            chosen |= {"disable_parallel_tool_use": ask.one_call}
        body["tool_choice"] = chosen
    if ask.schema:
        body["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
    if ask.stop:
        body["stop_sequences"] = [ask.stop]
    return body


def _read_message(reply: Reply, streamed: bool, wire: WireName) -> Answer:
    answer = Answer()
    message = reply.json if not streamed else {}
    if streamed:
        sent = parse_sse(reply.body)
        answer.error = next((each["error"] for each in sent if each["type"] == "error"), None)
        message = add_up(each for each in sent if each["type"] != "error")
    for block in message["content"]:
        if block["type"] == "text":
            answer.text += block["text"]
        elif block["type"] == "thinking":
            answer.thinking += block["thinking"]
        elif block["type"] == "tool_use":
            answer.calls.append((block["name"], block["input"]))
    answer.end = "error" if answer.error else _MESSAGES_ENDS.get(message["stop_reason"], "error")
    usage = message["usage"]
    cached = sum(usage.get(name) or 0 for name in ("cache_read_input_tokens", "cache_creation_input_tokens"))
    answer.usage = usage["input_tokens"] + cached, usage["output_tokens"]
    return answer


# --- VS Code ---------------------------------------------------------------------------------------------


def _vscode(ask: Ask, model: str) -> Json:
    content: list[Json] = [{"$mid": 21, "value": ask.prompt}]
    if ask.image:
        content.append({"$mid": 24, "mimeType": "image/png", "data": PIXEL})
    options: Json = {"temperature": ask.temperature}
    if ask.limit:
        options["maxOutputTokens"] = ask.limit
    if ask.one_call:
        options["parallelToolCalls"] = False
    body: Json = {
        "model": model,
        "messages": [{"role": 1, "content": content}],
        "modelOptions": options,
        "store": False,
    }
    if ask.after_tool:
        called = {"callId": _CALL_ID, "name": TOOL, "input": json.loads(_CALLED)}
        result = {"callId": _CALL_ID, "content": [{"$mid": 21, "value": _RESULT}]}
        body["messages"] += [{"role": 2, "content": [called]}, {"role": 1, "content": [result]}]
    if ask.tools:
        body["tools"] = [{"name": TOOL, "description": _ABOUT, "inputSchema": PARAMETERS}]
        body["toolMode"] = 2 if ask.choice == "required" else 1
    return body


_CUT_OFF: Final = "\n\n**Note:** The response was cut off because it reached the limit of its length."


def _read_parts(reply: Reply, streamed: bool, wire: WireName) -> Answer:
    answer = Answer()
    for line in filter(None, reply.body.splitlines()):
        part = json.loads(line)
        kind = part.get("type")
        if "error" in part:
            answer.error, answer.end = part["error"], "error"
        elif kind == "LanguageModelTextPart":
            answer.text += part["value"]
        elif kind == "LanguageModelThinkingPart":
            answer.thinking += part["value"] if isinstance(part["value"], str) else "".join(part["value"])
        elif kind == "LanguageModelToolCallPart":
            answer.calls.append((part["name"], part["input"]))
        elif part.get("mimeType") == "usage":
            usage = json.loads(base64.b64decode(part["data"]))
            answer.usage = usage["prompt_tokens"], usage["completion_tokens"]
    if (text := answer.text.removesuffix(_CUT_OFF)) != answer.text:
        answer.text, answer.end = text, "length"
    return answer


# --- all of them -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Surface:
    """One of our APIs: its path, how a request is written there, how its answer is read, and the parts of a
    request that it has no field for."""

    path: str
    body: Callable[[Ask, str], Json]
    read: Callable[[Reply, bool, WireName], Answer]
    cannot: frozenset[str] = frozenset()
    always_streams: bool = False


SURFACES: Final = {
    "Responses": Surface("/v1/responses", _responses, _read_response, frozenset({"stop", "n"})),
    "Chat": Surface("/v1/chat/completions", _chat, _read_chat),
    "Messages": Surface("/v1/messages", _messages, _read_message, frozenset({"logprobs", "n"})),
    "VS Code": Surface(
        "/vscode/v1/chat?errors=line",
        _vscode,
        _read_parts,
        frozenset({"stop", "n", "logprobs", "schema", "named", "none"}),
        always_streams=True,
    ),
}


class Way(NamedTuple):
    """How a request is sent: over the surface of that name, whole or streamed."""

    surface: str
    streamed: bool
    wire: WireName = OPENRESPONSES

    def __str__(self) -> str:
        text = f"{self.surface}, streamed" if self.streamed else self.surface
        return f"{text}, {self.wire}" if self.streamed and self.surface == "Responses" else text


def ask_over(way: Way, base: str, ask: Ask, model: str) -> Answer:
    """The answer of a server of ours at `base`."""
    surface = SURFACES[way.surface]
    body = surface.body(ask, model)
    if not surface.always_streams:
        body["stream"] = way.streamed
    if way.surface == "Chat" and way.streamed:
        body["stream_options"] = {"include_usage": True}
    reply = call(base, "POST", surface.path, body, {WIRE_HEADER: way.wire})
    if reply.status != 200:
        return Answer(reply.status, end="error", error=reply.json["error"])
    answer = surface.read(reply, way.streamed, way.wire)
    answer.losses = reply.headers.get("openresponses-losses", "")
    answer.request_id = reply.headers["x-request-id"]
    return answer


def ways(ask: Ask) -> list[Way]:
    """Every way in which it can be asked."""
    result = []
    for name, surface in SURFACES.items():
        if ask.parts & surface.cannot:
            continue
        result.append(Way(name, True))
        if name == "Responses":
            result.append(Way(name, True, OPENAI))
        if not surface.always_streams:
            result.append(Way(name, False))
    return result
