"""Feeds another server's Responses stream to the machine, so that what is sent is valid, numbered and whole.

Servers spell the reasoning events in three ways, leave out events or fields, change ids, count sequence
numbers down, send errors in two forms, or end without a terminal event. Each repair is reported; correct ids
and texts are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from openresponses_bridge.dialects.base import (
    CUT,
    NO_MESSAGE,
    BaseInbound,
    counted,
    error_in_frame,
    failure,
    payload_of,
    report_unknown_type,
    reported_in,
    unread,
)
from openresponses_bridge.dialects.responses.items import HANDLERS, OF_OBJECTS, CallNamed, ItemFeeder
from openresponses_bridge.dialects.responses.request import SMALLEST_LIMIT
from openresponses_bridge.dialects.responses.tracks import CALLS
from openresponses_bridge.emitter.failures import INCOMPLETE_ITEM, MAX_OUTPUT_TOKENS, UNKNOWN
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.codec import (
    REFUSED,
    decode_event,
    decode_frame,
    decode_known_event,
    event_from,
    normalized,
    with_unknown_fields,
)
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.hosted import PROGRESS_EVENTS
from openresponses_bridge.protocol.lenient import MISSING, Repair
from openresponses_bridge.protocol.response import PROTOCOL, ErrorPayload, Response
from openresponses_bridge.protocol.unknown import UnknownEvent
from openresponses_bridge.state import TERMINAL_PHASES, ResponseStreamPhase

# A whole response where a stream was asked for: the terminal event of that stream.

# status → the terminal event; a response that is still in progress is not an answer
_EVENTS = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",
    "failed": "response.failed",
}


def whole_answer(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the terminal event for a response that was received as JSON; None for JSON that is not a
    finished response."""
    if value.get("object") != "response" or "type" in value or not isinstance(value.get("output"), list):
        return None
    status = value.get("status", "completed")
    kind = _EVENTS.get(status) if isinstance(status, str) else None
    return None if kind is None else {"type": kind, "sequence_number": 0, "response": dict(value)}


_CUT = failure(CUT, "the upstream's stream ended before its response did")
_FAILED = ErrorPayload("server_error", None, "the upstream failed", None)
_IN_PROGRESS = ResponseStreamPhase.IN_PROGRESS
_INDEX: Final = "output_index"
_BEGINNINGS = frozenset({ev.ResponseCreated, ev.ResponseQueued, ev.ResponseInProgress})
# what may come before a response without beginning it
_PATIENT = frozenset({ev.ErrorEvent, UnknownEvent})
# terminal event → its status; a worse status of the response itself counts
_STATUSES: dict[type[Any], str] = {
    ev.ResponseCompleted: "completed",
    ev.ResponseIncomplete: "incomplete",
    ev.ResponseFailed: "failed",
}
_BADNESS = {"completed": 0, "incomplete": 1, "cancelled": 2, "canceled": 2, "failed": 3}
_CANCELLED = frozenset({"cancelled", "canceled"})
_CANCELLED_EVENTS = frozenset({"response.cancelled", "response.canceled"})
# the last frames that are recognised again: as many as a reader that resumes too early may get twice
_KNOWN_AGAIN: Final = 32


