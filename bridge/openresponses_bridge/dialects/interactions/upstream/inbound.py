"""Converts answers of the Interactions API, streamed or whole, to calls of the machine, and so to events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from openresponses_bridge.dialects.base import (
    TIER,
    OnceBegun,
    counted,
    cut_after,
    error_in_frame,
    object_in,
    other_fields,
    payload_of,
    report_unknown_type,
    unread,
)
from openresponses_bridge.dialects.interactions import types as t
from openresponses_bridge.dialects.interactions.types import Json
from openresponses_bridge.dialects.interactions.upstream.steps import StepReader
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import decode_frame, with_whole_characters
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.usage import UNBOUNDED, Usage, count_of
from openresponses_bridge.seal import Sealer
from openresponses_bridge.state import TERMINAL_PHASES

_DONE: Final = b"[DONE]"
_USAGE: Final = "usage"
_READ: Final = frozenset(
    {
        *("id", "object", "status", "model", "created", "updated", "steps", "errors", "error", "input"),
        *("previous_interaction_id", TIER),
    }
)
_GOES_ON: Final = ("in_progress", "queued", "idle")


class Inbound(OnceBegun):
    """Reads one answer into one machine. `sealer` seals signatures."""

    __slots__ = ("_answer", "_frames", "_status", "_steps", "_usage")

    def __init__(self, machine: ResponseStream, sealer: Sealer | None = None) -> None:
        super().__init__(machine)
        self._steps = StepReader(machine, sealer or Sealer())
        self._frames = 0
        self._status = ""
        self._answer: Json = {}
        self._usage: Json = {}

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one frame's payload: an event, a whole interaction or an error."""
        if not self._live:
            return self._outside(data, event)
        self._frames += 1
        if data.strip() in (b"", _DONE):
            self.diagnostics.ignored("frame", "no event")
            return []
        events: list[Event] = []
        try:
            value = decode_frame(data)
            if isinstance(value, list) and value:
                value = value[0]  # Google sends its errors in an array
            if not isinstance(value, dict):
                raise WireError(WireError.INVALID_SHAPE, "expected an object")
            return self._frame(value, event)
        except WireError as error:
            failed = unread(self._frames, error, data, event, self.diagnostics)
            return [] if failed is None else self._fail(failed)
        except BridgeError as error:  # the machine refused what the frames contain
            return events + self._fail(error)

    def _read_first(self, data: bytes) -> None:
        self._machine.report_names(_model_in(data))

    def close(self) -> list[Event]:
        """Handle the end of the upstream. Without the interaction's end before, the answer was cut off."""
        if self._ended:
            return []
        events = self._begin()
        if self._status in ("", *_GOES_ON):
            return events + self._fail(cut_after(self._frames))
        try:
            return events + self._end({})
        except BridgeError as error:
            return events + self._fail(error)

    def flush(self) -> list[Event]:
        if self._live and self._machine.phase not in TERMINAL_PHASES:
            self._report()  # the counts until then
        return []

    def _frame(self, value: Json, event: str) -> list[Event]:
        event_type = value.get("event_type")
        kind = event_type if isinstance(event_type, str) else event
        handler = _HANDLERS.get(kind)
        if handler is not None:
            return handler(self, value)
        if is_whole(value):
            return self._whole(value)
        if error_in_frame(value, event) is not None:
            return self._fail(payload_of(value, t.DIALECT))
        report_unknown_type(kind, value, self.diagnostics)
        return []

    def _whole(self, value: Json) -> list[Event]:
        events = self._read_steps(value)
        return events + self._end(value)

    def _read_steps(self, value: Json) -> list[Event]:
        steps = t.objects_in(value, "steps", self.diagnostics)
        return [event for each in steps for event in self._steps.step(each)]

    def _created(self, value: Json) -> list[Event]:
        self._keep(object_in(value, "interaction"))
        return []

    def _updated(self, value: Json) -> list[Event]:
        self._keep(other_fields(value, ("event_type", "event_id", "interaction_id")))
        return []

    def _completed(self, value: Json) -> list[Event]:
        interaction = object_in(value, "interaction")
        events = [] if self._steps.has_steps else self._read_steps(interaction)
        return events + self._end(interaction)

    def _started(self, value: Json) -> list[Event]:
        return self._steps.start(self._index(value), object_in(value, "step"))

    def _delta(self, value: Json) -> list[Event]:
        self._count(object_in(object_in(value, "metadata"), "total_usage"))
        delta = value.get("delta", {})
        if isinstance(delta, dict):
            return self._steps.delta(self._index(value), delta)
        t.report_unreadable(t.DELTA, delta, self.diagnostics)
        return []

    def _stopped(self, value: Json) -> list[Event]:
        self._count(object_in(value, _USAGE))
        return self._steps.stop(self._index(value))

    def _erred(self, value: Json) -> list[Event]:
        return self._fail(payload_of(value, t.DIALECT))

    def _index(self, value: Json) -> int:
        index = value.get("index")
        if type(index) is int and index >= 0:
            return index
        self.diagnostics.repair("index", "no number of a step, taken as 0")
        return 0

    def _keep(self, interaction: Json) -> None:
        """Keep the further fields of the interaction; the last value of each counts."""
        status, model = interaction.get("status"), interaction.get("model")
        if isinstance(status, str):
            self._status = status
        if isinstance(model, str):
            self._machine.report_names(model)
        tier = interaction.get(TIER)
        if isinstance(tier, str):
            self._machine.report_names(service_tier=t.TIERS_OF_GOOGLE.get(tier, tier))
            self._answer[TIER] = tier
        self._count(object_in(interaction, _USAGE))
        others = other_fields(interaction, (*_READ, _USAGE))
        self._answer |= with_whole_characters(others)

    def _count(self, usage: Json) -> None:
        self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _end(self, interaction: Json) -> list[Event]:
        self._keep(interaction)
        status = self._status
        if status == "failed":
            errors = interaction.get("errors") or interaction.get("error")
            return self._fail(
                payload_of({"error": errors[0] if isinstance(errors, list) else errors}, t.DIALECT)
            )
        if status not in t.ENDED and status != "cancelled":
            self.diagnostics.repair("status", f"{status[:64]!r} at the end, taken as completed")
        events = self._steps.close()
        self._report()
        try:
            if status == "cancelled":
                events += self._machine.cancel()
            else:
                events += self._machine.finish(t.ENDED.get(status, "stop"))
        except BridgeError as error:  # a call that never got a name
            return events + self._fail(error)
        self._mark_ended()
        return events

    def _report(self) -> None:
        usage = _usage_of(self._usage)
        if usage is not None:
            self._machine.usage(counted(usage, self.diagnostics))
        answer = dict(self._answer)
        tier = answer.pop(TIER, None)
        others = other_fields(self._usage, [name for name in t.COUNTS if name != _OF_TOOLS])
        answer |= {_USAGE: with_whole_characters(others)} if others else {}
        if t.ENDED.get(self._status) == t.CUT:
            answer["status"] = self._status
        fields: Json = {t.ANSWER: answer} if answer else {}
        fields |= {t.DELTAS: self._steps.carried} if self._steps.carried else {}
        fields |= {} if tier is None else {TIER: tier}
        if fields:
            self._machine.native(t.DIALECT, fields)

    def _fail(self, error: ErrorPayload | BridgeError) -> list[Event]:
        self._mark_ended()
        if self._machine.phase in TERMINAL_PHASES:
            self.diagnostics.ignored("frame", "came after the response had ended")
            return []
        self._report()
        return self._machine.fail(error)


