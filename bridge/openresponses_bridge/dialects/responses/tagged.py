"""Reasoning that a model has written into its text, and that no parser of its server has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.dialects.base import Piece, ThinkTags
from openresponses_bridge.emitter.failures import Failure
from openresponses_bridge.emitter.stream import ItemHoldingFilter, ResponseStream, TextHoldingFilter
from openresponses_bridge.protocol.content import LogProb, OutputTextContent
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item, Message


class TaggedReasoning(ItemHoldingFilter, TextHoldingFilter):
    """Converts the text between think tags at the beginning of the first text to a reasoning item. The text
    after them gets the id of the upstream's message."""

    def __init__(self, stream: ResponseStream, tags: ThinkTags) -> None:
        super().__init__(stream)
        self._tags = tags
        self._probabilities: list[LogProb | Mapping[str, Any]] = []

    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        if self._tags.decided or not isinstance(delta, str):
            begun = [] if self._expected is None else self._begin_expected()
            return begun + super().text(delta, logprobs)
        self.require("text")
        self._probabilities += logprobs or ()
        return self._split(self._tags.feed(delta))

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        self.require("item")
        events = self._flush()
        part = item.content[0] if isinstance(item, Message) and item.content else None
        if self._tags.decided or not isinstance(item, Message) or not isinstance(part, OutputTextContent):
            return events + super().item(item)
        pieces = [*self._tags.feed(part.text), *self._tags.close()]
        thoughts, answer = ("".join(text for kind, text in pieces if kind is each) for each in (True, False))
        if answer == part.text:
            return events + super().item(item)
        if thoughts:
            events += self._stream.reasoning(thoughts) + self._stream.block_done()
        left = [replace(part, text=answer, logprobs=UNSET)] if answer else []
        content = [*left, *item.content[1:]]
        return events + (super().item(replace(item, content=content)) if content else [])

    def _split(self, pieces: Sequence[Piece]) -> list[Event]:
        events: list[Event] = []
        for thinking, text in pieces:
            if thinking:
                self._probabilities.clear()
                events += self._stream.reasoning(text)
            else:
                probabilities, self._probabilities = self._probabilities, []
                events += [*self._begin_expected(), *super().text(text, probabilities or None)]
        return events

    def _flush(self) -> list[Event]:
        """End the text, since something else follows."""
        events = [] if self._tags.is_flushed else self._split(self._tags.close())
        return events + super()._flush()

    def annotation(self, annotation: Any) -> list[Event]:
        return self._flush() + super().annotation(annotation)

    def fail(self, error: Failure) -> list[Event]:
        return self._flush() + super().fail(error)

    def cancel(self) -> list[Event]:
        return self._flush() + super().cancel()
