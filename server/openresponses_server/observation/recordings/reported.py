"""What of a report belongs to the event at hand: for whoever pins repairs and losses to the events at which
they showed."""

from __future__ import annotations

from itertools import islice

from openresponses_bridge.diagnostics import Diagnostic, Diagnostics


class Reported:
    """What is new in a report since the last look. Costs nothing while nothing is."""

    def __init__(self, report: Diagnostics) -> None:
        self._report = report
        self._seen = 0

    def new(self) -> list[Diagnostic]:
        """The cases that were noted for the first time since."""
        if len(self._report) == self._seen:
            return []
        found = list(islice(self._report, self._seen, None))
        self._seen += len(found)
        return found
