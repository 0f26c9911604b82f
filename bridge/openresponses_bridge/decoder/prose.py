"""Text of messages, refusals in italics, and both from the done events of servers that send no deltas."""

from __future__ import annotations

import re
from collections import defaultdict
from enum import Enum

from msgspec import UNSET

from openresponses_bridge.decoder.parts import LanguageModelTextPart, LanguageModelThinkingPart, Part
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.content import (
    Annotation,
    ContentPart,
    OutputTextContent,
    RefusalContent,
    UrlCitation,
)
from openresponses_bridge.protocol.items import Message
from openresponses_bridge.text import SurrogateJoiner, repair_surrogates

# One of text, refusal and thinking is open at a time. A refusal is italic, opened once and closed once;
# thinking ends with one marker before the first text, tool call or end.

BREAK = "\n\n"
ITALIC = "*"


class Mode(Enum):
    """The kind of block of the last part."""

    NOTHING = "nothing"
    TEXT = "text"
    REFUSAL = "refusal"
    THINKING = "thinking"
    THOUGHT = "thought"
    """Thinking that is shown as text."""


class ModeSwitch:
    """Tracks the kind of the last part, and returns the parts that separate one kind from the next. With
    `paragraph_breaks`, text of another output item begins a paragraph; thinking that is shown as text is
    always its own paragraph.

    (`output_index`, `content_index`) is the position of the last text; (-1, -1) when the next delta must not
    be sent unchanged.
    """

    __slots__ = (
        "_breaks",
        "_joiner",
        "_last",
        "block_id",
        "content_index",
        "mode",
        "output_index",
        "text_written",
    )

    def __init__(self, paragraph_breaks: bool = False) -> None:
        self.mode = Mode.NOTHING
        self.output_index = -1
        self.content_index = -1
        self.block_id = ""
        self.text_written = False
        self._breaks = paragraph_breaks
        self._joiner = SurrogateJoiner()
        self._last: tuple[bool, int] | None = None

    def mark_written(self, output_index: int, content_index: int) -> None:
        """Record that text was written at this position: deltas for it may follow unchanged, unless half a
        surrogate pair is pending."""
        self.output_index = -1 if self._joiner.pending else output_index
        self.content_index = content_index

    def feed(self, delta: str) -> str:
        """Accept a delta. Returns the part of it that can be sent now."""
        return self._joiner.feed(delta)

    def enter(self, mode: Mode, output_index: int, block_id: str = "") -> list[Part]:
        """Return the parts before the first one of `mode`."""
        parts = self.close() if mode is not self.mode else []
        self.mode = mode
        self.block_id = block_id
        if mode is not Mode.THINKING:
            parts += self._separate((mode is Mode.THOUGHT, output_index))
        return parts

    def close(self) -> list[Part]:
        """Return the parts that close what is open."""
        mode, self.mode = self.mode, Mode.NOTHING
        self.output_index = self.content_index = -1
        rest = self._joiner.flush()
        if mode is Mode.THINKING:
            ended = LanguageModelThinkingPart("", self.block_id or UNSET, {"vscode_reasoning_done": True})
            return [LanguageModelThinkingPart(rest, self.block_id or UNSET), ended] if rest else [ended]
        if mode is Mode.REFUSAL:
            rest += ITALIC
        return [LanguageModelTextPart(rest)] if rest else []

    def _separate(self, place: tuple[bool, int]) -> list[Part]:
        last, self._last = self._last, place
        self.text_written = True
        if last is None or last == place:
            return []
        is_break = self._breaks or last[0] or place[0]
        return [LanguageModelTextPart(BREAK)] if is_break else []


# Citations as inline links, the only form in which VS Code's text can carry them (RFC 00022, gap 2).

_IN_TITLE = re.compile(r"([\\\[\]])")
_IN_URL = re.compile(r"[\s()<>\\]")


def link(title: str, url: str) -> str:
    """Return ` [title](url)`, with characters escaped that would end either of them. A citation without a
    title shows its address."""
    shown = " ".join((title or url).split())
    return repair_surrogates(f" [{_IN_TITLE.sub(_BACKSLASHED, shown)}]({_IN_URL.sub(_percent, url)})")


