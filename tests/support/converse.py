"""Streams of Converse: written by hand, as messages of an event stream, and as the scripts say."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

from openresponses_bridge.corpus.foreign import SILENT
from openresponses_bridge.corpus.scripts import Step
from openresponses_bridge.dialects.bedrock_converse import encode_event
from openresponses_bridge.dialects.bedrock_converse.event_stream import MEDIA_TYPE
from tests.support.upstream import Script

Json = dict[str, Any]
HEADERS = {"content-type": MEDIA_TYPE}
USAGE = {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}
REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "content_filtered",
}


def start() -> Json:
    return {"messageStart": {"role": "assistant"}}


def delta(index: int, **fields: Any) -> Json:
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": fields}}


def stop(index: int) -> Json:
    return {"contentBlockStop": {"contentBlockIndex": index}}


def text(index: int, *pieces: str) -> list[Json]:
    """A block of text; Converse sends no start event for one."""
    return [*(delta(index, text=piece) for piece in pieces), stop(index)]


def reasoning(index: int, said: str, signature: str) -> list[Json]:
    """A block of reasoning with its signature."""
    pieces = [delta(index, reasoningContent=each) for each in ({"text": said}, {"signature": signature})]
    return [*pieces, stop(index)]


def call(index: int, id: str, name: str, *pieces: str) -> list[Json]:
    """A call whose input arrives in these pieces."""
    begun = {"toolUse": {"toolUseId": id, "name": name}}
    return [
        {"contentBlockStart": {"contentBlockIndex": index, "start": begun}},
        *(delta(index, toolUse={"input": piece}) for piece in pieces),
        stop(index),
    ]


def end(reason: str = "end_turn", usage: Json = USAGE, **metadata: Any) -> list[Json]:
    """The last events: the stop reason and the usage."""
    about = {"usage": usage, "metrics": {"latencyMs": 7}, **metadata}
    return [{"messageStop": {"stopReason": reason}}, {"metadata": about}]


def messages(events: Iterable[Json]) -> list[bytes]:
    """Each event as the message that a server sends, padded as Bedrock pads it."""
    frames = []
    for number, event in enumerate(events):
        ((kind, fields),) = event.items()
        payload = json.dumps({**fields, "p": "abcdefgh"[: number % 8]}).encode()
        message = "exception" if kind.endswith("Exception") else "event"
        frames.append(encode_event(kind, payload, message=message))
    return frames


class _Blocks:
    """Writes content blocks. One block of text or reasoning is open at a time; calls stay open until their
    end."""

    def __init__(self) -> None:
        self.sent: list[Json] = [start()]
        self._count = 0
        self._open: tuple[str, int] | None = None
        self._calls: dict[int, int] = {}

    def text(self, said: str) -> None:
        self._append("text", text=said)

    def reasoning(self, said: str) -> None:
        self._append("reasoning", reasoningContent={"text": said})

    def encrypted(self, content: str) -> None:
        self._append("reasoning", reasoningContent={"signature": content})

    def cite(self, url: str, title: str, _start: int, _end: int) -> None:
        self._append("text", citation={"title": title, "location": {"web": {"url": url}}})

    def call(self, index: int, id: str, name: str) -> None:
        self._close()
        self._calls[index] = self._begin()
        self.sent.append(call(self._calls[index], id, name)[0])

    def arguments(self, index: int, piece: str) -> None:
        self.sent.append(delta(self._calls[index], toolUse={"input": piece}))

    def call_end(self, index: int) -> None:
        self.sent.append(stop(self._calls[index]))

    def end(self, reason: str) -> None:
        self._close()
        self.sent += end(REASONS[reason])

    def fail(self, _code: str, message: str) -> None:
        self.sent.append({"throttlingException": {"message": message}})

    def _append(self, kind: str, **fields: Any) -> None:
        if self._open is None or self._open[0] != kind:
            self._close()
            self._open = (kind, self._begin())
        self.sent.append(delta(self._open[1], **fields))

    def _begin(self) -> int:
        self._count += 1
        return self._count - 1

    def _close(self) -> None:
        if self._open is not None:
            self.sent.append(stop(self._open[1]))
            self._open = None


def events_of(steps: Iterable[Step]) -> list[Json]:
    """The events that an upstream sends for these steps. Converse has no refusals, which become text, and no
    summaries of reasoning."""
    steps = list(steps)
    refused = any(verb == "refusal" for verb, *_ in steps)
    writer = _Blocks()
    for verb, *facts in steps:
        if verb == "refusal":
            writer.text(*facts)
        elif verb == "end" and refused:
            writer.end("content_filter")
        elif verb not in SILENT and verb != "summary":
            getattr(writer, verb)(*facts)
    return writer.sent


def played(dialect: str, steps: list[Any]) -> Script:
    """An upstream's script with these steps of `dialect_scripts`; the steps of Converse become messages."""
    if dialect != "bedrock":
        return Script(steps)
    events = [json.loads(bytes(step).partition(b"data: ")[2]) for step in steps]
    return Script(messages(events), headers=HEADERS)


def pieces_of(data: bytes, seed: int) -> list[bytes]:
    """The bytes in pieces, some of which split the head of a message."""
    source, at, pieces = random.Random(seed), 0, []
    while at < len(data):
        size = source.choice((1, 2, 11, 12, 13, 100, 4096))
        pieces.append(data[at : at + size])
        at += size
    return pieces
