"""What a capture may hold: which dialect it is in, and how it is read into a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2s
from itertools import count
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import Dialect
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.state import TERMINAL_PHASES
from openresponses_server.observation.recordings.captures import Payload, Unreadable


class Source:
    """Payloads in, events out, through the machine on the wire that was asked for.

    Ids and times come from the capture, so that it is translated to the same bytes each time. A capture may
    hold several answers, one after the other: each is a response of its own.
    """

    def __init__(self, dialect: Dialect, first: Payload, wire: str) -> None:
        self.diagnostics = Diagnostics()
        self.text_after_tools = dialect.text_after_tools
        self._recording = dialect.recording
        self._wire = wire
        self._begin(first, first.data)

    def _begin(self, first: Payload, seed: bytes) -> None:
        self._concluded = False
        self._before: Mapping[str, Any] | None = None
        model, created = self._recording.head(first.value or {})
        self._machine = ResponseStreamStateMachine(
            model if isinstance(model, str) else "",
            ids=_ids_from(seed),
            clock=lambda: created if isinstance(created, int) else 0,
            wire=self._wire,
        )
        self._inbound = self._recording.inbound(self._machine)

    def feed(self, payload: Payload) -> list[Event]:
        """One payload of the capture → the events it caused."""
        events: list[Event] = []
        value = payload.value
        over = self._concluded or self._machine.phase in TERMINAL_PHASES
        if over and value is not None and self._recording.begins(value, self._before):
            events = self.close()
            self._begin(payload, b"%d:" % payload.line + payload.data)
        self._concluded = self._concluded or (value is not None and self._recording.concludes(value))
        self._before = value
        return events + self._inbound.feed(payload.data, payload.event or "")

    @property
    def cases(self) -> Diagnostics:
        """What was repaired, lost or ignored of the answer that is being read."""
        return self._machine.diagnostics

    def close(self) -> list[Event]:
        events = self._inbound.close()
        self.diagnostics.extend(self._machine.diagnostics)
        return events


def _ids_from(seed: bytes) -> Callable[[str], str]:
    digest = blake2s(seed, digest_size=8).hexdigest()
    number = count()
    return lambda prefix: f"{prefix}_{digest}{next(number):08x}"


DIALECTS: Final = dialects()
AUTO: Final = "auto"


def open_source(name: str, first: Payload, wire: str) -> Source:
    """The source for a capture that begins with this payload; `auto` looks at what it says.

    Raises Unreadable when no dialect knows it.
    """
    found = dialect_of(first) if name == AUTO else name
    if found is None:
        raise Unreadable(first.line, f"this is not one of: {', '.join(DIALECTS)}")
    return Source(DIALECTS[found], first, wire)


def dialect_of(first: Payload) -> str | None:
    """The name of the dialect whose captures begin like this; None when there is none."""
    for name, dialect in DIALECTS.items():
        if first.value is not None and dialect.recording.recognises(first.value):
            return name
    return None