class Citations:
    """The citations of each text, each once, whether from an event of its own, the finished part or the
    finished item."""

    def __init__(self, diagnostics: Diagnostics, shown: bool = True) -> None:
        self._diagnostics = diagnostics
        self._shown = shown
        self._seen: set[tuple[int, str]] = set()

    def streamed(self, output_index: int, annotation: Annotation) -> list[Part]:
        """Return the link of a citation that has an event of its own."""
        return self._links(output_index, [annotation], repeat=True)

    def finished(self, output_index: int, annotations: list[Annotation]) -> list[Part]:
        """Return the links of a finished text that were not sent before. Links are compared by address, since
        the positions in a finished text may be counted differently."""
        return self._links(output_index, annotations, repeat=False)

    def _links(self, output_index: int, annotations: list[Annotation], repeat: bool) -> list[Part]:
        parts: list[Part] = []
        for annotation in annotations:
            if not isinstance(annotation, UrlCitation):
                self._diagnostics.loss(f"annotation.{annotation.type}"[:80], "has no address, not shown")
            elif self._shown and annotation.url:
                key = (output_index, annotation.url)
                if repeat or key not in self._seen:
                    parts.append(LanguageModelTextPart(link(annotation.title, annotation.url)))
                self._seen.add(key)
        return parts


_BACKSLASHED = r"\\\1"


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode())


class ProseDecoder:
    """Decodes the messages of one response. Parts are identified by (output_index, content_index), because
    ids may change between events."""

    __slots__ = ("_citations", "_flow", "_refusing", "_said")

    def __init__(self, flow: ModeSwitch, diagnostics: Diagnostics, links: bool = True) -> None:
        self._flow = flow
        self._citations = Citations(diagnostics, links)
        self._said: defaultdict[int, set[int]] = defaultdict(set)
        self._refusing = (-1, -1)

    @property
    def is_empty(self) -> bool:
        """True if there was no text yet."""
        return not any(self._said.values())

    def text(self, output_index: int, content_index: int, delta: str) -> list[Part]:
        """Return the parts of the next piece of text; none for an empty one."""
        if not delta:
            return []
        parts = self._flow.enter(Mode.TEXT, output_index)
        self._said[output_index].add(content_index)
        delta = self._flow.feed(delta)
        if delta:
            parts.append(LanguageModelTextPart(delta))
        self._flow.mark_written(output_index, content_index)
        return parts

    def refusal(self, output_index: int, content_index: int, delta: str) -> list[Part]:
        """Return the parts of the next piece of a refusal."""
        if not delta:
            return []
        place = (output_index, content_index)
        if self._is_refusing(place):
            delta = self._flow.feed(delta)
            return [LanguageModelTextPart(delta)] if delta else []
        parts = self._flow.close() + self._flow.enter(Mode.REFUSAL, output_index)
        self._said[output_index].add(content_index)
        self._refusing = place
        parts.append(LanguageModelTextPart(ITALIC + self._flow.feed(delta)))
        return parts

    def text_done(self, output_index: int, content_index: int, text: str) -> list[Part]:
        """Return the parts of a whole text, if it had no deltas."""
        if content_index in self._said[output_index]:
            return []
        return self.text(output_index, content_index, text)

    def refusal_done(self, output_index: int, content_index: int, refusal: str) -> list[Part]:
        """End a refusal. Returns its whole text too if it had no deltas."""
        parts: list[Part] = []
        if content_index not in self._said[output_index]:
            parts = self.refusal(output_index, content_index, refusal)
        return parts + self._flow.close() if self._is_refusing((output_index, content_index)) else parts

    def annotation(self, output_index: int, annotation: Annotation | None) -> list[Part]:
        """Return the part of a citation, at its place."""
        links = [] if annotation is None else self._citations.streamed(output_index, annotation)
        return self._linked(output_index, links)

    def part_done(self, output_index: int, content_index: int, part: ContentPart) -> list[Part]:
        """Handle `content_part.done` of a message; parts of other kinds are ignored."""
        if isinstance(part, RefusalContent):
            return self.refusal_done(output_index, content_index, part.refusal)
        if isinstance(part, OutputTextContent):
            parts = self.text_done(output_index, content_index, part.text)
            return parts + self._linked(
                output_index, self._citations.finished(output_index, part.annotations)
            )
        return []

    def item_done(self, output_index: int, item: Message) -> list[Part]:
        """Handle `output_item.done` of a message. The position of a part is its content_index, unless the
        server counts differently: then as many parts as have text were sent already."""
        positions = self._said[output_index]
        if positions and len(positions) >= sum(1 for part in item.content if _words(part)):
            positions.update(range(len(item.content)))
        parts: list[Part] = []
        for position, part in enumerate(item.content):
            parts += self.part_done(output_index, position, part)
        return parts

    def _is_refusing(self, place: tuple[int, int]) -> bool:
        return self._flow.mode is Mode.REFUSAL and self._refusing == place

    def _linked(self, output_index: int, links: list[Part]) -> list[Part]:
        return self._flow.enter(Mode.TEXT, output_index) + links if links else links


def _words(part: ContentPart) -> str:
    if isinstance(part, OutputTextContent):
        return part.text
    return part.refusal if isinstance(part, RefusalContent) else ""