_OF_TOOLS: Final = "total_tool_use_tokens"
_HANDLERS: Final[Mapping[str, Callable[[Inbound, Json], list[Event]]]] = {
    t.CREATED: Inbound._created,
    t.STATUS: Inbound._updated,
    t.COMPLETED: Inbound._completed,
    t.START: Inbound._started,
    t.DELTA: Inbound._delta,
    t.STOP: Inbound._stopped,
    t.ERROR: Inbound._erred,
}


def is_whole(value: Mapping[str, Any]) -> bool:
    """Return True if an object is a whole interaction."""
    is_one = value.get("object") == "interaction" or isinstance(value.get("steps"), list)
    return is_one and isinstance(value.get("status"), str) and "event_type" not in value


def _usage_of(usage: Json) -> Usage | None:
    """Return the counts, or those of them that are whole numbers."""
    values = {name: count_of(usage.get(name), UNBOUNDED) for name in t.COUNTS}
    counts = {name: count for name, count in values.items() if count is not None}
    if not counts:
        return None
    read = counts.get("total_input_tokens", 0) + counts.get(_OF_TOOLS, 0)
    thoughts = counts.get("total_thought_tokens", 0)
    written = counts.get("total_output_tokens", 0) + thoughts
    return Usage.of(
        read,
        written,
        cached_tokens=counts.get("total_cached_tokens", 0),
        reasoning_tokens=thoughts,
        total_tokens=counts.get("total_tokens", read + written),
    )


def _model_in(data: bytes) -> str:
    """Return the name of the model in a payload; "" if it has none or can't be read."""
    try:
        value = decode_frame(data)
    except WireError:
        return ""
    fields = value if isinstance(value, dict) else {}
    name = (object_in(fields, "interaction") or fields).get("model")
    return name if isinstance(name, str) else ""
