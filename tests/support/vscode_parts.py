"""Streams written as plain JSON, decoded to VS Code parts, and short forms of the parts."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    Part,
    PartDecoder,
    PartResult,
)
from openresponses_bridge.protocol.codec import decode_event, event_from
from openresponses_bridge.protocol.events import Event, ResponseCreated
from openresponses_bridge.sse import SSEDecoder

Raw = dict[str, Any]


class Decoded:
    """All parts of a stream and its diagnostics. `raw` has events as JSON or as structs; with `close`, the
    stream is ended afterwards."""

    def __init__(self, raw: Iterable[Raw | Event], close: bool = True, **options: Any) -> None:
        self.decoder = PartDecoder(**options)
        self.parts: list[Part] = []
        for event in raw:
            self.feed(event)
        if close:
            self.parts += self.decoder.close()

    def feed(self, raw: Raw | Event) -> list[Part]:
        """Feed one more event."""
        parts = self.decoder.feed(event_from(raw) if isinstance(raw, dict) else raw)
        self.parts += parts
        return parts

    @property
    def result(self) -> PartResult:
        return self.decoder.result

    @property
    def text(self) -> str:
        return "".join(part.value for part in self.parts if isinstance(part, LanguageModelTextPart))

    @property
    def calls(self) -> list[tuple[str, str, Any]]:
        """(call id, name, input) of each tool call."""
        calls = [part for part in self.parts if isinstance(part, LanguageModelToolCallPart)]
        return [(call.call_id, call.name, call.input) for call in calls]

    @property
    def thoughts(self) -> list[LanguageModelThinkingPart]:
        return [part for part in self.parts if isinstance(part, LanguageModelThinkingPart)]

    @property
    def thinking(self) -> str:
        return "".join(part.value for part in self.thoughts if isinstance(part.value, str))

    def data(self, mime_type: str) -> list[bytes]:
        """The contents of the data parts of one type."""
        parts = [part for part in self.parts if isinstance(part, LanguageModelDataPart)]
        return [part.data for part in parts if part.mime_type == mime_type]

    def notes(self, kind: str) -> dict[str, str]:
        """The places and texts of the diagnostics of one kind."""
        return {case.where: case.what for case in self.result.diagnostics if case.kind == kind}


def kinds(parts: Iterable[Part]) -> list[str]:
    """The types of parts, without their common prefix."""
    return [part.type.removeprefix("LanguageModel").removesuffix("Part") for part in parts]


def recorded(path: Path) -> list[list[Event]]:
    """The responses of a recorded stream, each as its events: server-sent events, or one JSON object per
    line. Some files contain several turns of a conversation."""
    data = path.read_bytes()
    if path.suffix == ".sse":
        decoder = SSEDecoder()
        payloads = [frame.data for frame in decoder.feed(data) + decoder.close()]
    else:
        payloads = data.splitlines()
    responses: list[list[Event]] = [[]]
    for payload in payloads:
        if payload.strip() and payload != b"[DONE]":
            event = decode_event(payload)
            if isinstance(event, ResponseCreated) and responses[-1]:
                responses.append([])
            responses[-1].append(event)
    return responses


def created(**response: Any) -> Raw:
    return {"type": "response.created", "response": {"id": "resp_1", "model": "m", **response}}


def completed(*output: Raw, **response: Any) -> Raw:
    """A terminal event; `status` selects it, completed by default."""
    status = response.setdefault("status", "completed")
    fields = {"id": "resp_1", "model": "m", "output": list(output), **response}
    return {"type": f"response.{status}", "response": fields}


def function(
    index: int = 0, arguments: str = "", item_id: str | None = None, call_id: str | None = None, **fields: Any
) -> Raw:
    """A function_call item. By default, its ids follow from the index."""
    item = {
        "type": "function_call",
        "id": f"fc_{index}" if item_id is None else item_id,
        "call_id": f"call_{index}" if call_id is None else call_id,
        "name": "look",
        "arguments": arguments,
        "status": "completed",
    }
    return item | fields


def message(*content: Raw, **fields: Any) -> Raw:
    item = {
        "type": "message",
        "id": "msg_0",
        "role": "assistant",
        "status": "completed",
        "content": list(content),
    }
    return item | fields


def output_text(text: str, *annotations: Raw) -> Raw:
    return {"type": "output_text", "text": text, "annotations": list(annotations)}


def reasoning(*summary: str, **fields: Any) -> Raw:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": "rs_0", "summary": parts, **fields}


def citation(url: str = "https://a.example/", title: str = "A", **fields: Any) -> Raw:
    return {"type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": 1} | fields


def added(item: Raw, index: int = 0) -> Raw:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(item: Raw, index: int = 0) -> Raw:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def said(kind: str, index: int = 0, item_id: str = "it_0", **fields: Any) -> Raw:
    """An event within an item: `said("output_text.delta", delta="x")`. Part indexes are 0 by default."""
    where = {"output_index": index, "item_id": item_id, "content_index": 0, "summary_index": 0}
    return {"type": f"response.{kind}", **where, **fields}


def text_delta(delta: str, index: int = 0, content_index: int = 0) -> Raw:
    return said("output_text.delta", index, delta=delta, content_index=content_index)


def arguments_delta(delta: str, index: int = 0, item_id: str | None = None) -> Raw:
    return said("function_call_arguments.delta", index, item_id or f"fc_{index}", delta=delta)


def arguments_done(arguments: str, index: int = 0, item_id: str | None = None) -> Raw:
    return said("function_call_arguments.done", index, item_id or f"fc_{index}", arguments=arguments)


def compact(value: Any) -> str:
    """JSON in the form in which models write it."""
    return json.dumps(value, separators=(",", ":"))
