"""Stop sequences found in a text that comes in pieces, each character looked at once (Aho and Corasick's
automaton): the cost is the text's and the sequences' own size, whatever they look like."""

from __future__ import annotations

from openresponses_bridge.surrogates import mended


def sequences_of(stop: str | list[str] | None) -> tuple[str, ...]:
    """The stop sequences of a request, in its order, without empty ones and repetitions."""
    if not stop:
        return ()
    given = [stop] if isinstance(stop, str) else stop
    return tuple(dict.fromkeys(filter(None, map(mended, given))))


class StopMatcher:
    """Finds the sequence that a text completes first; of several that end there, the longest."""

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
    def held(self) -> int:
        """How many characters at the end of the text may be the beginning of a sequence."""
        return self._depth[self._at]

    def passes(self, text: str) -> bool:
        """Whether no sequence can begin in the text, and none has begun before it."""
        return not self._at and self._starts.isdisjoint(text)

    def reset(self) -> None:
        """Another text begins."""
        self._at = 0

    def feed(self, text: str) -> int | None:
        """The next piece: how many of its characters the text has at the end of the sequence that it now
        holds, None when it holds none."""
        at, follow, fallback, found = self._at, self._next, self._fallback, self._found
        for count, character in enumerate(text, 1):
            while (after := follow[at].get(character)) is None and at:
                at = fallback[at]
            at = after or 0
            if found[at]:
                self._at, self.found = 0, found[at]
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
        """Node → the longest beginning of a sequence that it ends with, itself aside. What ends there, ends
        here too."""
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
