"""What one choice says, piece by piece → calls of the machine.

Within a chunk the order is the one a model thinks in: reasoning, text, refusal, citations, calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.dialects.chat_completions.resolver import Fragment, ToolCallResolver
from bridge.dialects.chat_completions.think_tags import ThinkTags
from bridge.dialects.chat_completions.types import (
    ChatAnnotation,
    ChatDelta,
    ChatLogProbs,
    ChatToolCall,
    ReasoningDetail,
)
from bridge.dialects.chat_completions.usage import logprobs_of
from bridge.emitter.machine import ResponseStreamStateMachine
from bridge.protocol.content import LogProb, UrlCitation
from bridge.protocol.events import Event


class Answer:
    """The first choice of a stream. `text` takes plain text, and is the machine's own method as soon
    as nothing about the text is open any more."""

    __slots__ = ("_diagnostics", "_machine", "_probabilities", "_resolver", "_think", "text")

    def __init__(self, machine: ResponseStreamStateMachine, think_tags: bool) -> None:
        self._machine = machine
        self._diagnostics = machine.diagnostics
        self._resolver = ToolCallResolver(machine.diagnostics)
        self._think = ThinkTags() if think_tags else None
        self._probabilities: list[LogProb] = []
        self.text: Callable[[str], list[Event]] = self._careful_text if think_tags else machine.text

    def delta(
        self, delta: ChatDelta, logprobs: ChatLogProbs | None, events: list[Event], *, whole: bool = False
    ) -> None:
        """All that a delta or a whole message says; its events are appended as they come."""
        if logprobs is not None:
            self._keep_probabilities(delta, logprobs)
        self._reasoning(delta, events)
        content = delta.content
        if isinstance(content, str):
            events += self.text(content)
        elif content:
            self._parts(content, events)
        if delta.refusal:
            events += self.settle()
            events += self._machine.refusal(delta.refusal)
        for annotation in delta.annotations or ():
            self._cite(annotation, events)
        for name in ("audio", "images"):
            if getattr(delta, name):
                self._diagnostics.loss(f"delta.{name}", "can't be expressed")
        if delta.tool_calls or delta.function_call is not None:
            self._calls(delta, events, whole)

    def settle(self) -> list[Event]:
        """Something other than text begins: what the text still held back goes out before it."""
        if self._think is None:
            return []
        reasoning, text = self._think.close() if self._think.thinking or self._think.holding else ("", "")
        return self._split(reasoning, text)

    def close(self) -> list[Event]:
        """Nothing more comes."""
        events = self.settle()
        if self._probabilities:
            self._diagnostics.loss("logprobs", "of no visible text")
        return events

    # ── text ───────────────────────────────────────────────────────────────────────────────────────
    def _careful_text(self, text: str) -> list[Event]:
        """Text while think tags may come, or with log probabilities that wait for it."""
        reasoning = ""
        if self._think is not None:
            reasoning, text = self._think.feed(text)
        return self._split(reasoning, text)

    def _split(self, reasoning: str, text: str) -> list[Event]:
        events = self._machine.reasoning(reasoning) if reasoning else []
        if reasoning and self._probabilities:
            self._drop_probabilities()
        if text:
            probabilities, self._probabilities = self._probabilities, []
            events += self._machine.text(text, probabilities)
        if self._think is not None and self._think.decided:
            self._think = None
        if self._think is None and not self._probabilities:
            self.text = self._machine.text
        return events

    def _parts(self, parts: list[Any], events: list[Event]) -> None:
        for part in parts:
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            if isinstance(part, str):
                events += self.text(part)
            elif kind in ("text", "output_text"):
                events += self.text(_text_of(part.get("text")))
            elif kind in ("thinking", "reasoning"):
                events += self._machine.reasoning(_text_of(part.get("thinking", part.get("text"))))
            elif kind == "refusal":
                events += self.settle()
                events += self._machine.refusal(_text_of(part.get("refusal")))
            else:
                self._diagnostics.loss("content", f"a part of type {kind}")

    def _cite(self, annotation: ChatAnnotation, events: list[Event]) -> None:
        cited = annotation.url_citation or annotation
        if annotation.type != "url_citation" or not cited.url:
            self._diagnostics.loss("annotations", f"a citation of type {annotation.type}")
            return
        events += self.settle()
        citation = UrlCitation(cited.url, cited.start_index or 0, cited.end_index or 0, cited.title or "")
        events += self._machine.annotation(citation)

    # ── log probabilities: they wait for the text they belong to ───────────────────────────────────
    def _keep_probabilities(self, delta: ChatDelta, logprobs: ChatLogProbs) -> None:
        if logprobs.refusal:
            self._diagnostics.loss("logprobs.refusal", "can't be expressed")
        if not logprobs.content:
            return
        self._probabilities += logprobs_of(logprobs.content, self._diagnostics)
        if isinstance(delta.content, str) and not (delta.tool_calls and not delta.content):
            self.text = self._careful_text
        elif self._probabilities:
            self._drop_probabilities()

    def _drop_probabilities(self) -> None:
        self._probabilities = []
        self._diagnostics.loss("logprobs", "of no visible text")

    # ── reasoning ──────────────────────────────────────────────────────────────────────────────────
    def _reasoning(self, delta: ChatDelta, events: list[Event]) -> None:
        said = False
        for detail in delta.reasoning_details or ():
            said = self._detail(detail, events) or said
        # servers that know several names say the same under each
        raw = delta.reasoning_content or delta.reasoning or delta.reasoning_text
        if raw and not said:
            events += self._machine.reasoning(raw)
        if delta.reasoning_opaque:
            events += self._machine.reasoning_encrypted(delta.reasoning_opaque)

    def _detail(self, detail: ReasoningDetail, events: list[Event]) -> bool:
        """True when the detail said in the clear what the plain field repeats."""
        if detail.signature:
            self._diagnostics.loss("reasoning_details.signature", "can't be expressed")
        if detail.text:
            events += self._machine.reasoning(detail.text)
        elif detail.summary:
            events += self._machine.reasoning_summary(detail.summary, detail.index or 0)
        elif detail.data:
            # thinking in the clear never goes there (field case 32)
            events += self._machine.reasoning_encrypted(detail.data)
        return bool(detail.text or detail.summary)

    # ── tool calls ─────────────────────────────────────────────────────────────────────────────────
    def _calls(self, delta: ChatDelta, events: list[Event], whole: bool) -> None:
        events += self.settle()
        route: Callable[[ChatToolCall], Fragment | None] = self._resolver.whole if whole else self._resolver.resolve
        if delta.function_call is not None:
            self._call(self._resolver.legacy(delta.function_call), events)
        for call in delta.tool_calls or ():
            self._call(route(call), events)

    def _call(self, fragment: Fragment | None, events: list[Event]) -> None:
        if fragment is not None:
            slot, call_id, name, arguments, kind = fragment
            events += self._machine.tool_call(slot, call_id, name, arguments, kind)


def _text_of(value: Any) -> str:
    """Text, or the text of a list of parts."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else ()
    return "".join(_text_of(part.get("text")) for part in parts if isinstance(part, dict))
