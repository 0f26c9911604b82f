"""Calls that carry words: text, refusal, reasoning. One of them is open at a time (law E5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridge.emitter.arguments import admitted, annotation_of, logprobs_of, text_of
from bridge.emitter.guarded import GuardedStream
from bridge.emitter.parts import REFUSAL, TEXT, PartKind
from bridge.emitter.text_buffer import is_whole
from bridge.protocol.content import Annotation, LogProb
from bridge.protocol.events import Event, OutputTextDelta
from bridge.state import ResponseStreamPhase

_IN_PROGRESS = ResponseStreamPhase.IN_PROGRESS
_NO_LOGPROBS: list[LogProb] = []


def _is_plain(delta: object) -> bool:
    """Whether a delta may go out as it is: some text, with no half of a surrogate pair in it."""
    return type(delta) is str and delta != "" and (delta.isascii() or is_whole(delta))


class ContentCalls(GuardedStream):
    """The words of a response."""

    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        """The next piece of visible text, with the log probabilities of its tokens if known."""
        if self._live.phase is not _IN_PROGRESS:
            raise self._refusal("text")
        part = self._blocks.text_part
        if part is None or logprobs or not _is_plain(delta):
            return self._say("text", TEXT, delta, logprobs)
        # the common delta: a text part is open and nothing is held back, so it goes out as it is
        part.write(delta)
        return [
            OutputTextDelta(self._number(), part.item_id, part.output_index, part.index, delta, _NO_LOGPROBS)
        ]

    def refusal(self, delta: str) -> list[Event]:
        """The next piece of a refusal: a part of the same message as the text around it."""
        self._require("refusal")
        return self._say("refusal", REFUSAL, delta, None)

    def annotation(self, annotation: Annotation | Mapping[str, Any]) -> list[Event]:
        """A citation on the open text; a text part is opened when there is none.

        Citations other than `url_citation` are unknown to the `openresponses` wire: there they are
        left out, with a diagnostic.
        """
        self._require("annotation")
        cited = admitted(self._wire, [annotation_of(annotation)], self.diagnostics)
        if not cited:
            return []
        events, part = self._blocks.message_part(TEXT)
        return events + [part.annotate(each) for each in cited]

    def reasoning(self, delta: str) -> list[Event]:
        """The next piece of raw reasoning."""
        if self._live.phase is not _IN_PROGRESS:
            raise self._refusal("reasoning")
        part = self._blocks.raw_part
        if part is None or not _is_plain(delta):
            delta = text_of("reasoning", delta)
            return self._blocks.think(delta) if delta else []
        part.write(delta)
        return [part.kind.delta(self._number(), part.item_id, part.output_index, part.index, delta)]

    def reasoning_summary(self, delta: str, part: int = 0) -> list[Event]:
        """The next piece of a summary; `part` is the upstream's number of the summary part."""
        self._require("reasoning_summary")
        delta = text_of("reasoning_summary", delta)
        if not delta:
            return []
        events, block = self._blocks.reasoning()
        opened, summary = block.open_summary(part)
        return events + opened + summary.delta(delta)

    def reasoning_encrypted(self, content: str) -> list[Event]:
        """The opaque form of the open reasoning item (one is begun when none is open). It shows when
        the item is done. A second one belongs to another item."""
        self._require("reasoning_encrypted")
        content = text_of("reasoning_encrypted", content)
        if not content:
            return []
        return self._blocks.encrypt(content)

    def part_done(self) -> list[Event]:
        """Close the open part: the next delta begins another in the same item."""
        self._require("part_done")
        return self._blocks.close_part()

    def block_done(self) -> list[Event]:
        """Close the open message or reasoning item: the next delta begins another."""
        self._require("block_done")
        return self._blocks.close_open()

    def _say(
        self,
        call: str,
        kind: PartKind,
        delta: str,
        logprobs: Sequence[LogProb | Mapping[str, Any]] | None,
    ) -> list[Event]:
        delta = text_of(call, delta)
        probabilities = logprobs_of(logprobs)
        if not delta and not probabilities:
            return []
        return self._blocks.say(kind, delta, probabilities)
