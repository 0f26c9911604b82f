"""The scripts that every dialect can express, as servers of Chat Completions, Anthropic's Messages and Gemini
stream them, each with the expected content of a bridge's response.

A dialect leaves out a step that it can't express; a stream that was cut off ends without a frame for its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple, get_args

from msgspec.structs import replace

from openresponses_bridge.corpus.checking import Report, differences
from openresponses_bridge.corpus.scripts import COMMON, USAGE, Step
from openresponses_bridge.corpus.truth import Expected, ExpectedUsage, expected_of

ForeignDialect = Literal["chat", "anthropic", "gemini"]
FOREIGN: Final[tuple[ForeignDialect, ...]] = get_args(ForeignDialect)
Json = dict[str, Any]
DONE: Final = "[DONE]"
SILENT: Final = ("cancel", "cut")
"""Steps for which no server sends a frame."""
_NOT_SENT: Final = "cancel"  # by an upstream: its client disconnects


class ForeignCase(NamedTuple):
    """A stream of another API, with the expected content of the response that a bridge makes of it."""

    id: str
    """`dialect/script`."""
    dialect: ForeignDialect
    asks: str
    frames: tuple[str, ...]
    """The data of each server-sent event."""
    expected: Expected

    @property
    def body(self) -> bytes:
        """The stream as that API's servers send it."""
        return "".join(map(self._framed, self.frames)).encode()

    def differences(self, report: Report) -> list[str]:
        """Return the differences between a bridge's response and this stream. Raw reasoning and summaries are
        not distinguished, nor places of citations, nor the texts of errors."""
        expected = self.expected
        actual = replace(
            report,
            reasoning=f"{report.reasoning or ''}{report.summary or ''}",
            summary="",
            citations=[
                replace(each, start_index=0, end_index=0, title="") for each in report.citations or ()
            ],
        )
        reference = replace(
            expected,
            reasoning=expected.reasoning + expected.summary,
            summary="",
            citations=tuple(
                replace(each, start_index=0, end_index=0, title="") for each in expected.citations
            ),
        )
        if expected.status in ("failed", "cut") and actual.status in ("failed", "incomplete"):
            actual.status, actual.incomplete_reason, actual.error = expected.status, None, None
            reference = replace(reference, error=None, usage=None)
            actual.usage = None
        return differences(reference, actual)

    def _framed(self, frame: str) -> str:
        named = f"event: {json.loads(frame)['type']}\n" if self.dialect == "anthropic" else ""
        return f"{named}data: {frame}\n\n"


def foreign_ids() -> list[str]:
    """Return the ids of all streams of other APIs."""
    return [f"{dialect}/{script}" for dialect in FOREIGN for script in COMMON if script != _NOT_SENT]


def foreign_case(id: str) -> ForeignCase:
    """Return the stream with this id, one of `foreign_ids`. Raises KeyError for any other id."""
    name, _, script = id.partition("/")
    dialect = {each: each for each in FOREIGN}[name]  # type: ignore[index]
    steps = COMMON[script].steps
    frames = tuple(
        frame if isinstance(frame, str) else json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
        for frame in FRAMES[dialect](steps)
    )
    return ForeignCase(id, dialect, COMMON[script].asks, frames, _expected(dialect, steps))


def _expected(dialect: ForeignDialect, steps: list[Step]) -> Expected:
    """Return the expected result of the steps, as far as the dialect can express them."""
    left_out = {"chat": (), "anthropic": ("summary",), "gemini": ("reasoning",)}[dialect]
    steps = [each for each in steps if each[0] not in left_out]
    refused = any(verb == "refusal" for verb, *_ in steps)
    if dialect != "chat" and refused:
        steps = [("text", *each[1:]) if each[0] == "refusal" else each for each in steps]
        steps[-1] = ("end", "content_filter")
    expected = expected_of(steps)
    if steps[-1] == ("cut",):
        expected = replace(expected, status="cut", incomplete_reason=None, usage=None)
    if dialect == "anthropic" and expected.usage is not None:
        counts = (_INPUT_TOKENS, USAGE["output_tokens"])
        expected = replace(expected, usage=ExpectedUsage(*counts, sum(counts)))
    return expected


