"""Converts the deltas of one choice into calls of the machine.

Within a chunk the order is that of generation: reasoning, text, refusal, citations, calls.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple

from openresponses_bridge.dialects.chat_completions.types import (
    ChatAnnotation,
    ChatDelta,
    ChatFunction,
    ChatLogProbs,
    ChatToolCall,
    ReasoningDetail,
)
from openresponses_bridge.dialects.chat_completions.upstream.decoding import (
    StrictDelta,
    arguments_of,
    content_of,
    logprobs_of,
)
from openresponses_bridge.dialects.chat_completions.upstream.tool_calls import (
    LEGACY_INDEX,
    Fragment,
    ToolCallResolver,
)
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.content import LogProb, UrlCitation
from openresponses_bridge.protocol.events import Event

# `<think>…</think>` at the head of a text → reasoning apart from text, however it is cut.
#
# Models without a reasoning parser before them open their answer with the tag. Only there does it
# mean reasoning: later it is text. White space beside the tags is theirs, not the answer's, so an empty
# `<think></think>` leaves nothing behind (field case 16).

OPEN = "<think>"
CLOSE = "</think>"


class _At(Enum):
    HEAD = auto()  # nothing but white space and perhaps the beginning of the tag so far
    OPENED = auto()  # behind the tag, before the first letter of the reasoning
    THINKING = auto()
    CLOSED = auto()  # behind the closing tag, before the first letter of the answer
    TEXT = auto()


_WITHIN = (_At.OPENED, _At.THINKING)


class ThinkTags:
    """Splits fragments into (reasoning, text). After `decided` everything is text as it stands.

    `is_flushed` while nothing is held back and no tag is open.
    """

    __slots__ = ("_at", "_blank", "_held", "is_flushed")

    def __init__(self) -> None:
        self._at = _At.HEAD
        self._held = ""
        self._blank: list[str] = []  # white space at the head, before what is held
        self.is_flushed = True

    @property
    def decided(self) -> bool:
        """No tag can come any more: the caller may pass text by."""
        return self._at is _At.TEXT

    def feed(self, text: str) -> tuple[str, str]:
        """The next fragment → what of it is known to be reasoning, and what to be text."""
        text, self._held = self._held + text, ""
        reasoning = ""
        if self._at is _At.HEAD:
            if not self._blank and text[:1] != OPEN[0] and text[:1] > " " and text[:1].isascii():
                self._at, self.is_flushed = _At.TEXT, True  # it begins as answers mostly do
                return "", text
            text = self._head(text)
        if self._at in _WITHIN:
            reasoning, text = self._thinking(text)
        if self._at is _At.CLOSED:
            text = text.lstrip()
            self._at = _At.TEXT if text else _At.CLOSED
        self.is_flushed = not (self._held or self._blank) and self._at not in _WITHIN
        return reasoning, text

    def close(self) -> tuple[str, str]:
        """No more text comes: give what was held."""
        held, self._held = "".join(self._blank) + self._held, ""
        self._blank.clear()
        thinking, self._at = self._at in _WITHIN, _At.TEXT
        self.is_flushed = True
        return (held, "") if thinking else ("", held)

    def _head(self, text: str) -> str:
        start = text.lstrip()
        if len(start) < len(text):
            self._blank.append(text[: len(text) - len(start)])
        if OPEN.startswith(start) and start != OPEN:
            self._held = start
            return ""
        blank = "".join(self._blank)
        self._blank.clear()
        if start.startswith(OPEN):
            self._at = _At.OPENED
            return start[len(OPEN) :]
        self._at = _At.TEXT
        return blank + start

    def _thinking(self, text: str) -> tuple[str, str]:
        if self._at is _At.OPENED:
            text = text.lstrip()
            if not text:
                return "", ""
            self._at = _At.THINKING
        reasoning, closed, answer = text.partition(CLOSE)
        if closed:
            self._at = _At.CLOSED
            return reasoning, answer
        size = _overlap(reasoning)
        self._held = reasoning[len(reasoning) - size :]
        return reasoning[: len(reasoning) - size], ""


def _overlap(text: str) -> int:
    """How many characters at the end of `text` may be the beginning of the closing tag."""
    for size in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if CLOSE.startswith(text[-size:]):
            return size
    return 0


Text = Callable[[str], list[Event]]


class ChunkString(NamedTuple):
    """The single string of a chunk: its `text`, `read`, which decodes it from any such chunk, and `apply`,
    which feeds the next one to the machine, or returns None and does nothing for one that needs a closer
    look."""

    text: str
    read: Callable[[bytes], object]
    apply: Callable[[str], list[Event] | None]


class DeltaReader:
    """Reads one choice. `text` accepts plain text; it is the machine's own method as soon as no think tag can
    come and no log probabilities wait. Raises what the machine raises."""

    __slots__ = ("_diagnostics", "_machine", "_probabilities", "_resolver", "_think", "text")

    def __init__(self, machine: ResponseStream, think_tags: bool) -> None:
        self._machine = machine
        self._diagnostics = machine.diagnostics
        self._resolver = ToolCallResolver(machine.diagnostics)
        self._think = ThinkTags() if think_tags else None
        self._probabilities: list[LogProb] = []
        self.text: Text = self._buffered_text if think_tags else machine.text

    def continued(self, delta: StrictDelta) -> list[Event] | None:
        """Read a delta that has exactly one of text, reasoning and a call's fragment. Returns None, and does
        nothing, for any other."""
        content, calls, raw = delta.content, delta.tool_calls, delta.reasoning_content or delta.reasoning
        if content:
            return None if calls or raw else self.text(content)
        if raw:
            return None if calls else self._machine.reasoning(raw)
        if not calls or not (self._think is None or self._think.is_flushed):
            return None
        fragment, function = calls[0], calls[0].function
        events = None if function is None else self.continue_call(fragment, function, function.arguments)
        return self.call(fragment) if events is None else events

    def continue_call(
        self, fragment: ChatToolCall, function: ChatFunction, arguments: object
    ) -> list[Event] | None:
        """Append the arguments to a call that is known; None, and no change, when the fragment needs a closer
        look."""
        call = self._resolver.find_continued(fragment, function, arguments)
        return None if call is None else self._machine.tool_call(call.slot, None, None, call.last)

    def string_of(self, delta: StrictDelta) -> ChunkString | None:
        """The string of this delta and how to apply the next one, for chunks that differ in it alone. None
        while text is buffered."""
        if delta.tool_calls:
            fragment, function = delta.tool_calls[0], delta.tool_calls[0].function
            if function is None or not isinstance(function.arguments, str):
                return None
            return ChunkString(
                function.arguments, arguments_of, partial(self.continue_call, fragment, function)
            )
        if not delta.content or self._think is not None or self._probabilities:
            return None
        return ChunkString(delta.content, content_of, self._machine.text)

    def delta(self, delta: ChatDelta, logprobs: ChatLogProbs | None, events: list[Event]) -> None:
        """All that a chunk's delta says; the events are appended as they come."""
        self._content(delta, logprobs, events)
        for call in delta.tool_calls or ():
            events += self.flush()
            events += self.call(call)

    def message(self, message: ChatDelta, logprobs: ChatLogProbs | None, events: list[Event]) -> None:
        """All that a whole message says."""
        self._content(message, logprobs, events)
        for call in message.tool_calls or ():
            events += self.flush()
            events += self._fragment(self._resolver.whole(call))

    def call(self, call: ChatToolCall) -> list[Event]:
        """Read one fragment of a tool call. The caller has flushed the text."""
        return self._fragment(self._resolver.resolve(call))

    def _fragment(self, fragment: Fragment | None) -> list[Event]:
        return [] if fragment is None else self._machine.tool_call(*fragment)

    def flush(self) -> list[Event]:
        """Send the buffered text, because something other than text follows."""
        think = self._think
        return [] if think is None or think.is_flushed else self._split(*think.close())

    def close(self) -> list[Event]:
        """Nothing more comes."""
        events = self.flush()
        self._drop_probabilities()
        return events

    def _content(self, delta: ChatDelta, logprobs: ChatLogProbs | None, events: list[Event]) -> None:
        if logprobs is not None:
            self._keep_probabilities(delta, logprobs)
        self._reasoning(delta, events)
        if isinstance(delta.content, str):
            events += self.text(delta.content)
        else:
            for part in delta.content or ():
                self._part(part, events)
        if delta.refusal:
            events += self.flush()
            events += self._machine.refusal(delta.refusal)
        for annotation in delta.annotations or ():
            self._annotate(annotation, events)
        if delta.audio:
            self._diagnostics.loss("delta.audio", "can't be expressed")
        if delta.images:
            self._diagnostics.loss("delta.images", "can't be expressed")
        if delta.function_call is not None:
            events += self.flush()
            events += self.call(ChatToolCall(LEGACY_INDEX, function=delta.function_call))

    def _buffered_text(self, text: str) -> list[Event]:
        """Text while think tags may come, or with log probabilities that wait for it."""
        return self._split(*self._think.feed(text)) if self._think is not None else self._split("", text)

    def _split(self, reasoning: str, text: str) -> list[Event]:
        events: list[Event] = []
        if reasoning:
            self._drop_probabilities()
            events += self._machine.reasoning(reasoning)
        if text:
            probabilities, self._probabilities = self._probabilities, []
            events += self._machine.text(text, probabilities)
        if self._think is not None and self._think.decided:
            self._think = None
        if self._think is None and not self._probabilities:
            self.text = self._machine.text
        return events

    def _part(self, part: Any, events: list[Event]) -> None:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind == "str":
            events += self.text(part)
        elif kind in ("text", "output_text"):
            events += self.text(_text_of(part.get("text")))
        elif kind in ("thinking", "reasoning"):
            events += self._machine.reasoning(_text_of(part.get("thinking", part.get("text"))))
        elif kind == "refusal":
            events += self.flush()
            events += self._machine.refusal(_text_of(part.get("refusal")))
        else:
            self._diagnostics.loss("content", f"a part of type {kind}")

    def _annotate(self, annotation: ChatAnnotation, events: list[Event]) -> None:
        cited = annotation.url_citation or annotation
        if annotation.type != "url_citation" or not cited.url:
            self._diagnostics.loss("annotations", f"a citation of type {annotation.type}")
            return
        events += self.flush()
        citation = UrlCitation(cited.url, cited.start_index or 0, cited.end_index or 0, cited.title or "")
        events += self._machine.annotation(citation)

    # Log probabilities are kept until their text comes.
    def _keep_probabilities(self, delta: ChatDelta, logprobs: ChatLogProbs) -> None:
        if logprobs.refusal:
            self._diagnostics.loss("logprobs.refusal", "can't be expressed")
        self._probabilities += logprobs_of(logprobs.content or [], self._diagnostics)
        if self._probabilities:
            self.text = self._buffered_text
        if (delta.tool_calls or delta.reasoning_content or delta.reasoning) and not delta.content:
            self._drop_probabilities()  # tokens of arguments or of reasoning

    def _drop_probabilities(self) -> None:
        if self._probabilities:
            self._probabilities = []
            self._diagnostics.loss("logprobs", "not of visible text")

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


def _text_of(value: Any) -> str:
    """Text, or the text of a list of parts."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else ()
    return "".join(_text_of(part.get("text")) for part in parts if isinstance(part, dict))
