"""Another server's Responses stream → the machine, so that what leaves is ours: valid, numbered, whole.

Servers spell the reasoning events in three ways, leave out events or fields, rotate ids, count
sequence numbers down, send an error in either shape or end without a terminal event. Each such thing
that was put right is noted as a repair; what was right keeps its ids and texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.diagnostics import Diagnostics
from bridge.dialects.responses.items import ItemFeeder
from bridge.emitter import ResponseStreamStateMachine
from bridge.errors import BridgeError
from bridge.protocol import events as ev
from bridge.protocol.codec import decode_event, decode_json, event_from
from bridge.protocol.errors import ErrorPayload
from bridge.protocol.events import Event
from bridge.protocol.lenient import Repair
from bridge.protocol.response import Response
from bridge.protocol.unknown import UnknownEvent
from bridge.state import TERMINAL_PHASES, ResponseStreamPhase

CUT = ErrorPayload(
    "server_error", "upstream_cut", "the upstream's stream ended before its response did", None
)


class Inbound:
    """Feeds one response. `adopt` takes over the upstream's response id, model, times and echoed
    fields; without it the machine keeps its own. `frame_type` is the SSE event name, for servers that
    leave `type` out of the data.

    A stream that can't be read any further ends as a failure, never as completed.
    """

    def __init__(self, machine: ResponseStreamStateMachine, *, adopt: bool = False) -> None:
        self.machine = machine
        self.diagnostics = Diagnostics()
        self._adopt = adopt
        self._items = ItemFeeder(machine, self.diagnostics)
        self._expected = -1
        self._error: ErrorPayload | None = None
        self._frames = 0
        self._handlers: dict[type[Any], Callable[[Any], list[Event]]] = {
            ev.ResponseCreated: self._begun,
            ev.ResponseQueued: self._begun,
            ev.ResponseInProgress: self._begun,
            ev.ResponseCompleted: self._completed,
            ev.ResponseIncomplete: self._incomplete,
            ev.ResponseFailed: self._failed,
            ev.ErrorEvent: self._told_error,
            UnknownEvent: self._unknown,
            **self._items.handlers,
        }

    def feed(self, data: bytes, frame_type: str = "") -> list[Event]:
        """One frame's payload; `[DONE]` and frames after the end give nothing."""
        self._frames += 1
        if data.strip() == b"[DONE]":
            return []
        if self.machine.phase in TERMINAL_PHASES:
            self.diagnostics.ignored("stream", "frames after the terminal event")
            return []
        try:
            event = self._decoded(data, frame_type)
        except BridgeError as error:
            return self._give_up(f"frame {self._frames} of the upstream's stream: {error.message}")
        return self.event(event)

    def event(self, event: Event) -> list[Event]:
        """The same for an event already decoded."""
        self._check_number(event.sequence_number)
        begun = [] if type(event) in _BEGINNINGS else self._start(None)
        try:
            return begun + self._handlers[type(event)](event)
        except BridgeError as error:
            return begun + self._give_up(f"the upstream's {event.type}: {error.message}")

    def close(self) -> list[Event]:
        """Upstream has ended. Without its terminal event the response has failed."""
        if self.machine.phase in TERMINAL_PHASES:
            return []
        return self._start(None) + self.machine.fail(self._error or CUT)

    # ── frames ─────────────────────────────────────────────────────────────────────────────────────
    def _decoded(self, data: bytes, frame_type: str) -> Event:
        repairs: list[Repair] = []
        event = decode_event(data, repairs)
        if event.type == "" and frame_type:
            self.diagnostics.repair("type", "missing, taken from the frame's event name")
            repairs.clear()
            event = event_from({**decode_json(data), "type": frame_type}, repairs)
        for repair in repairs:
            self.diagnostics.repair(f"{event.type} {repair.path}", repair.what)
        return event

    def _check_number(self, number: int) -> None:
        if number < 0:
            self.diagnostics.repair("sequence_number", "missing, numbered here")
        elif number <= self._expected - 1:
            self.diagnostics.repair("sequence_number", "does not rise, numbered here")
        else:
            self._expected = number + 1

    def _give_up(self, what: str) -> list[Event]:
        failure = ErrorPayload("server_error", "upstream_invalid", what, None)
        return self._start(None) + self.machine.fail(failure)

    # ── the response ───────────────────────────────────────────────────────────────────────────────
    def _start(self, response: Response | None) -> list[Event]:
        if self.machine.phase is not ResponseStreamPhase.IDLE:
            return []
        if response is None:
            self.diagnostics.repair("response.created", "missing, begun here")
        elif self._adopt and response.id:
            self.machine.adopt(response)
        return self.machine.start()

    def _begun(self, event: ev.ResponseCreated | ev.ResponseQueued | ev.ResponseInProgress) -> list[Event]:
        return self._start(event.response)

    def _settle(self, response: Response) -> list[Event]:
        """What the terminal response tells that no event before it did."""
        events: list[Event] = []
        for index, item in enumerate(response.output):
            events += self._items.whole(index, item)
        if response.usage is not None:
            self.machine.usage(response.usage)
        if self._adopt:
            self.machine.adopt(response)
        return events

    def _completed(self, event: ev.ResponseCompleted) -> list[Event]:
        return self._settle(event.response) + self.machine.finish("completed")

    def _incomplete(self, event: ev.ResponseIncomplete) -> list[Event]:
        response = event.response
        events = self._settle(response)
        reason = response.incomplete_details.reason if response.incomplete_details else None
        if response.status == "cancelled" or reason == "cancelled":
            return events + self.machine.cancel()
        return events + self.machine.finish(reason or "max_output_tokens")

    def _failed(self, event: ev.ResponseFailed) -> list[Event]:
        if event.response.usage is not None:
            self.machine.usage(event.response.usage)
        error = event.response.error
        # the error event says more than the response it precedes: type and param
        told = self._error
        if told is None and error is not None:
            told = ErrorPayload("server_error", error.code, error.message, None)
        return self.machine.fail(told or ErrorPayload("server_error", None, "the upstream failed", None))

    def _told_error(self, event: ev.ErrorEvent) -> list[Event]:
        if self._error is None:
            self._error = event.payload
        return []

    def _unknown(self, event: UnknownEvent) -> list[Event]:
        handled = self._items.unknown(event)
        if handled is not None:
            return handled
        if ":" in event.type:
            return self.machine.extension_event(event.type, event.raw)
        self.diagnostics.ignored(event.type or "event", "unknown event")
        return []


_BEGINNINGS = frozenset({ev.ResponseCreated, ev.ResponseQueued, ev.ResponseInProgress})
