"""The scripts of `model_scripts` as the frames that an upstream of each dialect sends.

A dialect leaves out a step that it can't express; where it has no frame for an end, its stream ends without
one. A cancellation by the client is in no upstream's frames.
"""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from openresponses_bridge.dialects import copilot, vscode
from openresponses_bridge.dialects.table import TABLE, dialects
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.sse import SSEDecoder
from tests.support import anthropic, chat, codex
from tests.support.fed import Frame, encoded
from tests.support.model_scripts import USAGE, Step, played

SILENT = ("cancel", "cut")  # ends without a frame


def frames(dialect: str, steps: Iterable[Step]) -> list[bytes]:
    """The frames that an upstream of this package's dialect sends for these steps."""
    render = RENDERERS.get(dialect) or partial(_by_its_outbound, dialect)
    return [compact(frame) for frame in render(list(steps))]


def compact(frame: Frame) -> bytes:
    """A frame as JSON without whitespace, as servers send it."""
    data = encoded(frame)
    if data == chat.DONE:
        return data
    return json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":")).encode()


def _chat(steps: list[Step]) -> list[Frame]:
    sent: list[Frame] = [chat.chunk(role="assistant", content="")]
    for verb, *facts in steps:
        if verb not in SILENT and verb != "call_end":
            sent += _CHAT[verb](*facts)
    return sent


def _chat_cite(url: str, title: str, start: int, end: int) -> list[Frame]:
    citation = {"url": url, "title": title, "start_index": start, "end_index": end}
    return [chat.chunk(annotations=[{"type": "url_citation", "url_citation": citation}])]


def _chat_detail(kind: str, field: str) -> Callable[[str], list[Frame]]:
    return lambda text: [chat.chunk(reasoning_details=[{"type": f"reasoning.{kind}", field: text}])]


def _chat_end(reason: str) -> list[Frame]:
    usage = {"prompt_tokens": USAGE["input_tokens"], "completion_tokens": USAGE["output_tokens"]}
    usage["total_tokens"] = sum(usage.values())
    return [chat.chunk(reason), chat.frame(choices=[], usage=usage), chat.DONE]


def _chat_fail(code: str, message: str) -> list[Frame]:
    return [{"error": {"type": "server_error", "code": code, "message": message, "param": None}}]


_CHAT: dict[str, Callable[..., list[Frame]]] = {
    "text": lambda delta: [chat.chunk(content=delta)],
    "reasoning": lambda delta: [chat.chunk(reasoning_content=delta)],
    "summary": _chat_detail("summary", "summary"),
    "encrypted": _chat_detail("encrypted", "data"),
    "refusal": lambda delta: [chat.chunk(refusal=delta)],
    "cite": _chat_cite,
    "call": lambda index, id, name: [
        chat.calls(chat.part("", name=name, id=id, index=index, type="function"))
    ],
    "arguments": lambda index, delta: [chat.calls(chat.part(delta, index=index))],
    "end": _chat_end,
    "fail": _chat_fail,
}

_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