class Inbound(BaseInbound):
    """Feeds one response. `adopt` takes over the upstream's response id, model, times and echoed fields;
    without it the machine keeps its own. `reports_cuts` is that of `ResponsesOptions`. `kept_id` is set once
    the upstream has reported that the response is complete.

    A stream that can't be read any further ends as a failure, never as completed.
    """

    def __init__(self, machine: ResponseStream, *, adopt: bool = False, reports_cuts: bool = True) -> None:
        self.diagnostics = machine.diagnostics
        self.machine = machine
        self._adopt = adopt
        self._reports_cuts = reports_cuts
        self._items = ItemFeeder(machine)
        self._expected = 0
        self._recent = [b""] * _KNOWN_AGAIN  # by sequence number
        self._error: ErrorPayload | None = None
        self._frames = 0
        self._repairs: list[Repair] = []
        self._data: bytes | None = None  # of an event whose objects do not have their unknown fields
        self._untold: set[str] = set()  # fields that the upstream left out and that were filled in

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one frame's payload. `[DONE]`, empty frames and frames after the end have no events. `event`
        is the SSE event's name, for servers that leave `type` out of the data."""
        self._frames += 1
        self._data = data
        out: list[Event] = []
        try:
            decoded = decode_known_event(data)
        except REFUSED:
            try:
                decoded = self._decode_lenient(data, event)
            except BridgeError as error:
                return self._unreadable(data, event, error)
        number = decoded.sequence_number
        if number == self._expected:
            self._recent[number % _KNOWN_AGAIN] = data
            self._expected += 1
        elif 0 < number < self._expected and self._recent[number % _KNOWN_AGAIN] == data:
            self.diagnostics.repair("sequence_number", "seen before, the event is not read again")
            return out
        else:
            self._renumber(number, data)
        if self.machine.phase is _IN_PROGRESS or self._begins(decoded, out):
            agents = self._items.agents
            try:
                if agents.waiting and self._waits(decoded, data):
                    pass
                elif (feed_item := _WITHOUT_OBJECTS.get(type(decoded))) is not None:  # the most common first
                    feed_item(self._items, decoded, out)
                else:
                    for each in self._named(decoded, data):
                        self._handle(each, out)
                if agents.waiting:
                    self._feed_waiting(out)
            except BridgeError as error:
                out += self._fail_invalid(f"the upstream's {decoded.type}: {error.message}")
        return out

    def close(self) -> list[Event]:
        """Handle the end of the upstream. Without a terminal event the response has failed."""
        out: list[Event] = []
        if self.machine.phase not in TERMINAL_PHASES and self._ensure_open(None, out):
            try:
                self._end_waiting(out)
                out += self.machine.fail(self._error or _CUT)
            except BridgeError as error:
                out += self._fail_invalid(f"what waited in the upstream's stream: {error.message}")
        return out

    def _waits(self, event: Event, data: bytes) -> bool:
        """Buffer the event and return True if its item waits."""
        known = event.raw.get(_INDEX) if isinstance(event, UnknownEvent) else getattr(event, _INDEX, None)
        agents = self._items.agents
        if not isinstance(known, int) or known not in agents.waiting:
            return False
        for each in self._named(event, data):
            whole = self._with_unknown_fields(each) if type(each) in OF_OBJECTS else each
            agents.keep(whole, known, len(data))
        return True

    def _named(self, event: Event, data: bytes) -> Sequence[Any]:
        """Return the event of a call with the name beside its item, or behind a name beside its arguments:
        some servers have it in no other place."""
        if type(event) not in _NAMING or b'"name"' not in data or not (name := _name_beside(data)):
            return (event,)
        whole: Any = self._with_unknown_fields(event)
        if type(event) in OF_OBJECTS:
            return (self._items.with_name(whole, name),)
        kind = it.FunctionCall if type(event) is ev.FunctionCallArgumentsDone else it.CustomToolCall
        call = kind(whole.item_id, "", name, "", "in_progress")
        return (CallNamed(event.type, whole.output_index, call), event)

    def _feed_waiting(self, out: list[Event]) -> None:
        """Feed the items that need not wait any more."""
        self._data = None
        while events := self._items.agents.next():
            for event in events:
                self._handle(event, out)

    def _end_waiting(self, out: list[Event]) -> None:
        """Feed everything that waits, since the response ends."""
        agents = self._items.agents
        while agents.waiting:
            agents.end_all()
            self._feed_waiting(out)

    def _decode_lenient(self, data: bytes, event: str) -> Event:
        """Decode a frame that strict decoding refused: one to repair, or an unknown event. Raises BridgeError
        for what is not an event."""
        self._data = None
        decoded = decode_event(data, self._repairs)
        odd = self._repairs or isinstance(decoded, UnknownEvent)
        return self._repaired(decoded, data, event) if odd else decoded

    def _repaired(self, event: Event, data: bytes, frame_type: str) -> Event:
        repairs, self._repairs = self._repairs, []
        if not event.type and frame_type:
            self.diagnostics.repair("type", "missing, taken from the frame's event name")
            repairs.clear()
            frame = decode_frame(data)
            event = event_from({**frame, "type": frame_type}, repairs)
            no_response = isinstance(event, ev.ErrorEvent | UnknownEvent)
            if no_response and error_in_frame(frame, frame_type) is not None:
                repairs.clear()
                event = _event_of(frame)
        elif (
            isinstance(event, UnknownEvent)
            and (not event.type or "error" in (frame_type, event.raw.get("object")))
            and error_in_frame(event.raw, frame_type) is not None
        ):
            self.diagnostics.repair("type", "missing, an error by its fields")
            repairs.clear()
            event = _event_of(event.raw)
        elif isinstance(event, UnknownEvent) and (whole := whole_answer(event.raw)) is not None:
            self.diagnostics.repair("response", "came whole, without a stream")
            repairs.clear()
            event = event_from(whole, repairs)
        if isinstance(event, ev.ErrorEvent | ev.ResponseFailed) and data:
            self._read_error(event, data)
        for path, what in repairs:
            if what == MISSING and path.startswith("$.response."):
                self._untold.add(path.removeprefix("$.response."))
                self.diagnostics.repair("response", "required fields missing, filled")
            elif path != "$.sequence_number":  # reported with the numbers
                self.diagnostics.repair(f"{event.type} {path}", what)
        return event

    def _read_error(self, event: ev.ErrorEvent | ev.ResponseFailed, data: bytes) -> None:
        """Handle the error of an event that has another form than the protocol's."""
        is_read = event.response.error if isinstance(event, ev.ResponseFailed) else event.payload.message
        frame = {} if is_read else decode_frame(data)
        error = error_in_frame(frame)
        if error is not None and error.message:
            self.diagnostics.repair("error", "in another form, read by the names of its fields")
            response = frame.get("response")
            self._error = self._error or payload_of(response if isinstance(response, dict) else frame)

    def _handle(self, event: Event, out: list[Event]) -> None:
        _HANDLERS.get(type(event), Inbound._item_event)(self, event, out)

    def _item_event(self, event: Event, out: list[Event]) -> None:
        """Handle an event of an item, and read the unknown fields of the objects in it."""
        HANDLERS[type(event)](self._items, self._with_unknown_fields(event), out)

    def _with_unknown_fields(self, event: Event) -> Event:
        if self._data is None:
            return event
        whole = with_unknown_fields(event, self._data, self._repairs)
        self._data = None
        return self._repaired(whole, b"", "") if self._repairs else whole

    def _report(self, response: Response) -> None:
        """Pass on the further fields of the upstream's response."""
        own = self.machine.snapshot
        if "service_tier" in self._untold:
            response = msgspec.structs.replace(response, service_tier=own.service_tier)
        self.machine.report(response)

    def _unreadable(self, data: bytes, name: str, error: BridgeError) -> list[Event]:
        out: list[Event] = []
        frame = data.strip()
        if frame == b"[DONE]":
            return out
        if not frame:
            self.diagnostics.ignored("frame", "empty")
        elif (failed := unread(self._frames, error, frame, name, self.diagnostics)) is None:
            return out
        elif reported_in(frame) is not None and self._ensure_open(None, out):
            out += self.machine.fail(payload_of(decode_frame(frame)))
        elif name == "error" and self._ensure_open(None, out):
            out += self.machine.fail(failed)
        elif self._ensure_open(None, out):
            out += self._fail_invalid(f"frame {self._frames} of the upstream's stream: {error.message}")
        return out

    def _renumber(self, number: int, data: bytes) -> None:
        if number < 0:
            self.diagnostics.repair("sequence_number", "missing, assigned")
        elif number < self._expected:
            self.diagnostics.repair("sequence_number", "does not increase, renumbered")
        else:
            self.diagnostics.repair("sequence_number", "has gaps, renumbered")
            self._recent[number % _KNOWN_AGAIN] = data
            self._expected = number + 1

    def _begins(self, event: Event, out: list[Event]) -> bool:
        """Return True if an event that comes while no response is in progress has to be handled."""
        return type(event) in _PATIENT or self._ensure_open(event, out)

    def _fail_invalid(self, what: str) -> list[Event]:
        return self.machine.fail(failure("upstream_invalid", what))

    def _ensure_open(self, event: Event | None, out: list[Event]) -> bool:
        """Begin the response if needed; return True if it is open."""
        if self.machine.phase is ResponseStreamPhase.IDLE:
            response: Response | None = getattr(event, "response", None)
            if type(event) not in _BEGINNINGS:
                self.diagnostics.repair("response.created", "missing, added")
            if event is not None and response is not None:
                response = getattr(self._with_unknown_fields(event), "response", response)
                try:
                    if self._adopt:
                        self.machine.adopt(self._identified(response))
                        self._keep_native(response)
                    else:
                        self._report(response)
                except WireError as error:
                    self.diagnostics.loss("response", error.message)
            out += self.machine.start()
        elif self.machine.phase is not _IN_PROGRESS:
            self.diagnostics.ignored("frame", "came after the end")
            return False
        return True

    def _keep_native(self, response: Response) -> None:
        """Keep the fields of an upstream of another API, which a stream of our own has."""
        for dialect, fields in (response.native or {}).items():
            if isinstance(fields, dict):
                self.machine.native(dialect, fields)

    def _identified(self, response: Response) -> Response:
        """Return the response with our id, model and time if the upstream gives none."""
        own = self.machine.snapshot
        return msgspec.structs.replace(
            response,
            id=response.id or own.id,
            model=response.model or own.model,
            created_at=response.created_at or own.created_at,
        )

    def _ended(self, event: Any, out: list[Event]) -> None:
        event_status = _STATUSES[type(event)]
        event = self._with_unknown_fields(event)
        self._end_waiting(out)
        response: Response = event.response
        status = max(event_status, response.status, key=lambda each: _BADNESS.get(each, -1))
        if status != event_status and status not in _CANCELLED:
            self.diagnostics.repair(event.type, f"ended as {status}, the status of its response")
        if response.usage is not None:
            self.machine.usage(counted(response.usage, self.diagnostics))
        self._report(response)
        if self._adopt:
            self._keep_native(response)
        if status == "failed" or self._error is not None:
            self._fail(response, out)
            return
        self._items.finish(response.output, status, out)
        if self._adopt:
            if response.completed_at is not None and response.completed_at < response.created_at:
                self.diagnostics.repair("completed_at", "before created_at, set to it")
            self.machine.adopt(response)
        self._finish(response, status, out)

    def _finish(self, response: Response, status: str, out: list[Event]) -> None:
        details = response.incomplete_details
        reason = details.reason if details is not None else ""
        if status in _CANCELLED or reason in _CANCELLED:
            out += self.machine.cancel()
        elif status == "incomplete":
            out += self.machine.finish(reason or UNKNOWN, incomplete=True)
        elif self._items.cut:
            self.diagnostics.repair("response.completed", "an item in it is incomplete, ended as incomplete")
            out += self.machine.finish(INCOMPLETE_ITEM, incomplete=True)
        elif not self._reports_cuts and self._is_at_limit(response):
            self.diagnostics.repair("response.completed", "it has as many tokens as the limit: cut off")
            out += self.machine.finish(MAX_OUTPUT_TOKENS, incomplete=True)
        else:
            self.kept_id = response.id if response.store else None
            out += self.machine.finish("completed")

    def _is_at_limit(self, response: Response) -> bool:
        """Return True if a text has as many tokens as the limit in the request."""
        limit, output = self.machine.snapshot.max_output_tokens, response.output
        if limit is None or response.usage is None or (output and isinstance(output[-1], CALLS)):
            return False
        return response.usage.output_tokens >= max(limit, SMALLEST_LIMIT)

    def _fail(self, response: Response, out: list[Event]) -> None:
        self._items.finish(response.output, "failed", out)
        error = response.error
        # the error event has more than the response after it: type and param
        reported = self._error
        if reported is None and error is not None:
            reported = ErrorPayload("server_error", error.code, error.message, None)
        if reported is not None and error is not None and error.extra:
            reported = msgspec.structs.replace(reported, native={PROTOCOL: error.extra})
        out += self.machine.fail(_FAILED if reported is None else _in_full(reported))

    def _error_event(self, event: ev.ErrorEvent, out: list[Event]) -> None:
        error = event.payload
        if self._data is not None:
            error = msgspec.structs.replace(payload_of(decode_frame(self._data)), headers=error.headers)
        elif error.message:
            error = _in_full(error)
        else:
            error = msgspec.structs.replace(error, message=NO_MESSAGE)
        self._error = self._error or error

    def _unknown(self, event: UnknownEvent, out: list[Event]) -> None:
        known = normalized(event)
        if event.type in _CANCELLED_EVENTS:
            known = event_from({**event.raw, "type": "response.incomplete"})
        if known is not None:
            self.diagnostics.repair(event.type, f"read as {known.type}")
            if self.machine.phase is _IN_PROGRESS or self._begins(known, out):
                self._handle(known, out)
        elif self.machine.phase is not _IN_PROGRESS or not self._items.progress(event, out):
            self._extension(event, out)

    def _extension(self, event: UnknownEvent, out: list[Event]) -> None:
        is_of_response = event.type in PROGRESS_EVENTS and not event.raw.get("item_id")
        if (is_of_response or ":" in event.type) and self.machine.phase is _IN_PROGRESS:
            try:
                out += self.machine.extension_event(event.type, event.raw)
                return
            except BridgeError:
                pass  # an extension can't have such a name
        is_of_answer = event.type.startswith("response.")
        report_unknown_type(event.type, event.raw if is_of_answer else {}, self.diagnostics)


