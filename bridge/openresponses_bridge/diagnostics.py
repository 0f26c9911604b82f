"""Reports of what was repaired, lost or ignored: one per case, counted, bounded.

Every component that tolerates deviations has a `Diagnostics`; the server writes it to a log line and a
response header, `replay` prints it. Nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from openresponses_bridge.text import on_one_line

Kind = Literal["repair", "loss", "ignored", "warning"]
_NAMELESS: Final = '""'  # a field or type of this name, as in JSON
LONGEST_SHOWN: Final = 64
"""How many characters of a name that a peer chose, such as a field's, a report shows."""
_LONGEST: Final = 300  # characters of a place or of what was done: a name in it is a stranger's


class Diagnostic(NamedTuple):
    """One case: `where` it was (a path, an event type, a field), `what` was done, and how often."""

    kind: Kind
    where: str
    what: str
    times: int = 1

    def __str__(self) -> str:
        often = f" (×{self.times})" if self.times > 1 else ""
        return f"{self.kind}: {self.where}: {self.what}{often}"


class Diagnostics:
    """Cases in order of first appearance. At most `limit` distinct ones are kept; `dropped` counts
    the rest. Each is one line of printable characters. Never add content or secrets: the lines are sent in
    headers and written to logs."""

    __slots__ = ("_counts", "_limit", "dropped")

    def __init__(self, limit: int = 200) -> None:
        self._counts: dict[tuple[Kind, str, str], int] = {}
        self._limit = limit
        self.dropped = 0

    def record(self, kind: Kind, where: str, what: str, times: int = 1) -> bool:
        """Count one case. Returns True when it is the first of its kind."""
        key = (kind, on_one_line(where or _NAMELESS, _LONGEST), on_one_line(what, _LONGEST))
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

    def of(self, kind: Kind) -> list[Diagnostic]:
        return [case for case in self if case.kind == kind] if self._counts else []

    def extend(self, other: Diagnostics) -> None:
        for case in other:
            self.record(*case)
        self.dropped += other.dropped

    def __iter__(self) -> Iterator[Diagnostic]:
        if not self._counts:  # as almost always
            return iter(())
        return (Diagnostic(*key, times) for key, times in self._counts.items())

    def __len__(self) -> int:
        return len(self._counts)


LOSSES_HEADER: Final = "openresponses-losses"
"""The header of an answer that lists what of the request could not be expressed."""
MOST_LOSSES: Final = 1000
"""The most characters of that header."""


def loss_header(reported: Iterable[str]) -> dict[str, str]:
    """The header, when there are losses: bounded, and printable ASCII whatever the names of fields."""
    value = "; ".join(reported)[:MOST_LOSSES]
    if not value:
        return {}
    return {LOSSES_HEADER: "".join(char if char.isascii() and char.isprintable() else "?" for char in value)}
