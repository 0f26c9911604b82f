"""Diagnostics: reports of repairs, losses, ignored data and warnings. Each case is kept once, with a count.

Every component that tolerates deviations has a `Diagnostics` and reports there whatever it changes or leaves
out. The server writes the cases to its log and the losses to a response header; `replay` prints them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from openresponses_bridge.text import on_one_line

Kind = Literal["repair", "loss", "ignored", "warning"]
_NAMELESS: Final = '""'  # shown for an empty name, as in JSON
LONGEST_SHOWN: Final = 64
"""The most characters that a report shows of a name chosen by a peer, such as a field's."""
_MOST_UNKNOWN: Final = 20  # cases that a `Diagnostics` names by an unknown type
_LONGEST: Final = 300  # characters of `where` and of `what`: a peer may have chosen a name in them


class Diagnostic(NamedTuple):
    """One case: `where` it occurred (a path, an event type or a field), `what` was done, and how many
    `times`."""

    kind: Kind
    where: str
    what: str
    times: int = 1

    def __str__(self) -> str:
        often = f" (×{self.times})" if self.times > 1 else ""
        return f"{self.kind}: {self.where}: {self.what}{often}"


class Diagnostics:
    """Cases in order of first appearance. At most `limit` different cases are kept; `dropped` counts the
    occurrences of all others. Each case is one line of printable characters. Never record content or secrets:
    the lines are sent in headers and written to logs."""

    __slots__ = ("_counts", "_limit", "_unknown", "dropped")

    def __init__(self, limit: int = 200) -> None:
        self._counts: dict[tuple[Kind, str, str], int] = {}
        self._limit = limit
        self._unknown = 0  # cases that are named by an unknown type
        self.dropped = 0

    def record(self, kind: Kind, where: str, what: str, times: int = 1) -> bool:
        """Count `times` occurrences of a case. Returns True if the case is new and was kept."""
        key = self._key(kind, where, what)
        counts = self._counts
        count = counts.get(key)
        if count is not None:
            counts[key] = count + times
            return False
        if len(counts) >= self._limit:
            self.dropped += times
            return False
        counts[key] = times
        return True

    def repair(self, where: str, what: str) -> bool:
        return self.record("repair", where, what)

    def loss(self, where: str, what: str) -> bool:
        return self.record("loss", where, what)

    def ignored(self, where: str, what: str) -> bool:
        return self.record("ignored", where, what)

    def warning(self, where: str, what: str) -> bool:
        return self.record("warning", where, what)

    def unknown(self, kind: Kind, where: str, what: str) -> bool:
        """Count one occurrence of a case whose name is a type that is not known, chosen by a peer. Only the
        first of these cases are kept; the others are one case for each kind, so that many types leave room
        for other cases. Returns True if the case is new and was kept."""
        if self._unknown >= _MOST_UNKNOWN and self._key(kind, where, what) not in self._counts:
            return self.record(kind, "unknown types", "more than are named")
        is_new = self.record(kind, where, what)
        self._unknown += is_new
        return is_new

    @staticmethod
    def _key(kind: Kind, where: str, what: str) -> tuple[Kind, str, str]:
        return (kind, on_one_line(where or _NAMELESS, _LONGEST), on_one_line(what, _LONGEST))

    def of(self, kind: Kind) -> list[Diagnostic]:
        return [case for case in self if case.kind == kind] if self._counts else []

    def extend(self, other: Diagnostics) -> None:
        for case in other:
            self.record(*case)
        self.dropped += other.dropped

    def __iter__(self) -> Iterator[Diagnostic]:
        if not self._counts:  # the usual case
            return iter(())
        return (Diagnostic(*key, times) for key, times in self._counts.items())

    def __len__(self) -> int:
        return len(self._counts)


LOSSES_HEADER: Final = "openresponses-losses"
"""The header of an answer that lists the parts of the request that could not be expressed."""
MOST_LOSSES: Final = 1000
"""The most characters of that header's value."""


def loss_header(reported: Iterable[str]) -> dict[str, str]:
    """Return the header with these losses, separated by `; `; empty if there are none. Its value has at most
    `MOST_LOSSES` characters, with `?` for each that is not printable ASCII."""
    value = "; ".join(reported)[:MOST_LOSSES]
    if not value:
        return {}
    return {LOSSES_HEADER: "".join(char if char.isascii() and char.isprintable() else "?" for char in value)}
