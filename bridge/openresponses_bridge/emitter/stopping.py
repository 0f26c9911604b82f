"""A filter that ends a response at a stop sequence, for upstreams that do not support stop sequences.

The sequence is not part of the text. The end of a text that may be the beginning of a sequence, at most the
longest sequence less one character, is buffered until the next text decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.emitter.arguments import logprobs_of, text_of
from openresponses_bridge.emitter.failures import Failure
from openresponses_bridge.emitter.stream import ResponseStream, StreamFilter
from openresponses_bridge.protocol.codec import item_from
from openresponses_bridge.protocol.content import LogProb, OutputTextContent, UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item, Message, MessagePhase
from openresponses_bridge.protocol.unknown import Extra
from openresponses_bridge.text import SurrogateJoiner, repair_surrogates

# The automaton of Aho and Corasick finds stop sequences in a text that comes in pieces, in time linear in the
# text and the sequences, whatever they contain.


def sequences_of(stop: str | list[str] | None) -> tuple[str, ...]:
    """The stop sequences of a request, in its order, without empty ones and repetitions."""
    if not stop:
        return ()
    sequences = [stop] if isinstance(stop, str) else stop
    return tuple(dict.fromkeys(filter(None, map(repair_surrogates, sequences))))


class StopMatcher:
    """Finds the sequence that the text completes first; of several that end at the same place, the longest
    (Aho and Corasick)."""

    __slots__ = ("_at", "_depth", "_fallback", "_found", "_next", "_starts", "found")

    def __init__(self, sequences: tuple[str, ...]) -> None:
        # node 0 is the start; a node stands for the beginning of a sequence, `_depth` is its length
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._found = [""]
        for sequence in sequences:
            self._add(sequence)
        self._fallback = self._linked()
        self._starts = frozenset(self._next[0])
        self._at = 0
        self.found = ""
        """The sequence that was found."""

    @property
    def partial_length(self) -> int:
        """The number of characters at the end of the text that may be the beginning of a sequence."""
        return self._depth[self._at]

    def cannot_match(self, text: str) -> bool:
        """Return True if no sequence can begin in the text, and none has begun before it."""
        return not self._at and self._starts.isdisjoint(text)

    def reset(self) -> None:
        """Begin another text."""
        self._at = 0

    def feed(self, text: str) -> int | None:
        """Accept the next text. Returns the number of its characters up to the end of the first match, None
        without a match."""
        at, follow, fallback, sequences = self._at, self._next, self._fallback, self._found
        for count, character in enumerate(text, 1):
            while (after := follow[at].get(character)) is None and at:
                at = fallback[at]
            at = after or 0
            if sequences[at]:
                self._at, self.found = 0, sequences[at]
                return count
        self._at = at
        return None

    def _add(self, sequence: str) -> None:
        node = 0
        for character in sequence:
            known = self._next[node].get(character)
            if known is None:
                known = self._next[node][character] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[node] + 1)
                self._found.append("")
            node = known
        self._found[node] = sequence

    def _linked(self) -> list[int]:
        """Return, for each node, the node of its longest proper suffix that begins a sequence. A sequence
        that ends at that suffix ends at the node too."""
        fallback = [0] * len(self._next)
        level = [0]
        for node in level:  # by depth: the list grows as it is read
            for character, child in self._next[node].items():
                level.append(child)
                other = fallback[node]
                while other and character not in self._next[other]:
                    other = fallback[other]
                if node:
                    fallback[child] = self._next[other].get(character, 0)
                self._found[child] = self._found[child] or self._found[fallback[child]]
        return fallback


STOP_SEQUENCE: Final = "stop_sequence"
"""The finish reason of a response that ended at a stop sequence."""


class StopFilter(StreamFilter):
    """Ends the text of `stream` before the first of these sequences and drops what the model says after it.

    Once a sequence is found, the response is `stopped`: further output is dropped, token counts are still
    accepted, and `finish` (or `end`, or a failure of the upstream) completes the response, which names the
    sequence. After another block, a text is a new one: no sequence spans both.
    """

    def __init__(self, stream: ResponseStream, sequences: tuple[str, ...]) -> None:
        super().__init__(stream)
        self._matcher = StopMatcher(sequences)
        self._joiner = SurrogateJoiner()
        self._held = ""
        self._matched = False
        self._ending = False
        # characters of the open text that were received, and that were passed on; held log probabilities,
        # each with the number of received characters at which its token ends
        self._given = 0
        self._shown = 0
        self._waiting: deque[tuple[int, LogProb]] = deque()

    @property
    def stopped(self) -> bool:
        """True if a sequence was found and `end` has not been called for it."""
        return self._matched and not self._ending

    def end(self) -> list[Event]:
        """End a response that is `stopped`: it is completed."""
        self._ending = True
        # a missing name would have come after the sequence
        return super().end_nameless() + super().finish(STOP_SEQUENCE)

    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        if self._matched:
            return []
        self.require("text")
        delta = text_of("text", delta)
        if not self._waiting and not self._joiner.pending and self._matcher.cannot_match(delta):
            return super().text(delta, logprobs)
        tokens = logprobs_of(logprobs)
        whole = self._joiner.feed(delta)
        self._await(tokens, len(whole))
        count = self._matcher.feed(whole)
        text = self._held + whole
        if count is None:
            shown = len(text) - self._matcher.partial_length
            self._held = text[shown:]
            return self._forward(text[:shown])
        shown = len(self._held) + count - len(self._matcher.found)
        self._held = ""
        return self._forward(text[:shown]) + self._stop()

    def _await(self, tokens: list[LogProb], length: int) -> None:
        """Hold the tokens of the next `length` characters, each with the place at which it ends."""
        at, end = self._given, self._given + length
        for token in tokens:
            at = min(at + len(token.token), end)
            self._waiting.append((at, token))
        if tokens and at < end:  # tokens that are bytes of one character may be shorter
            self._waiting[-1] = (end, tokens[-1])
        self._given = end

    def _forward(self, text: str) -> list[Event]:
        self._shown += len(text)
        tokens: list[LogProb] = []
        while self._waiting and self._waiting[0][0] <= self._shown:
            tokens.append(self._waiting.popleft()[1])
        return super().text(text, tokens or None) if text or tokens else []

    def _stop(self) -> list[Event]:
        self._matched = True
        self._waiting.clear()
        return super().stop_sequence(self._matcher.found)

    def _flush(self) -> list[Event]:
        """End the open text, which has no sequence in it: pass on what was held back."""
        if self._matched or not (self._held or self._waiting or self._joiner.pending):
            return []
        events = self._forward(self._held + self._joiner.flush())
        if self._waiting:
            events += super().text("", [token for _, token in self._waiting])
        self._held = ""
        self._waiting.clear()
        self._matcher.reset()
        self._given = self._shown = 0
        return events

    # All other output ends the text; after a stop sequence it is dropped.
    def refusal(self, delta: str) -> list[Event]:
        return [] if self._matched else self._flush() + super().refusal(delta)

    def reasoning(self, delta: str) -> list[Event]:
        return [] if self._matched else self._flush() + super().reasoning(delta)

    def reasoning_summary(self, delta: str, part: int = 0) -> list[Event]:
        return [] if self._matched else self._flush() + super().reasoning_summary(delta, part)

    def reasoning_encrypted(self, content: str) -> list[Event]:
        return [] if self._matched else self._flush() + super().reasoning_encrypted(content)

    def part_done(self) -> list[Event]:
        return [] if self._matched else self._flush() + super().part_done()

    def block_done(self, *, cut: bool = False) -> list[Event]:
        return [] if self._matched else self._flush() + super().block_done(cut=cut)

    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
        namespace: str | None = None,
    ) -> list[Event]:
        if self._matched:
            return []
        return self._flush() + super().tool_call(index, id, name, arguments, type, namespace)

    def tool_call_done(self, index: int, *, cut: bool = False) -> list[Event]:
        return [] if self._matched else super().tool_call_done(index, cut=cut)

    def end_nameless(self) -> list[Event]:
        return [] if self._matched else super().end_nameless()

    def expect_item(
        self,
        item_id: str,
        phase: MessagePhase | None = None,
        *,
        explicit_end: bool = False,
        extra: Extra = UNSET,
    ) -> list[Event]:
        return (
            []
            if self._matched
            else self._flush() + super().expect_item(item_id, phase, explicit_end=explicit_end, extra=extra)
        )

    def item_extra(self, extra: Extra, index: int | None = None) -> list[Event]:
        return [] if self._matched else super().item_extra(extra, index)

    def part_extra(self, extra: Extra, *, summary: bool = False) -> list[Event]:
        return [] if self._matched else super().part_extra(extra, summary=summary)

    def item_added(self, item: Item | Mapping[str, Any]) -> list[Event]:
        return [] if self._matched else self._flush() + super().item_added(item)

    def item_event(self, item_id: str, type: str, fields: Mapping[str, Any]) -> list[Event]:
        return [] if self._matched else super().item_event(item_id, type, fields)

    def annotation(self, annotation: Any) -> list[Event]:
        return [] if self._matched else super().annotation(annotation)

    def stop_sequence(self, sequence: str) -> list[Event]:
        return [] if self._matched else super().stop_sequence(sequence)

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        """Pass on a whole item. A message ends at its first sequence, and is left out if nothing remains
        before that."""
        if self._matched:
            return []
        self.require("item")
        events = self._flush()
        left, has_sequence = self._cut(item)
        events += super().item(left) if left is not None else []
        return events + self._stop() if has_sequence else events

    def _cut(self, item: Item | Mapping[str, Any]) -> tuple[Item | Mapping[str, Any] | None, bool]:
        """Return (what is left of the item, whether a sequence was found in it)."""
        message = item
        if isinstance(item, Mapping) and item.get("type") == "message":
            message = item_from(dict(item), [])
        for index, part in enumerate(message.content if isinstance(message, Message) else ()):
            if not isinstance(part, OutputTextContent):
                continue
            self._matcher.reset()
            count = self._matcher.feed(part.text)
            if count is not None:
                whole = cast(Message, message)
                shown = _shortened(part, count - len(self._matcher.found))
                content = [*whole.content[:index], *([shown] if shown.text else ())]
                left = replace(whole, content=content, status="completed") if content else None
                return left, True
        self._matcher.reset()
        return item, False

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        if self.stopped:
            return self.end()
        return self._flush() + super().finish(reason, incomplete=incomplete)

    def fail(self, error: Failure) -> list[Event]:
        """Fail the response, or complete it if it is `stopped`: the output that failed was not needed any
        more."""
        if self.stopped:
            return self.end()
        return self._flush() + super().fail(error)

    def cancel(self) -> list[Event]:
        return self._flush() + super().cancel()


def _shortened(part: OutputTextContent, length: int) -> OutputTextContent:
    """Return the part with the first `length` characters of its text and the citations of these alone."""
    cited = [each for each in part.annotations if isinstance(each, UrlCitation) and each.end_index <= length]
    return replace(part, text=part.text[:length], annotations=cited, logprobs=UNSET)
