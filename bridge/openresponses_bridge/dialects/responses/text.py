"""Converts messages and reasoning of the upstream to the machine's one open block (law E5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.responses.tracks import HOLDERS, EndedParts, SentText, Track
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.unknown import UnknownPart

_KINDS = {
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "summary",
}


class TextFeeder:
    """Feeds texts. `open` is the item that the machine has open; `cut` is True if a message or reasoning
    ended as incomplete."""

    def __init__(self, machine: ResponseStream) -> None:
        self._machine = machine
        self._diagnostics = machine.diagnostics
        self.open: Track | None = None
        # the text part that grows: its place as its deltas name it, and the text that was sent
        self.place: tuple[str, int, int] | None = None
        self.sent = SentText()
        self.cut = False
        self._owed: list[it.Message | it.ReasoningItem] = []

    def mark_closed(self) -> None:
        """Record that the machine closes the open item, because something else begins."""
        self.open = self.place = None

    def open_part(
        self, track: Track, kind: str, index: int, out: list[Event], output_index: int | None = None
    ) -> SentText:
        """Make this the machine's open part. `output_index` makes it the `place` of text."""
        self.place = None
        if self.open is not track:
            self._begin(track, out)
        if kind == "summary":
            track.summary = index
        else:
            before = track.content
            if before is not None and before[0] == kind and before[1] != index:
                out += self._machine.part_done()
                track.close_parts()
            track.content = (kind, index)
        sent_text = self.sent = track.part(kind, index)
        if output_index is not None:
            self.place = (track.item_id, output_index, index)
        return sent_text

    def announce(self, track: Track, item: it.ReasoningItem, out: list[Event]) -> None:
        """Open a reasoning item before it has text, since clients show that the model thinks."""
        self.open, self.place, track.opened, track.reported = track, None, True, item.extra
        out += self._machine.item_added(item)

    def _begin(self, track: Track, out: list[Event]) -> None:
        if self.open is not None:
            out += self._machine.block_done()
        if track.sent or track.opened:
            self._diagnostics.repair("output_index", "items interleave, the rest of one became another item")
        self.open = track
        track.close_parts()
        phase = track.item.phase or None if isinstance(track.item, it.Message) else None
        if isinstance(track.item, it.Message | it.ReasoningItem):
            track.reported = track.item.extra
        self._machine.expect_item(track.item_id, phase, extra=track.reported)

    def feed(self, track: Track, kind: str, index: int, delta: str, out: list[Event]) -> None:
        """Feed a delta of one part."""
        if not delta:
            return
        self.open_part(track, kind, index, out).add(delta)
        if kind == "summary":
            out += self._machine.reasoning_summary(delta, index)
        elif kind == "reasoning":
            out += self._machine.reasoning(delta)
        elif kind == "refusal":
            out += self._machine.refusal(delta)
        else:
            out += self._machine.text(delta)

    def whole(
        self,
        track: Track,
        kind: str,
        index: int,
        whole: str,
        out: list[Event],
        logprobs: list[ct.LogProb] | None = None,
    ) -> None:
        """Feed the whole text of a done event: the part that the deltas did not have is sent."""
        if track.repeats(kind, [whole]):
            return  # its end reports it
        sent_text = track.sent.get((kind, index))
        rest = whole if sent_text is None else sent_text.rest(whole)
        if rest:
            self._diagnostics.repair(f"{kind} done", "had more than its deltas, the rest was sent")
            if logprobs and sent_text is None:
                sent_text = self.open_part(track, kind, index, out)
                sent_text.add(rest)
                sent_text.logprobs = True
                out += self._machine.text(rest, logprobs)
            else:
                self.feed(track, kind, index, rest, out)
        elif rest is None and whole:
            self._diagnostics.warning(f"{kind} done", "differs from its deltas, which are kept")
        if logprobs and sent_text is not None and not sent_text.logprobs:
            sent_text.logprobs = True
            self._add_logprobs(track, index, logprobs, out)

    def _add_logprobs(self, track: Track, index: int, logprobs: list[ct.LogProb], out: list[Event]) -> None:
        """Add log probabilities to a text whose deltas had none."""
        if self.open is track and track.content == ("text", index):
            self._diagnostics.repair("logprobs", "came with the finished text only")
            out += self._machine.text("", logprobs)
        else:
            self._diagnostics.loss("logprobs", "came after the end of their text")

    def part(self, track: Track, index: int, part: ct.ContentPart, out: list[Event]) -> None:
        """Feed a finished part: its text, and the citations that had no event."""
        kind = kind_of(part)
        if track.kind and track.kind not in HOLDERS.get(kind, ()):
            self._diagnostics.loss("output_item.content", f"a part of type {part.type}")
            return
        if not isinstance(part, ct.OutputTextContent):
            self.whole(track, kind, index, text_of(part), out)
            self._extend(track, kind, index, part, out)
            return
        self.whole(track, kind, index, part.text, out, part.logprobs or None)
        self._extend(track, kind, index, part, out)
        sent = track.sent[kind, index].citations if (kind, index) in track.sent else 0
        for annotation in part.annotations[sent:]:
            if self.open is track and track.content == (kind, index):
                self._diagnostics.repair("annotation", "came in the finished part only")
                self.annotate(track, index, annotation, out)
            else:
                self._diagnostics.loss("annotation", "came after the end of its part")

    def _extend(self, track: Track, kind: str, index: int, part: ct.ContentPart, out: list[Event]) -> None:
        """Add the unknown fields of a finished part, once."""
        extra = UNSET if isinstance(part, UnknownPart) else part.extra
        if not extra or (kind, index) in track.reported_parts:
            return
        track.reported_parts.add((kind, index))
        place = track.summary == index if kind == "summary" else track.content == (kind, index)
        if self.open is track and place:
            out += self._machine.part_extra(extra, summary=kind == "summary")
        else:
            self._diagnostics.loss("output_item.content", "unknown fields that came after its end")

    def part_done(self, track: Track, kind: str, index: int, out: list[Event]) -> None:
        """End a part in the machine, as the upstream did; raw reasoning ends together with a summary beside
        it."""
        if self.open is not track:
            return
        if kind == "summary":
            over = track.summary == index and (track.content is None or track.sealed)
        else:
            over = track.content == (kind, index) and track.summary is None
            track.sealed = track.content == (kind, index)
        if over:
            self.place = None
            track.close_parts()
            out += self._machine.part_done()

    def annotate(self, track: Track, index: int, annotation: Any, out: list[Event]) -> None:
        """Add a citation to a text part."""
        self.open_part(track, "text", index, out).citations += 1
        out += self._machine.annotation(annotation)

    def item(self, track: Track, item: it.Message | it.ReasoningItem, out: list[Event]) -> None:
        """Feed a finished item: what was not sent yet, then its end."""
        texts = _texts(item)
        if len(texts) == 1 and all(track.repeats(kind, part_texts) for kind, part_texts in texts.items()):
            self._diagnostics.repair("output_item", "a message sent again, left out")
            return
        if track.is_unsent:
            self.mark_closed()
            whole = expressible(item, self._diagnostics) if isinstance(item, it.Message) else item
            self.cut = self.cut or item.status == "incomplete"
            out += self._machine.item(whole)
            for kind, part_texts in texts.items():
                for index, text in enumerate(part_texts):
                    track.part(kind, index).add(text)
            return
        ended = EndedParts()  # done events may number parts differently from the item
        self._parts(track, item.content or (), ended, out)
        if isinstance(item, it.ReasoningItem):
            self._parts(track, item.summary, ended, out)
            if item.encrypted_content:
                self._encrypted(track, item.encrypted_content, out)
        cut = item.status == "incomplete"
        self.cut = self.cut or cut
        if item.extra and item.extra != track.reported:
            track.reported = item.extra
            if self.open is track:
                out += self._machine.item_extra(item.extra)
            else:
                self._diagnostics.loss("output_item", "unknown fields that came after its end")
        if self.open is track:
            self.mark_closed()
            out += self._machine.block_done(cut=cut)
        elif cut:
            # what was sent of it ended when another item began
            empty: dict[str, Any] = (
                {"content": []} if isinstance(item, it.Message) else {"content": UNSET, "summary": []}
            )
            self._owed.append(msgspec.structs.replace(item, **empty))

    def _parts(
        self, track: Track, parts: Iterable[ct.ContentPart], ended: EndedParts, out: list[Event]
    ) -> None:
        for index, part in enumerate(parts):
            place = track.place(kind_of(part), index, text_of(part), ended, once=True)
            self.part(track, place, part, out)

    def finish(self, out: list[Event]) -> None:
        """Handle the end of the response: send what was cut off while another item was open, as an item
        without content."""
        owed, self._owed = self._owed, []
        for item in owed:
            self._diagnostics.repair(
                "output_item.done", "incomplete after its text had ended, sent as another"
            )
            self.mark_closed()
            out += self._machine.item(item)

    def differs(self, track: Track, item: it.Message | it.ReasoningItem) -> bool:
        """Return True if the item contradicts what was sent. Missing raw reasoning and summaries do not
        count: some servers send them only in deltas."""
        texts = _texts(item)
        if isinstance(item, it.ReasoningItem):
            return any(track.differs(kind, part_texts) for kind, part_texts in texts.items())
        return any(track.differs(kind, texts.get(kind, [])) for kind in ("text", "refusal"))

    def _encrypted(self, track: Track, content: str, out: list[Event]) -> None:
        if self.open is not track:
            self._diagnostics.repair("encrypted_content", "came late, sent in an item of its own")
            self._begin(track, out)
        out += self._machine.reasoning_encrypted(content)


