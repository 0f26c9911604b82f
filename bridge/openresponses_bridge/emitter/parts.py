"""One open part of an item: text, refusal, raw reasoning or a summary, from added to done.

A table says what each kind is made of on each wire, so that there is one part and four rows.
"""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any, NamedTuple

from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.content import Annotation, ContentPart, LogProb
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.state import PART, WIRES, BlockState
from openresponses_bridge.text import SurrogateJoiner

# Text that grows by deltas: kept once, appended in constant time, whole code points only.


class TextBuffer(SurrogateJoiner):
    """The text of one open part or call: `feed` a delta, then `write` what it gave.

    A string with a reference elsewhere is copied whole at each `+=`, so the text sits in a StringIO
    (law E12).
    """

    __slots__ = ("_io", "write")

    def __init__(self) -> None:
        super().__init__()
        self._io = StringIO()
        self.write = self._io.write

    @property
    def text(self) -> str:
        return self._io.getvalue()

    def __len__(self) -> int:
        return self._io.tell()


class PartKind(NamedTuple):
    """How a kind of part is spelled: its content struct and the four events of its life."""

    name: str
    content: type[Any]
    added: type[Any]
    delta: type[Any]
    done: type[Any]
    closed: type[Any]


TEXT = PartKind(
    "text",
    ct.OutputTextContent,
    ev.ContentPartAdded,
    ev.OutputTextDelta,
    ev.OutputTextDone,
    ev.ContentPartDone,
)
REFUSAL = PartKind(
    "refusal", ct.RefusalContent, ev.ContentPartAdded, ev.RefusalDelta, ev.RefusalDone, ev.ContentPartDone
)
SUMMARY = PartKind(
    "reasoning_summary",
    ct.SummaryTextContent,
    ev.ReasoningSummaryPartAdded,
    ev.ReasoningSummaryTextDelta,
    ev.ReasoningSummaryTextDone,
    ev.ReasoningSummaryPartDone,
)
REASONING = {
    name: PartKind(
        "reasoning",
        ct.ReasoningTextContent,
        ev.ContentPartAdded,
        wire.reasoning_delta,
        wire.reasoning_done,
        ev.ContentPartDone,
    )
    for name, wire in WIRES.items()
}

Number = Callable[[], int]


class OpenPart:
    """A part that still receives deltas. `index` counts within the item's content, or within its summary. Its
    state follows `state.PART`; only the machine writes plain deltas without consulting the table."""

    __slots__ = (
        "_number",
        "annotations",
        "buffer",
        "index",
        "item_id",
        "kind",
        "logprobs",
        "output_index",
        "state",
        "write",
    )

    def __init__(self, kind: PartKind, number: Number, item_id: str, output_index: int, index: int) -> None:
        self.kind = kind
        self.item_id = item_id
        self.output_index = output_index
        self.index = index
        self.buffer = TextBuffer()
        self.write = self.buffer.write
        self.annotations: list[Annotation] = []
        self.logprobs: list[LogProb] = []
        self.state = BlockState.ABSENT
        self._number = number

    def added(self) -> Event:
        self.state = PART[self.state]["added"]
        return self._event(self.kind.added, self.content(""))

    def delta(self, delta: str, logprobs: list[LogProb] | None = None) -> list[Event]:
        """The next piece; nothing while all of it is held back. Probabilities go with any text."""
        delta = self.buffer.feed(delta)
        if not delta and not logprobs:
            return []
        self.state = PART[self.state]["delta"]
        self.write(delta)
        if self.kind is not TEXT:
            return [self._event(self.kind.delta, delta)]
        if logprobs:
            self.logprobs.extend(logprobs)
        return [self._event(ev.OutputTextDelta, delta, list(logprobs or ()))]

    def whole(self, text: str, logprobs: list[LogProb] | None = None) -> list[Event]:
        """All of the part's text at once."""
        return self.delta(text, logprobs) if text else []

    def annotate(self, annotation: Annotation) -> Event:
        self.state = PART[self.state]["annotation"]
        self.annotations.append(annotation)
        index = len(self.annotations) - 1
        return self._event(ev.OutputTextAnnotationAdded, index, annotation)

    def close(self) -> tuple[list[Event], ContentPart]:
        """The done events and the finished part."""
        rest = self.buffer.flush()
        events = self.delta(rest) if rest else []
        text = self.buffer.text
        part = self.content(text)
        extra = (list(self.logprobs),) if self.kind is TEXT else ()
        self.state = PART[self.state]["done"]
        events.append(self._event(self.kind.done, text, *extra))
        self.state = PART[self.state]["closed"]
        events.append(self._event(self.kind.closed, part))
        return events, part

    def content(self, text: str | None = None) -> ContentPart:
        """The part as it stands, or with this text instead."""
        text = self.buffer.text if text is None else text
        if self.kind is TEXT:
            return ct.OutputTextContent(text, list(self.annotations), list(self.logprobs))
        part: ContentPart = self.kind.content(text)
        return part

    def _event(self, struct: type[Any], *what: Any) -> Event:
        event: Event = struct(self._number(), self.item_id, self.output_index, self.index, *what)
        return event
