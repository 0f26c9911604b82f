"""Messages: text as it comes, refusals in italics, and both from the done events where a server sends
no deltas."""

from __future__ import annotations

from bridge.decoder.citations import Citations
from bridge.decoder.flow import ITALIC, Flow, Mode
from bridge.decoder.parts import LanguageModelTextPart, Part
from bridge.diagnostics import Diagnostics
from bridge.protocol.content import Annotation, ContentPart, OutputTextContent, RefusalContent
from bridge.protocol.items import Message


class Prose:
    """What the messages of one response say. What was said is known by (output_index, content_index),
    because ids may change from event to event."""

    __slots__ = ("_citations", "_flow", "_said", "content_index", "output_index")

    def __init__(self, flow: Flow, diagnostics: Diagnostics, links: bool = True) -> None:
        self._flow = flow
        self._citations = Citations(diagnostics, links)
        self._said: set[tuple[int, int]] = set()
        self.output_index = -1
        self.content_index = -1

    @property
    def silent(self) -> bool:
        """Whether nothing was said yet."""
        return not self._said

    def follows(self, output_index: int, content_index: int) -> bool:
        """Whether text of this part may go out as it is, since it is what went out last."""
        return (
            self._flow.mode is Mode.TEXT
            and output_index == self.output_index
            and content_index == self.content_index
        )

    def text(self, output_index: int, content_index: int, delta: str) -> list[Part]:
        """The next piece of text; an empty one says nothing."""
        if not delta:
            return []
        parts = self._flow.enter(Mode.TEXT, output_index)
        self._said.add((output_index, content_index))
        delta = self._flow.admit(delta)
        if delta:
            parts.append(LanguageModelTextPart(delta))
        self.output_index = -1 if self._flow.holds_back else output_index
        self.content_index = content_index
        return parts

    def refusal(self, output_index: int, content_index: int, delta: str) -> list[Part]:
        """The next piece of a refusal."""
        if not delta:
            return []
        parts: list[Part] = []
        is_open = self._is_refusing(output_index, content_index)
        if not is_open:
            parts = self._flow.leave()
        parts += self._flow.enter(Mode.REFUSAL, output_index)
        self._said.add((output_index, content_index))
        self.output_index = output_index
        self.content_index = content_index
        delta = self._flow.admit(delta) if is_open else ITALIC + self._flow.admit(delta)
        if delta:
            parts.append(LanguageModelTextPart(delta))
        return parts

    def text_done(self, output_index: int, content_index: int, text: str) -> list[Part]:
        """A whole text, for a part that sent no deltas."""
        return (
            []
            if (output_index, content_index) in self._said
            else self.text(output_index, content_index, text)
        )

    def refusal_done(self, output_index: int, content_index: int, refusal: str) -> list[Part]:
        """A refusal's end, and its whole text where it sent no deltas."""
        parts: list[Part] = []
        if (output_index, content_index) not in self._said:
            parts = self.refusal(output_index, content_index, refusal)
        return parts + self._flow.leave() if self._is_refusing(output_index, content_index) else parts

    def annotation(self, output_index: int, annotation: Annotation | None) -> list[Part]:
        """A citation, right where it comes."""
        return self._links(output_index, [] if annotation is None else [annotation])

    def part_done(self, output_index: int, content_index: int, part: ContentPart) -> list[Part]:
        """`content_part.done` of a message; parts of other kinds say nothing."""
        if isinstance(part, RefusalContent):
            return self.refusal_done(output_index, content_index, part.refusal)
        if isinstance(part, OutputTextContent):
            said = self.text_done(output_index, content_index, part.text)
            return said + self._links(output_index, part.annotations)
        return []

    def item_done(self, output_index: int, item: Message) -> list[Part]:
        """`output_item.done` of a message. A part's position stands for its content_index, unless the
        server counts otherwise: then as many parts as have words were said already."""
        said = sum(1 for key in self._said if key[0] == output_index)
        if said and said >= sum(1 for part in item.content if _words(part)):
            self._said.update((output_index, position) for position in range(len(item.content)))
        parts: list[Part] = []
        for position, part in enumerate(item.content):
            parts += self.part_done(output_index, position, part)
        return parts

    def _is_refusing(self, output_index: int, content_index: int) -> bool:
        here = (self.output_index, self.content_index) == (output_index, content_index)
        return here and self._flow.mode is Mode.REFUSAL

    def _links(self, output_index: int, annotations: list[Annotation]) -> list[Part]:
        links = self._citations.links(output_index, annotations)
        return self._flow.enter(Mode.TEXT, output_index) + links if links else []


def _words(part: ContentPart) -> str:
    if isinstance(part, OutputTextContent):
        return part.text
    return part.refusal if isinstance(part, RefusalContent) else ""