# Chat Completions


def _frame(**fields: Any) -> Json:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", **fields}


def _chunk(finish: str | None = None, **delta: Any) -> Json:
    return _frame(choices=[{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}])


def _call(index: int, id: str, name: str) -> list[Json | str]:
    call = {"id": id, "function": {"name": name, "arguments": ""}, "index": index, "type": "function"}
    return [_chunk(tool_calls=[call])]


def _arguments(index: int, delta: str) -> list[Json | str]:
    return [_chunk(tool_calls=[{"function": {"arguments": delta}, "index": index}])]


def _annotate(url: str, title: str, start: int, end: int) -> list[Json | str]:
    citation = {"url": url, "title": title, "start_index": start, "end_index": end}
    return [_chunk(annotations=[{"type": "url_citation", "url_citation": citation}])]


def _detail(kind: str, field: str) -> Callable[[str], list[Json | str]]:
    return lambda text: [_chunk(reasoning_details=[{"type": f"reasoning.{kind}", field: text}])]


def _end(reason: str) -> list[Json | str]:
    usage = {"prompt_tokens": USAGE["input_tokens"], "completion_tokens": USAGE["output_tokens"]}
    usage["total_tokens"] = sum(usage.values())
    return [_chunk(reason), _frame(choices=[], usage=usage), DONE]


def _fail(code: str, message: str) -> list[Json | str]:
    return [{"error": {"type": "server_error", "code": code, "message": message, "param": None}}]


_CHAT: Final[dict[str, Callable[..., list[Json | str]]]] = {
    "text": lambda delta: [_chunk(content=delta)],
    "reasoning": lambda delta: [_chunk(reasoning_content=delta)],
    "summary": _detail("summary", "summary"),
    "encrypted": _detail("encrypted", "data"),
    "refusal": lambda delta: [_chunk(refusal=delta)],
    "cite": _annotate,
    "call": _call,
    "arguments": _arguments,
    "end": _end,
    "fail": _fail,
}


def _chat(steps: Iterable[Step]) -> list[Json | str]:
    sent: list[Json | str] = [_chunk(role="assistant", content="")]
    for verb, *facts in steps:
        if verb not in SILENT and verb != "call_end":
            sent += _CHAT[verb](*facts)
    return sent


# Anthropic's Messages

_REASONS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_INPUT_TOKENS: Final = 3


