"""Messages: text as it comes, refusals in italics, and both from the done events where a server sends
no deltas."""

from __future__ import annotations

from collections import defaultdict

from openresponses_bridge.decoder.citations import Citations
from openresponses_bridge.decoder.flow import ITALIC, Flow, Mode
from openresponses_bridge.decoder.parts import LanguageModelTextPart, Part
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.content import Annotation, ContentPart, OutputTextContent, RefusalContent
from openresponses_bridge.protocol.items import Message


class Prose:
    """What the messages of one response say. What was said is known by (output_index, content_index),
    because ids may change from event to event."""

    __slots__ = ("_citations", "_flow", "_refusing", "_said")

    def __init__(self, flow: Flow, diagnostics: Diagnostics, links: bool = True) -> None:
        self._flow = flow
        self._citations = Citations(diagnostics, links)
        self._said: defaultdict[int, set[int]] = defaultdict(set)
        self._refusing = (-1, -1)

    @property
    def silent(self) -> bool:
        """Whether nothing was said yet."""
        return not any(self._said.values())

    def text(self, output_index: int, content_index: int, delta: str) -> list[Part]:
        """The next piece of text; an empty one says nothing."""
        if not delta:
            return []
        parts = self._flow.enter(Mode.TEXT, output_index)
        self._said[output_index].add(content_index)
        delta = self._flow.admit(delta)
        if delta:
            parts.append(LanguageModelTextPart(delta))
        self._flow.settle_at(output_index, content_index)
        return parts

    def refusal(self, output_index: int, content_index: int, delta: str) -> list[Part]:
        """The next piece of a refusal."""
        if not delta:
            return []
        place = (output_index, content_index)
        if self._is_refusing(place):
            delta = self._flow.admit(delta)
            return [LanguageModelTextPart(delta)] if delta else []
        parts = self._flow.leave() + self._flow.enter(Mode.REFUSAL, output_index)
        self._said[output_index].add(content_index)
        self._refusing = place
        parts.append(LanguageModelTextPart(ITALIC + self._flow.admit(delta)))
        return parts

    def text_done(self, output_index: int, content_index: int, text: str) -> list[Part]:
        """A whole text, for a part that sent no deltas."""
        if content_index in self._said[output_index]:
            return []
        return self.text(output_index, content_index, text)

    def refusal_done(self, output_index: int, content_index: int, refusal: str) -> list[Part]:
        """A refusal's end, and its whole text where it sent no deltas."""
        parts: list[Part] = []
        if content_index not in self._said[output_index]:
            parts = self.refusal(output_index, content_index, refusal)
        return parts + self._flow.leave() if self._is_refusing((output_index, content_index)) else parts

    def annotation(self, output_index: int, annotation: Annotation | None) -> list[Part]:
        """A citation, right where it comes."""
        links = [] if annotation is None else self._citations.streamed(output_index, annotation)
        return self._linked(output_index, links)

    def part_done(self, output_index: int, content_index: int, part: ContentPart) -> list[Part]:
        """`content_part.done` of a message; parts of other kinds say nothing."""
        if isinstance(part, RefusalContent):
            return self.refusal_done(output_index, content_index, part.refusal)
        if isinstance(part, OutputTextContent):
            said = self.text_done(output_index, content_index, part.text)
            return said + self._linked(output_index, self._citations.finished(output_index, part.annotations))
        return []

    def item_done(self, output_index: int, item: Message) -> list[Part]:
        """`output_item.done` of a message. A part's position stands for its content_index, unless the
        server counts otherwise: then as many parts as have words were said already."""
        said = self._said[output_index]
        if said and len(said) >= sum(1 for part in item.content if _words(part)):
            said.update(range(len(item.content)))
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
