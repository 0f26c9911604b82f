"""A response while it is watched: what it adds up to, what is wrong with it, how quickly it comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from openresponses_bridge.conformance import Violation
from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.protocol.events import (
    TERMINAL_EVENTS,
    Event,
    ResponseCreated,
    ResponseInProgress,
    ResponseQueued,
)
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import enc_hook

_OPENING = (ResponseCreated, ResponseQueued, ResponseInProgress)
_MOST_PINNED: Final = 1_000
_SHORTEST: Final = 0.1  # seconds: what came in fewer came at once, and its rate says nothing


class Pinned(NamedTuple):
    """A repair or loss, at the event (counted from 0) at which it was seen."""

    event: int
    case: Diagnostic


class Pace(NamedTuple):
    """Seconds from the first event to the last, and to the first output. From there on: characters a second,
    and tokens where the server has counted them."""

    seconds: float
    first_output_seconds: float | None
    characters_per_second: float | None
    tokens_per_second: float | None


class WatchedResponse:
    """Takes the events of one response. With `now` (seconds) it knows their times."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.events = 0
        self.per_item: Counter[int] = Counter()
        self.violations: list[Violation] = []
        self.pinned: list[Pinned] = []
        self.not_shown = 0
        """How many violations and cases are beyond the most that are kept."""
        self.ended = False
        self._now = now
        self._fold = ResponseAccumulator()
        self._whole: Response | None = None
        self._characters = 0
        self._begun = self._first = self._last = 0.0

    def feed(self, event: Event) -> None:
        """The next event."""
        self._fold.feed(event)
        index = getattr(event, "output_index", None)
        if isinstance(index, int):
            self.per_item[index] += 1
        if self._now is not None:
            self._last = self._now()
            self._begun = self._begun or self._last
            if not self._first and not isinstance(event, _OPENING):
                self._first = self._last
            delta = getattr(event, "delta", None)
            self._characters += len(delta) if isinstance(delta, str) else 0
        self.events += 1
        self.ended = self.ended or type(event) in TERMINAL_EVENTS

    def pass_over(self) -> None:
        """What came for an event and is not one."""
        self.events += 1

    def whole(self, response: Response) -> None:
        """It came in one piece."""
        self._whole, self.ended = response, True

    def accuse(self, violations: list[Violation]) -> None:
        """What breaks the protocol."""
        self._keep(self.violations, violations)

    def pin(self, cases: list[Diagnostic]) -> None:
        """What had to be repaired, or was lost, at the latest event."""
        self._keep(self.pinned, [Pinned(max(0, self.events - 1), case) for case in cases])

    @property
    def response(self) -> Response | None:
        """As it stands."""
        return self._whole or self._fold.response

    @property
    def error(self) -> tuple[str, str] | None:
        """Code and message of what it failed with."""
        response, sent = self.response, self._fold.error
        if response is not None and response.error is not None:
            return response.error.code, response.error.message
        return None if sent is None else (str(sent.code or sent.type), str(sent.message))

    @property
    def pace(self) -> Pace | None:
        """None when nothing is known of times."""
        if not self._begun:
            return None
        first = self._first - self._begun if self._first else None
        usage = self.response.usage if self.response is not None else None
        took = self._last - (self._first or self._begun)
        timed = took >= _SHORTEST
        characters = self._characters / took if timed and self._characters else None
        tokens = usage.output_tokens / took if timed and usage is not None else None
        return Pace(self._last - self._begun, first, characters, tokens)

    def as_json(self) -> dict[str, Any]:
        """All of it but the texts, for scripts."""
        response, pace = self.response, self.pace
        shown: dict[str, Any] = {
            "id": response.id if response else None,
            "model": response.model if response else None,
            "status": response.status if response else None,
            "error": None if self.error is None else dict(zip(("code", "message"), self.error, strict=True)),
            "events": self.events,
            "items": [self._item(index, item) for index, item in enumerate(response.output)]
            if response
            else [],
            "violations": msgspec.to_builtins(self.violations),
            "diagnostics": [{"event": each.event, **each.case._asdict()} for each in self.pinned],
            "not_shown": self.not_shown,
            "usage": msgspec.to_builtins(response.usage, enc_hook=enc_hook) if response else None,
        }
        return shown | ({} if pace is None else _rounded(pace))

    def _item(self, index: int, item: Any) -> dict[str, Any]:
        fields = {name: getattr(item, name, None) for name in ("type", "id", "status", "name")}
        return {
            "output_index": index,
            **{name: value for name, value in fields.items() if isinstance(value, str)},
            "events": self.per_item[index],
        }

    def _keep(self, kept: list[Any], more: list[Any]) -> None:
        room = max(0, _MOST_PINNED - len(kept))
        kept += more[:room]
        self.not_shown += len(more[room:])


def _rounded(pace: Pace) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 3) for name, value in pace._asdict().items()}