class _Blocks:
    """Writes content blocks. One block of text or thinking is open at a time; calls stay open until they
    end."""

    def __init__(self) -> None:
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
        usage = {"input_tokens": _INPUT_TOKENS, "output_tokens": 1}
        self.sent: list[Json | str] = [{"type": "message_start", "message": {**message, "usage": usage}}]
        self._count = 0
        self._open: tuple[str, int] | None = None
        self._calls: dict[int, int] = {}

    def text(self, delta: str) -> None:
        self._append("text", "text_delta", text=delta)

    def reasoning(self, delta: str) -> None:
        self._append("thinking", "thinking_delta", thinking=delta)

    def encrypted(self, content: str) -> None:
        self._append("thinking", "signature_delta", signature=content)

    def annotate(self, url: str, title: str, _start: int, _end: int) -> None:
        cited = {
            "type": "web_search_result_location",
            "url": url,
            "title": title,
            "cited_text": "the capital",
            "encrypted_index": "aW5kZXg=",
        }
        self._append("text", "citations_delta", citation=cited)

    def call(self, index: int, id: str, name: str) -> None:
        self._close()
        self._calls[index] = self._begin("tool_use", id=id, name=name, input={})

    def arguments(self, index: int, delta: str) -> None:
        self._delta(self._calls[index], "input_json_delta", partial_json=delta)

    def call_end(self, index: int) -> None:
        self.sent.append({"type": "content_block_stop", "index": self._calls[index]})

    def end(self, reason: str) -> None:
        self._close()
        ending = {"stop_reason": _REASONS[reason], "stop_sequence": None}
        usage = {"output_tokens": USAGE["output_tokens"]}
        self.sent += [{"type": "message_delta", "delta": ending, "usage": usage}, {"type": "message_stop"}]

    def fail(self, _code: str, message: str) -> None:
        self.sent.append({"type": "error", "error": {"type": "overloaded_error", "message": message}})

    def _append(self, kind: str, delta: str, **fields: Any) -> None:
        if self._open is None or self._open[0] != kind:
            self._close()
            empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}}[kind]
            self._open = (kind, self._begin(kind, **empty))
        self._delta(self._open[1], delta, **fields)

    def _delta(self, index: int, kind: str, **fields: Any) -> None:
        self.sent.append({"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}})

    def _begin(self, kind: str, **fields: Any) -> int:
        self._count += 1
        block = {"type": kind, **fields}
        self.sent.append({"type": "content_block_start", "index": self._count - 1, "content_block": block})
        return self._count - 1

    def _close(self) -> None:
        if self._open is not None:
            self.sent.append({"type": "content_block_stop", "index": self._open[1]})
            self._open = None


def _anthropic(steps: Iterable[Step]) -> list[Json | str]:
    """Anthropic has a stop reason for a refusal, whose text is ordinary text, and no summaries of
    thinking."""
    return _written(_Blocks(), list(steps), "summary")


# Gemini

_FINISHES: Final = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}


class _Parts:
    """Writes chunks of `generateContent`: calls are whole, citations are in bytes."""

    def __init__(self) -> None:
        self.sent: list[Json | str] = []
        self._text = ""
        self._calls: dict[int, Json] = {}

    def text(self, delta: str) -> None:
        self._text += delta
        self._part(text=delta)

    def summary(self, delta: str) -> None:
        self._part(text=delta, thought=True)

    def encrypted(self, content: str) -> None:
        self._part(text="", thought=True, thoughtSignature=content)

    def annotate(self, url: str, title: str, start: int, end: int) -> None:
        places = [len(self._text[:at].encode()) for at in (start, end)]
        segment = dict(zip(("startIndex", "endIndex"), places, strict=True))
        grounding = {
            "groundingChunks": [{"web": {"uri": url, "title": title}}],
            "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}],
        }
        self._send(groundingMetadata=grounding)

    def call(self, index: int, id: str, name: str) -> None:
        self._calls[index] = {"id": id, "name": name, "args": ""}

    def arguments(self, index: int, delta: str) -> None:
        self._calls[index]["args"] += delta

    def call_end(self, index: int) -> None:
        call = self._calls[index]
        self._part(functionCall=call | {"args": json.loads(call["args"])})

    def end(self, reason: str) -> None:
        counts = {"promptTokenCount": USAGE["input_tokens"], "candidatesTokenCount": USAGE["output_tokens"]}
        candidate = {"content": {"role": "model"}, "finishReason": _FINISHES[reason], "index": 0}
        self.sent.append({"candidates": [candidate], "usageMetadata": counts, "responseId": "r1"})

    def fail(self, code: str, message: str) -> None:
        self.sent.append({"error": {"code": 500, "message": message, "status": code}})

    def _part(self, **part: Any) -> None:
        self._send(content={"parts": [part], "role": "model"})

    def _send(self, **candidate: Any) -> None:
        self.sent.append({"candidates": [candidate | {"index": 0}], "responseId": "r1"})


def _gemini(steps: Iterable[Step]) -> list[Json | str]:
    """Gemini has a finish reason for a refusal, whose text is ordinary text, and summaries of thoughts."""
    return _written(_Parts(), list(steps), "reasoning")


def _written(writer: _Blocks | _Parts, steps: list[Step], left_out: str) -> list[Json | str]:
    refused = any(verb == "refusal" for verb, *_ in steps)
    for verb, *facts in steps:
        if verb == "refusal":
            writer.text(*facts)
        elif verb == "end" and refused:
            writer.end("content_filter")
        elif verb not in SILENT and verb != left_out:
            getattr(writer, "annotate" if verb == "cite" else verb)(*facts)
    return writer.sent


FRAMES: Final[dict[ForeignDialect, Callable[[Iterable[Step]], list[Json | str]]]] = {
    "chat": _chat,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
"""Steps → the frames that an upstream of the dialect sends: JSON objects, and Chat's `[DONE]`."""
