"""The responses that this process is making right now, by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openresponses_server.runs.run import Run


class ActiveRuns:
    """Where a request about a response finds the run that makes it."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[str, Run]] = {}

    def add(self, response_id: str, owner: str, run: Run) -> None:
        """List the run, until it is removed."""
        self._runs[response_id] = owner, run

    def remove(self, response_id: str) -> None:
        """It has been made."""
        del self._runs[response_id]

    def get(self, response_id: str, owner: str) -> Run | None:
        """The run that makes this response; None when none does here for this owner (law S7)."""
        whose, run = self._runs.get(response_id, (owner, None))
        return run if whose == owner else None

    def find(self, response_id: str) -> Run | None:
        """The same, for any owner."""
        _, run = self._runs.get(response_id, (None, None))
        return run

    def in_line(self) -> list[Run]:
        """Those that wait for their turn."""
        return [run for _, run in self._runs.values() if run.in_line]

    def __len__(self) -> int:
        return len(self._runs)