class _Blocks:
    """Writes content blocks. One block of text or thinking is open at a time; calls stay open until they
    end."""

    def __init__(self) -> None:
        self.sent: list[Frame] = [anthropic.start()]
        self._count = 0
        self._open: tuple[str, int] | None = None
        self._calls: dict[int, int] = {}

    def text(self, delta: str) -> None:
        self._words("text", "text_delta", text=delta)

    def reasoning(self, delta: str) -> None:
        self._words("thinking", "thinking_delta", thinking=delta)

    def encrypted(self, content: str) -> None:
        self._words("thinking", "signature_delta", signature=content)

    def cite(self, url: str, title: str, _start: int, _end: int) -> None:
        cited = {
            "type": "web_search_result_location", "url": url, "title": title, "cited_text": "the capital",
            "encrypted_index": "aW5kZXg=",
        }  # fmt: skip
        self._words("text", "citations_delta", citation=cited)

    def call(self, index: int, id: str, name: str) -> None:
        self._close()
        self._calls[index] = self._begin("tool_use", id=id, name=name, input={})

    def arguments(self, index: int, delta: str) -> None:
        self.sent.append(anthropic.delta(self._calls[index], "input_json_delta", partial_json=delta))

    def call_end(self, index: int) -> None:
        self.sent.append(anthropic.closed(self._calls[index]))

    def end(self, reason: str) -> None:
        self._close()
        self.sent += anthropic.stop(_REASONS[reason], output_tokens=USAGE["output_tokens"])

    def fail(self, _code: str, message: str) -> None:
        self.sent.append(anthropic.frame("error", error={"type": "overloaded_error", "message": message}))

    def _words(self, kind: str, delta: str, **fields: Any) -> None:
        if self._open is None or self._open[0] != kind:
            self._close()
            empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}}[kind]
            self._open = (kind, self._begin(kind, **empty))
        self.sent.append(anthropic.delta(self._open[1], delta, **fields))

    def _begin(self, kind: str, **fields: Any) -> int:
        self._count += 1
        self.sent.append(anthropic.opened(self._count - 1, kind, **fields))
        return self._count - 1

    def _close(self) -> None:
        if self._open is not None:
            self.sent.append(anthropic.closed(self._open[1]))
            self._open = None


def _anthropic(steps: list[Step]) -> list[Frame]:
    """Anthropic has a stop reason for a refusal, whose text is ordinary text, and no summaries of
    thinking."""
    blocks = _Blocks()
    for verb, *facts in steps:
        if verb == "refusal":
            blocks.text(*facts)
        elif verb == "end" and any(verb == "refusal" for verb, *_ in steps):
            blocks.end("content_filter")
        elif verb not in SILENT and verb != "summary":
            getattr(blocks, verb)(*facts)
    return blocks.sent