def kind_of(part: ct.ContentPart) -> str:
    """Return the kind of text in a part; empty for a part without text."""
    return _KINDS.get(part.type, "")


def text_of(part: ct.ContentPart) -> str:
    """Return the text of a part that has one."""
    text = part.refusal if isinstance(part, ct.RefusalContent) else getattr(part, "text", "")
    return text if isinstance(text, str) else ""


def expressible(message: it.Message, diagnostics: Diagnostics) -> it.Message:
    """Return the message with parts that an answer can have; any other part is a loss."""
    content: list[ct.ContentPart] = []
    for part in message.content:
        if isinstance(part, ct.OutputTextContent | ct.RefusalContent):
            content.append(part)
        elif isinstance(part, ct.TextContent):
            diagnostics.repair("output_item.content", "a part of type text, read as output_text")
            content.append(ct.OutputTextContent(part.text, []))
        else:
            diagnostics.loss("output_item.content", f"a part of type {part.type}")
    return msgspec.structs.replace(message, content=content)


def _texts(item: it.Message | it.ReasoningItem) -> dict[str, list[str]]:
    """Return the texts of an item's parts, by their kind."""
    texts: dict[str, list[str]] = {}
    summary = item.summary if isinstance(item, it.ReasoningItem) else ()
    for part in (*(item.content or ()), *summary):
        if kind := kind_of(part):
            texts.setdefault(kind, []).append(text_of(part))
    return texts
