"""Passes one turn to the machine, for all generations.

Text and reasoning arrive by item id, streamed or whole; what was streamed is not sent again when the item
completes. Only the latest of the items that have ended are remembered; at its end the whole turn is compared
with the response itself. What Codex does by itself is an item from its start to its end, and what it prints
meanwhile are events of that item.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

from openresponses_bridge.calls.aggregator import BoundedDict
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import counted, extension
from openresponses_bridge.dialects.codex import errors
from openresponses_bridge.dialects.codex.types import Notification, count_of, object_of, snake, text_of
from openresponses_bridge.emitter.failures import UNKNOWN
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import MessagePhase
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.state import ResponseStreamPhase

# Codex runs commands and changes files itself. Such a step is an extension item: its type is `codex:` and
# Codex's own name, its fields are Codex's in our spelling. `status` says whether it has ended, as for every
# item; `outcome` says how (completed, failed, declined).

SLUG = "codex:"
MAX_KEPT_OUTPUT = 1_000_000
"""The characters of a running item's output that are kept in case it never ends."""
_OWN = frozenset({"type", "id", "status"})


def kind_of(item_type: str) -> str:
    """Return `codex:command_execution` for `commandExecution`."""
    return extension(SLUG, snake(item_type))


def fields_of(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item's facts in our spelling, without those that are null."""
    return {snake(name): value for name, value in item.items() if name not in _OWN and value is not None}


class HostedItem:
    """One item from its start to its end."""

    __slots__ = ("_decoder", "_kept", "_pieces", "fields", "id", "kind")

    def __init__(self, kind: str, item_id: str, fields: dict[str, Any]) -> None:
        self.kind = kind
        self.id = item_id
        self.fields = fields
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._kept = 0

    def output(self, delta: str) -> str:
        """Add the next piece of the output."""
        if self._kept < MAX_KEPT_OUTPUT:
            self._kept += len(delta)
            self._pieces.append(delta)
        return delta

    def encoded_output(self, chunk: str) -> str:
        """Add the next piece in base64; a character that is split between two pieces is held until it is
        whole."""
        try:
            return self.output(self._decoder.decode(base64.b64decode(chunk, validate=True)))
        except (binascii.Error, ValueError):
            return ""

    def begun(self) -> UnknownItem:
        """Return the item at its start."""
        return UnknownItem({"type": self.kind, "id": self.id, "status": "in_progress", **self.fields})

    def done(self, outcome: str, fields: dict[str, Any], over: bool = True) -> UnknownItem:
        """Return the finished item; its own output replaces the pieces."""
        merged = {**self.fields, **fields}
        if self._pieces:
            merged.setdefault("aggregated_output", "".join(self._pieces))
        status = "completed" if over else "incomplete"
        return UnknownItem({"type": self.kind, "id": self.id, "status": status, "outcome": outcome, **merged})


# Token counts of one turn, from Codex's counts of a whole thread. A turn may call the model several times.
# Each report has the thread's `total` and the share of the `last` call. Reports are repeated, and `last` is
# sometimes zero or an estimate of the context. So the increase of the total counts, and for the first report
# `last`.

_NAMES = (
    ("inputTokens", "input_tokens"),
    ("outputTokens", "output_tokens"),
    ("cachedInputTokens", "cached_input_tokens"),
    ("reasoningOutputTokens", "reasoning_output_tokens"),
)
_SPELLINGS = frozenset(name for spellings in _NAMES for name in spellings)
_Counts = tuple[int, ...]


class TurnUsage:
    """Sums up a thread's token reports for one of its turns."""

    __slots__ = ("_before", "_diagnostics", "_spent")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._before: _Counts | None = None
        self._spent: _Counts = (0,) * len(_NAMES)

    def skip(self, report: dict[str, Any]) -> None:
        """Read a report about another turn of the thread, whose tokens are not counted."""
        self._before = self._counts(report, "total")

    def add(self, report: dict[str, Any]) -> Usage:
        """Add a report about this turn, `{total, last}` in either spelling. Returns the usage of the turn so
        far."""
        total, last = self._counts(report, "total"), self._counts(report, "last")
        if self._before is None:
            grown = last if any(last) else total
        else:
            grown = tuple(max(now - then, 0) for now, then in zip(total, self._before, strict=True))
        self._before = total
        self._spent = tuple(a + b for a, b in zip(self._spent, grown, strict=True))
        incoming, outgoing, cached, reasoning = self._spent
        return Usage.of(incoming, outgoing, cached_tokens=cached, reasoning_tokens=reasoning)

    def _counts(self, report: dict[str, Any], which: str) -> _Counts:
        counts = object_of(report.get(which) or report.get(f"{which}_token_usage"))
        for name in counts.keys() & _SPELLINGS:
            if counts[name] is not None and count_of(counts[name]) != counts[name]:
                self._diagnostics.repair(f"usage.{name}", "can't be a count, left out")
        return tuple(count_of(counts.get(camel)) or count_of(counts.get(other)) for camel, other in _NAMES)


_LIVE = ResponseStreamPhase.IN_PROGRESS
IN_PROGRESS = "in_progress"
_PHASES = get_args(MessagePhase)


class TurnEmitter:
    """Calls the machine for one turn. `open_id` is the item whose text is being streamed."""

    __slots__ = ("_phases", "_running", "_sent", "_streamed", "_usage", "diagnostics", "machine", "open_id")

    def __init__(self, machine: ResponseStream) -> None:
        self.machine = machine
        self.diagnostics = machine.diagnostics
        self.open_id: str | None = None
        self._phases: BoundedDict[MessagePhase] = BoundedDict()
        self._streamed: BoundedDict[set[str]] = BoundedDict()
        self._sent: BoundedDict[None] = BoundedDict()
        self._running: dict[str, HostedItem] = {}
        self._usage = TurnUsage(machine.diagnostics)

    @property
    def ended(self) -> bool:
        return self.machine.phase is not _LIVE

    def _stream(self, item_id: str, kind: str, call: Callable[[str], list[Event]], delta: str) -> list[Event]:
        if not delta:
            return []
        events = self._switch(item_id)
        kinds = self._streamed.get(item_id)
        if kinds is None:
            kinds = self._streamed[item_id] = set()
        kinds.add(kind)
        return events + call(delta)

    def _was_streamed(self, item_id: str, kind: str) -> bool:
        return kind in self._streamed.get(item_id, ())

    def interrupted(self) -> None:
        """Record that a tool call has closed the open item: further text for it begins another item."""
        self.open_id = None

    def _switch(self, item_id: str) -> list[Event]:
        if self.open_id == item_id:
            return []
        self.open_id = item_id
        closed = self.machine.block_done()
        return closed + self.machine.expect_item(item_id, self._phases.get(item_id))

    def message_begin(self, item_id: str, phase: Any) -> list[Event]:
        """Begin a message. It is announced with its first text."""
        if phase in _PHASES:
            self._phases[item_id] = phase
        return []

    def message(self, item_id: str, delta: str) -> list[Event]:
        """Add the next piece of a message."""
        return self._stream(item_id, "text", self.machine.text, delta)

    def refusal(self, item_id: str, delta: str) -> list[Event]:
        """Add the next piece of a refusal."""
        return self._stream(item_id, "refusal", self.machine.refusal, delta)

    def reasoning(self, item_id: str, delta: str) -> list[Event]:
        """Add the next piece of raw reasoning."""
        return self._stream(item_id, "raw", self.machine.reasoning, delta)

    def summary(self, item_id: str, delta: str, part: int) -> list[Event]:
        """Add the next piece of a summary part."""
        return self._stream(
            item_id, "summary", lambda piece: self.machine.reasoning_summary(piece, part), delta
        )

    def message_done(self, item_id: str, text: str) -> list[Event]:
        """End a message. If it was sent before, it is not sent again."""
        if item_id in self._sent:
            return []
        events = [] if self._was_streamed(item_id, "text") else self.message(item_id, text)
        return events + self._close(item_id)

    def reasoning_done(
        self, item_id: str, summary: Sequence[str], raw: Sequence[str], encrypted: str = ""
    ) -> list[Event]:
        """End a reasoning item."""
        events: list[Event] = []
        if not self._was_streamed(item_id, "summary"):
            for part, text in enumerate(summary):
                events += self.summary(item_id, text, part)
        if not self._was_streamed(item_id, "raw"):
            events += self.reasoning(item_id, "".join(raw))
        if encrypted:
            events += self._switch(item_id) + self.machine.reasoning_encrypted(encrypted)
        return events + self._close(item_id)

    def _close(self, item_id: str) -> list[Event]:
        self._streamed.pop(item_id, None)
        self._phases.pop(item_id, None)
        if item_id:
            self._sent[item_id] = None
        if self.open_id != item_id:
            return []
        self.open_id = None
        return self.machine.block_done()

    def hosted_begin(self, kind: str, item_id: str, fields: dict[str, Any]) -> list[Event]:
        """Announce the item of a step that Codex starts itself; it is sent whole at its end."""
        item = self._running[item_id] = HostedItem(kind, item_id, fields)
        self.open_id = None
        return self.machine.item_added(item.begun())

    def hosted_output(self, item_id: str, delta: str, encoded: bool = False) -> list[Event]:
        """Send output of such a step, as `<kind>.output_delta`."""
        item = self._running.get(item_id)
        if item is None:
            self.diagnostics.ignored("output_delta", "of an item that is not running")
            return []
        shown = item.encoded_output(delta) if encoded else item.output(delta)
        name = f"{item.kind}.output_delta"
        return self.machine.item_event(item_id, name, {"delta": shown}) if shown else []

    def hosted_done(self, kind: str, item_id: str, outcome: str, fields: dict[str, Any]) -> list[Event]:
        """End such a step: send its item."""
        item = self._running.pop(item_id, None) or HostedItem(kind, item_id, {})
        self.open_id = None
        return self.machine.item(item.done(outcome, fields))

    def _finish_running(self, over: bool) -> list[Event]:
        """Send the steps that still run when the turn ends, with their output. A command that continues in
        the background was not cut off."""
        events: list[Event] = []
        for item in self._running.values():
            events += self.machine.item(item.done(IN_PROGRESS, {}, over))
        self._running.clear()
        return events

    def usage(self, report: dict[str, Any]) -> list[Event]:
        """Read a report of the turn's tokens."""
        return self.machine.usage(counted(self._usage.add(report), self.diagnostics))

    def skip_usage(self, report: dict[str, Any]) -> None:
        """Read a report about another turn."""
        self._usage.skip(report)

    def unsent_items(self, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the turn's items that the response does not have completely. The cost is that of the size of
        the response."""
        items = list(items)
        whole = [item for item in self.machine.snapshot.output if _is_whole(item)] if items else []
        ids = {getattr(item, name, None) for item in whole for name in ("id", "call_id")} - {None, ""}
        return [each for each in items if ids.isdisjoint({_id(each, "id"), _id(each, "call_id")})]

    def finish(self, reason: str = "stop") -> list[Event]:
        return self._finish_running(over=True) + self.machine.finish(reason)

    def incomplete(self, reason: str) -> list[Event]:
        """End the response as incomplete; `reason` is empty when it is not known."""
        return self._finish_running(over=True) + self.machine.finish(reason or UNKNOWN, incomplete=True)

    def cancel(self) -> list[Event]:
        # sending an item would close an open text as if it were whole
        settled = self._finish_running(over=False) if self.open_id is None else []
        return settled + self.machine.cancel()

    def fail(self, error: dict[str, Any]) -> list[Event]:
        """End the response after an error that Codex reports; an incomplete response ends as incomplete."""
        reason = errors.incomplete_reason(error)
        return self.incomplete(reason) if reason else self.fail_with(errors.payload_of(error))

    def fail_with(self, error: ErrorPayload) -> list[Event]:
        return self.machine.fail(error)


def _is_whole(item: object) -> bool:
    return getattr(item, "status", None) != IN_PROGRESS


def _id(item: dict[str, Any], name: str) -> str:
    return text_of(item.get(name))


# A question of Codex to the client is an extension event; the client's answer has its `request_id`.

APPROVAL_REQUEST = SLUG + "approval_request"
_BOOKKEEPING = frozenset({"type", "kind", "thread_id", "turn_id", "conversation_id"})
# the names in older requests of what they ask for
_KINDS = {"exec_command": "command_execution", "exec": "command_execution", "apply_patch": "file_change"}


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """Return a notification's facts in our spelling, without those that only say where it belongs."""
    fields = {snake(name): value for name, value in body.items() if value is not None}
    if "unified_diff" in fields:  # the older spelling
        fields["diff"] = fields.pop("unified_diff")
    return {name: value for name, value in fields.items() if name not in _BOOKKEEPING}


def requested_approval(turn: TurnEmitter, notification: Notification) -> list[Event]:
    """Handle a request: `item/<kind>/requestApproval`, or the older `<kind>Approval`."""
    *_, before, last = ["", *snake(notification.name).split("/")]
    kind = before or last.removesuffix("_approval")
    return approval(turn, kind, notification.request_id, notification.body)


def approval(turn: TurnEmitter, kind: str, request_id: Any, body: dict[str, Any]) -> list[Event]:
    """Send `codex:approval_request {request_id, kind, item_id, …}`."""
    fields = plain(body)
    item_id = fields.pop("call_id", None)
    request = {"request_id": request_id, "kind": _KINDS.get(kind, kind), "item_id": item_id, **fields}
    return turn.machine.extension_event(APPROVAL_REQUEST, request)
