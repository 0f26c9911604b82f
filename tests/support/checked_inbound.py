"""An inbound translator under test: all its events are checked against the laws that always hold (`Run`)."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from openresponses_bridge.dialects.base import Inbound
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from tests.support.machines import Run, kinds, plain, same

Build = Callable[[ResponseStreamStateMachine], Inbound]
Frame = bytes | dict[str, Any]


def encoded(frame: Frame) -> bytes:
    """An encoded frame."""
    return frame if isinstance(frame, bytes) else json.dumps(frame).encode()


def json_lines(path: Path) -> list[bytes]:
    """The frames of a capture in JSON lines."""
    return [line for line in path.read_bytes().splitlines() if line.strip()]


class CheckedInbound:
    """An inbound, the frames that it has read and the results. With `close`, the upstream ends after the last
    frame."""

    def __init__(
        self, build: Build, frames: Iterable[Frame] = (), wire: str = "openresponses", close: bool = True
    ) -> None:
        self.run = Run(wire, started=False)
        self.inbound = build(self.run.machine)
        for frame in frames:
            self.feed(frame)
        if close:
            self.close()

    def feed(self, frame: Frame) -> list[str]:
        """Feed one frame and return the types of the events that come of it."""
        return self._watch(self.inbound.feed(encoded(frame)))

    def close(self) -> list[str]:
        """Close the inbound, and return the types of the events that come of that. Asserts that nothing is
        left open."""
        sent = self._watch(self.inbound.close())
        assert not (broken := self.run.validator.close()), [str(each) for each in broken]
        return sent

    def _watch(self, events: list[Event]) -> list[str]:
        for event in events:
            self.run._check(event)
        if self.run.events:
            assert same(self.run.accumulator.response, self.run.machine.snapshot), "E1"
        return kinds(events)

    @property
    def events(self) -> list[Event]:
        return self.run.events

    @property
    def response(self) -> Response:
        return self.run.machine.snapshot

    @property
    def status(self) -> str:
        return self.response.status

    @property
    def output(self) -> list[Any]:
        """The items as JSON."""
        return self.run.output

    @property
    def error(self) -> tuple[str, str]:
        """(code, message) of a failed response."""
        assert self.response.error is not None
        return self.response.error.code, self.response.error.message

    def extensions(self, kind: str) -> list[dict[str, Any]]:
        """The fields of the extension events of this type."""
        events = [plain(event) for event in self.events if event.type == kind]
        return [
            {name: value for name, value in each.items() if name not in ("type", "sequence_number")}
            for each in events
        ]

    def notes(self, kind: str) -> list[str]:
        """`where: what` of each diagnostic of this kind."""
        return [f"{case.where}: {case.what}" for case in self.inbound.diagnostics if case.kind == kind]