class _Proxy:
    """`response.*` notifications without indexes, as a proxy in front of Codex sends them."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def say(self, kind: str, **fields: Any) -> None:
        self.sent.append(compact(codex.proxied(kind, **fields)))

    def call(self, index: int, id: str, name: str) -> None:
        self._calls[index] = {"type": "function_call", "id": f"fc_{index}", "call_id": id, "name": name}
        self.say("output_item.added", item=self._calls[index])

    def arguments(self, index: int, delta: str) -> None:
        call = self._calls[index]
        call["arguments"] = call.get("arguments", "") + delta
        self.say("function_call_arguments.delta", call_id=call["call_id"], delta=delta)

    def call_end(self, index: int) -> None:
        call = self._calls[index]
        self.say("function_call_arguments.done", call_id=call["call_id"], arguments=call["arguments"])
        self.say("output_item.done", item=call)

    def encrypted(self, content: str) -> None:
        self.say("output_item.done", item={"type": "reasoning", "id": "rs_1", "encrypted_content": content})

    def cite(self, url: str, title: str, start: int, end: int) -> None:
        cited = {"type": "url_citation", "url": url, "title": title, "start_index": start, "end_index": end}
        self.say("output_text.annotation.added", item_id="msg_1", annotation=cited)

    def end(self, reason: str) -> None:
        cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reason)
        if cut is None:
            self.say("completed", response={"status": "completed", "usage": USAGE})
        else:
            response = {"status": "incomplete", "incomplete_details": {"reason": cut}, "usage": USAGE}
            self.say("incomplete", response=response)

    def fail(self, code: str, message: str) -> None:
        self.say("failed", response={"status": "failed", "error": {"code": code, "message": message}})

    def cancel(self) -> None:
        self.sent.append(codex.ended("interrupted"))


_PROXY_WORDS = {
    "text": ("output_text.delta", "msg_1"),
    "refusal": ("refusal.delta", "msg_1"),
    "reasoning": ("reasoning_text.delta", "rs_1"),
    "summary": ("reasoning_summary_text.delta", "rs_1"),
}


def _codex(steps: list[Step]) -> list[Frame]:
    proxy = _Proxy()
    for verb, *facts in steps:
        if verb in _PROXY_WORDS:
            kind, item_id = _PROXY_WORDS[verb]
            proxy.say(kind, item_id=item_id, delta=facts[0])
        elif verb != "cut":
            getattr(proxy, verb)(*facts)
    return proxy.sent


_GEMINI_REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}


class _Parts:
    """Writes chunks of `generateContent`: calls are whole, citations are in bytes."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self._said = ""
        self._calls: dict[int, dict[str, Any]] = {}

    def text(self, delta: str) -> None:
        self._said += delta
        self._part(text=delta)

    def summary(self, delta: str) -> None:
        self._part(text=delta, thought=True)

    def encrypted(self, content: str) -> None:
        self._part(text="", thought=True, thoughtSignature=content)

    def cite(self, url: str, title: str, start: int, end: int) -> None:
        places = [len(self._said[:at].encode()) for at in (start, end)]
        segment = dict(zip(("startIndex", "endIndex"), places, strict=True))
        grounding = {
            "groundingChunks": [{"web": {"uri": url, "title": title}}],
            "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}],
        }
        self._say(groundingMetadata=grounding)

    def call(self, index: int, id: str, name: str) -> None:
        self._calls[index] = {"id": id, "name": name, "args": ""}

    def arguments(self, index: int, delta: str) -> None:
        self._calls[index]["args"] += delta

    def call_end(self, index: int) -> None:
        call = self._calls[index]
        self._part(functionCall=call | {"args": json.loads(call["args"])})

    def end(self, reason: str) -> None:
        counts = {"promptTokenCount": USAGE["input_tokens"], "candidatesTokenCount": USAGE["output_tokens"]}
        candidate = {"content": {"role": "model"}, "finishReason": _GEMINI_REASONS[reason], "index": 0}
        self.sent.append({"candidates": [candidate], "usageMetadata": counts, "responseId": "r1"})

    def fail(self, code: str, message: str) -> None:
        self.sent.append({"error": {"code": 500, "message": message, "status": code}})

    def _part(self, **part: Any) -> None:
        self._say(content={"parts": [part], "role": "model"})

    def _say(self, **candidate: Any) -> None:
        self.sent.append({"candidates": [candidate | {"index": 0}], "responseId": "r1"})


def _gemini(steps: list[Step]) -> list[Frame]:
    """Gemini has a finish reason for a refusal, whose text is ordinary text, and summaries of thoughts."""
    parts = _Parts()
    for verb, *facts in steps:
        if verb == "refusal":
            parts.text(*facts)
        elif verb == "end" and any(verb == "refusal" for verb, *_ in steps):
            parts.end("content_filter")
        elif verb not in SILENT and verb != "reasoning":
            getattr(parts, verb)(*facts)
    return parts.sent


def _responses(steps: list[Step]) -> list[Frame]:
    return [encode(event) for event in played(steps, "openai").events]


def _copilot(steps: list[Step]) -> list[Frame]:
    outbound = copilot.Outbound()
    events = played(steps, "openai").events
    return [copilot.encode_chunk(chunk) for event in events for chunk in outbound.feed(event)]


def _vscode(steps: list[Step]) -> list[Frame]:
    outbound = vscode.Outbound()
    return [line.rstrip() for event in played(steps).events for line in outbound.feed(event)]


def _by_its_outbound(package: str, steps: list[Step]) -> list[Frame]:
    client = next(dialects()[each.name] for each in TABLE if each.package == package).client
    assert client is not None, f"say how the scripts look in {package}"
    outbound = client.outbound()
    events = played(steps, "openai").events
    chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
    frames = (decoder := SSEDecoder()).feed(client.encode(chunks)) + decoder.close()
    return [frame.data for frame in frames]


RENDERERS: dict[str, Callable[[list[Step]], list[Frame]]] = {
    "chat_completions": _chat,
    "anthropic_messages": _anthropic,
    "codex": _codex,
    "gemini": _gemini,
    "responses": _responses,
    "copilot": _copilot,
    "vscode": _vscode,
}
