"""Chat Completions chunks, folded as a client does it. Works on plain JSON, so that it can judge what we send
as well as what others send."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from openresponses_bridge.sse import SSEDecoder, is_done

Json = dict[str, Any]
REASONING = ("reasoning_content", "reasoning", "reasoning_text", "cot_summary")


def recorded(path: Path) -> list[bytes]:
    """The payloads of a capture, including `[DONE]`: some captures lack the blank lines of SSE."""
    lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    if path.suffix != ".sse":
        return lines
    return [line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:")]


def chunks(data: bytes) -> list[Json]:
    """The chunks of an SSE body, which has to end with `[DONE]`."""
    decoder = SSEDecoder()
    frames = decoder.feed(data) + decoder.close()
    assert is_done(frames[-1])
    return [json.loads(frame.data) for frame in frames[:-1]]


class Folded:
    """One choice of a stream."""

    def __init__(self, sent: Iterable[Json], choice: int = 0) -> None:
        self.choice = choice
        self.words: dict[str, str] = {"content": "", "refusal": "", "reasoning": ""}
        self.calls: dict[int, list[str]] = {}
        self.places: dict[int, int] = {}
        self.annotations: list[Json] = []
        self.logprobs: list[Json] = []
        self.finish_reason: str | None = None
        self.usage: Json | None = None
        self.error: Json | None = None
        for chunk in sent:
            self._take(chunk)

    def _take(self, chunk: Json) -> None:
        self.error = chunk.get("error") or self.error
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or ():
            if choice["index"] == self.choice:
                assert self.finish_reason is None or choice.get("finish_reason"), "a delta after the end"
                self._delta(choice.get("delta") or {})
                self.logprobs += (choice.get("logprobs") or {}).get("content") or []
                self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def _delta(self, delta: Json) -> None:
        for name in ("content", "refusal"):
            self.words[name] += delta.get(name) or ""
        self.words["reasoning"] += next((delta[name] for name in REASONING if delta.get(name)), "")
        self.annotations += delta.get("annotations") or []
        for call in delta.get("tool_calls") or ():
            self._call(call)

    def _call(self, call: Json) -> None:
        # some servers use one index for several calls: another id means another call
        index: int = call.get("index", 0)
        place, call_id = self.places.get(index, index), call.get("id")
        while call_id and self.calls.get(place, [call_id])[0] != call_id:
            place += 1
        self.places[index] = place
        known = self.calls.setdefault(place, ["", "", ""])
        inner = call.get("function") or call.get("custom") or {}
        pieces = [call.get("id"), inner.get("name"), inner.get("arguments", inner.get("input"))]
        known[:] = [known[0] or pieces[0] or "", known[1] or pieces[1] or "", known[2] + (pieces[2] or "")]

    @property
    def message(self) -> Json:
        """The relevant parts of the message: the text, the calls by index, the finish reason."""
        sent = {name: text for name, text in self.words.items() if text}
        calls = [tuple(self.calls[index]) for index in sorted(self.calls)]
        return {**sent, "calls": calls, "finish_reason": self.finish_reason}