_PAYLOADS: Final = (ev.FunctionCallArgumentsDone, ev.CustomToolCallInputDone)
_NAMING: Final = frozenset({ev.OutputItemAdded, ev.OutputItemDone, *_PAYLOADS})
_WITHOUT_OBJECTS: Final = {
    kind: feed for kind, feed in HANDLERS.items() if kind not in OF_OBJECTS and kind not in _PAYLOADS
}
_HANDLERS: Final[dict[type[Any], Callable[[Inbound, Any, list[Event]], None]]] = {
    **dict.fromkeys(_BEGINNINGS, lambda _inbound, _event, _out: None),
    **dict.fromkeys(_STATUSES, Inbound._ended),
    ev.ErrorEvent: Inbound._error_event,
    UnknownEvent: Inbound._unknown,
}
"""The handlers of events that belong to no item."""


class _Beside(Struct):
    name: Any = None


_BESIDE: Final = msgspec.json.Decoder(_Beside)


def _name_beside(data: bytes) -> str:
    try:
        name = _BESIDE.decode(data).name
    except REFUSED:
        return ""
    return name if isinstance(name, str) else ""


def _event_of(frame: Any) -> ev.ErrorEvent:
    """Return the event of a frame that is an error in another form, as llama.cpp's server and gateways
    send."""
    return ev.ErrorEvent(-1, payload_of(frame))


def _in_full(error: ErrorPayload) -> ErrorPayload:
    """Return the error with the message and the code of the error within it."""
    fields = {"type": error.type, "code": error.code, "message": error.message, "param": error.param}
    return msgspec.structs.replace(payload_of(fields), headers=error.headers, native=error.native)
