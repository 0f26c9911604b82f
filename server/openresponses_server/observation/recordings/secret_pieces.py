"""Finds large pieces of many strings in a text, in time that is linear in the text whatever the strings are.

An Aho-Corasick automaton in C looks for six characters of the middle of each string, which almost no text
has. Where it finds them, a suffix automaton of all strings (Blumer et al., 1985) gives for each character the
longest piece of any of them that ends there; it reads a character once, however many places are near.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

_ANCHOR: Final = 6  # characters: the middle third of the shortest string that is looked for in pieces
_BLOCK: Final = 64 * 1024  # characters between which other threads have their turn
Span = tuple[int, int]


class Pieces:
    """Of `strings` every piece of two thirds or more is found; they have 16 characters at least."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = strings
        self._anchors = automaton({each[len(each) // 3 :][:_ANCHOR] for each in strings})
        self._reach = max(len(each) // 3 for each in strings)
        """How far before its middle third a piece may begin."""
        self._suffixes: _Suffixes | None = None
        self.read = 0
        """How many characters the slower automaton has read."""

    def make_ready(self) -> None:
        """Make the slower automaton now, and not when something is found: that takes microseconds for each
        character."""
        self._suffixes = self._suffixes or _Suffixes(self._strings)

    def spans(self, text: str) -> list[Span]:
        """Where they are in the text, in order: those that overlap are one."""
        found: list[Span] = []
        at = 0
        for end, _ in hits(self._anchors, text):
            if end <= at:
                continue  # nothing that holds it goes on beyond
            self.make_ready()
            assert self._suffixes is not None
            if (begin := end - _ANCHOR - self._reach) > at:
                self._suffixes.forget()
                at = begin
            began, at = at, self._suffixes.read(text, at, end, found)
            self.read += at - began
        return found


def automaton(strings: Iterable[str]) -> Any:
    """What `hits` looks for."""
    import ahocorasick  # a server that never looks does not load it

    made = ahocorasick.Automaton()
    for each in strings:
        made.add_word(each, len(each))
    made.make_automaton()
    return made


def hits(strings: Any, text: str) -> Iterator[tuple[int, int]]:
    """The end and the size of the longest of the strings that ends there, in order."""
    found, before = strings.iter(""), -1
    for start in range(0, len(text), _BLOCK):
        found.set(text[start : start + _BLOCK])
        for last, size in found:
            if last != before:
                before = last
                yield last + 1, size


def add(found: list[Span], begin: int, end: int) -> None:
    """One more, which ends behind all that were found; those that overlap are one."""
    while found and found[-1][1] > begin:
        begin = min(begin, found.pop()[0])
    found.append((begin, end))


class _Suffixes:
    """What of a text is a large piece of one of the strings, read character by character."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._next: list[dict[str | int, int]] = [{}]
        self._link = [-1]
        self._size = [0]
        self._least = [_NONE]
        """How long a piece has to be: two thirds of the shortest string in which this state's pieces are."""
        last = 0
        for number, each in enumerate(strings):
            last = self._append(number, last)  # which no text has: nothing goes over the end of a string
            for character in each:
                last = self._append(character, last)
                self._least[last] = len(each) - len(each) // 3
        self._beyond = [0] * len(self._size)
        """The size of the longest large piece among the shorter ends of this state's pieces."""
        by_size = sorted(range(1, len(self._size)), key=self._size.__getitem__)
        for state in reversed(by_size):
            link = self._link[state]
            self._least[link] = min(self._least[link], self._least[state])
        self._least[0] = _NONE
        for state in by_size:
            link = self._link[state]
            is_large = self._least[link] <= self._size[link]
            self._beyond[state] = self._size[link] if is_large else self._beyond[link]
        self.forget()

    def forget(self) -> None:
        """The next character is the first."""
        self._state = self._matched = 0

    def read(self, text: str, at: int, end: int, found: list[Span]) -> int:
        """Read on from here to `end`, and beyond while what ends there could be in a piece; how far. The
        pieces go to `found`."""
        state, matched = self._state, self._matched
        while at < len(text) and (at < end or matched >= _ANCHOR):
            character = text[at]
            at += 1
            following = self._next[state].get(character)
            while following is None and state:
                state = self._link[state]
                matched = self._size[state]
                following = self._next[state].get(character)
            if following is None:
                continue  # it is in none of them
            state, matched = following, matched + 1
            if size := matched if matched >= self._least[state] else self._beyond[state]:
                add(found, at - size, at)
        self._state, self._matched = state, matched
        return at

    def _append(self, character: str | int, last: int) -> int:
        new = self._state_of({}, self._size[last] + 1)
        before = last
        while before >= 0 and character not in self._next[before]:
            self._next[before][character] = new
            before = self._link[before]
        if before < 0:
            self._link[new] = 0
            return new
        following = self._next[before][character]
        if self._size[following] == self._size[before] + 1:
            self._link[new] = following
            return new
        copy = self._state_of(dict(self._next[following]), self._size[before] + 1)
        self._link[copy] = self._link[following]
        self._link[new] = self._link[following] = copy
        while before >= 0 and self._next[before].get(character) == following:
            self._next[before][character] = copy
            before = self._link[before]
        return new

    def _state_of(self, following: dict[str | int, int], size: int) -> int:
        self._next.append(following)
        self._link.append(0)
        self._size.append(size)
        self._least.append(_NONE)
        return len(self._size) - 1


_NONE: Final = 1 << 60
