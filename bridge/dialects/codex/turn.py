"""One turn on its way into the machine: the part that all generations share.

Text and reasoning arrive by item id, streamed or whole; what was streamed is not sent again when the
item completes. What Codex does by itself is an item from its start to its end, and what it prints meanwhile
are events of that item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from bridge.dialects.base import counted
from bridge.dialects.codex import errors
from bridge.dialects.codex.hosted import HostedItem
from bridge.dialects.codex.usage import TurnUsage
from bridge.emitter.finish_reasons import UNKNOWN
from bridge.emitter.stream import ResponseStream
from bridge.protocol.errors import ErrorPayload
from bridge.protocol.events import Event
from bridge.protocol.items import MessagePhase
from bridge.state import ResponseStreamPhase

_LIVE = ResponseStreamPhase.IN_PROGRESS
IN_PROGRESS = "in_progress"
_PHASES = get_args(MessagePhase)


class Turn:
    """Calls the machine. `open_id` is the item whose text is being streamed."""

    __slots__ = ("_phases", "_running", "_streamed", "_told", "_usage", "diagnostics", "machine", "open_id")

    def __init__(self, machine: ResponseStream) -> None:
        self.machine = machine
        self.diagnostics = machine.diagnostics
        self.open_id: str | None = None
        self._phases: dict[str, MessagePhase] = {}
        self._streamed: set[tuple[str, str]] = set()
        self._told: set[str] = set()
        self._running: dict[str, HostedItem] = {}
        self._usage = TurnUsage(machine.diagnostics)

    @property
    def over(self) -> bool:
        return self.machine.phase is not _LIVE

    # ── text and reasoning ─────────────────────────────────────────────────────────────────────────
    def _stream(self, item_id: str, kind: str, call: Callable[[str], list[Event]], delta: str) -> list[Event]:
        if not delta:
            return []
        events = self._switch(item_id)
        self._streamed.add((item_id, kind))
        return events + call(delta)

    def _switch(self, item_id: str) -> list[Event]:
        if self.open_id == item_id:
            return []
        self.open_id = item_id
        closed = self.machine.block_done()
        return closed + self.machine.expect_item(item_id, self._phases.get(item_id))

    def message_begin(self, item_id: str, phase: Any) -> list[Event]:
        """A message starts. It shows with its first text."""
        if phase in _PHASES:
            self._phases[item_id] = phase
        return []

    def message(self, item_id: str, delta: str) -> list[Event]:
        """The next piece of a message."""
        return self._stream(item_id, "text", self.machine.text, delta)

    def reasoning(self, item_id: str, delta: str) -> list[Event]:
        """The next piece of raw reasoning."""
        return self._stream(item_id, "raw", self.machine.reasoning, delta)

    def summary(self, item_id: str, delta: str, part: int) -> list[Event]:
        """The next piece of a summary part."""
        return self._stream(
            item_id, "summary", lambda piece: self.machine.reasoning_summary(piece, part), delta
        )

    def message_done(self, item_id: str, text: str) -> list[Event]:
        """A message is whole. One that was sent before is not sent again."""
        if item_id in self._told:
            return []
        events = [] if (item_id, "text") in self._streamed else self.message(item_id, text)
        return events + self._close(item_id)

    def reasoning_done(
        self, item_id: str, summary: Sequence[str], raw: Sequence[str], encrypted: str = ""
    ) -> list[Event]:
        """A reasoning item is whole."""
        events: list[Event] = []
        if (item_id, "summary") not in self._streamed:
            for part, text in enumerate(summary):
                events += self.summary(item_id, text, part)
        if (item_id, "raw") not in self._streamed:
            events += self.reasoning(item_id, "".join(raw))
        if encrypted:
            events += self._switch(item_id) + self.machine.reasoning_encrypted(encrypted)
        return events + self._close(item_id)

    def _close(self, item_id: str) -> list[Event]:
        self._streamed -= {(item_id, kind) for kind in ("text", "raw", "summary")}
        if item_id:
            self._told.add(item_id)
        if self.open_id != item_id:
            return []
        self.open_id = None
        return self.machine.block_done()

    # ── what Codex does by itself ──────────────────────────────────────────────────────────────────
    def hosted_begin(self, kind: str, item_id: str, fields: dict[str, Any]) -> list[Event]:
        """Something starts: an item that is sent whole later."""
        item = self._running[item_id] = HostedItem(kind, item_id, fields)
        self.open_id = None
        return self.machine.item_added(item.begun())

    def hosted_output(self, item_id: str, delta: str, encoded: bool = False) -> list[Event]:
        """What it prints: `<kind>.output_delta`."""
        item = self._running.get(item_id)
        if item is None:
            self.diagnostics.ignored("output_delta", "of an item that is not running")
            return []
        shown = item.encoded_output(delta) if encoded else item.output(delta)
        name = f"{item.kind}.output_delta"
        return self.machine.item_event(item_id, name, {"delta": shown}) if shown else []

    def hosted_done(self, kind: str, item_id: str, outcome: str, fields: dict[str, Any]) -> list[Event]:
        """It is over: the item."""
        item = self._running.pop(item_id, None) or HostedItem(kind, item_id, {})
        self.open_id = None
        return self.machine.item(item.done(outcome, fields))

    def _settle(self, over: bool) -> list[Event]:
        """What still runs when the turn ends, with what it printed. A command that was left in the
        background is not a cut."""
        events: list[Event] = []
        for item in self._running.values():
            events += self.machine.item(item.done(IN_PROGRESS, {}, over))
        self._running.clear()
        return events

    # ── facts and the end ──────────────────────────────────────────────────────────────────────────
    def usage(self, report: dict[str, Any]) -> list[Event]:
        """A report of tokens spent."""
        return self.machine.usage(counted(self._usage.add(report), self.diagnostics))

    def usage_elsewhere(self, report: dict[str, Any]) -> None:
        """A report about another turn."""
        self._usage.elsewhere(report)

    def finish(self) -> list[Event]:
        return self._settle(over=True) + self.machine.finish("stop")

    def incomplete(self, reason: str) -> list[Event]:
        """The response ended before it was whole; `reason` is empty when nobody says why."""
        return self._settle(over=True) + self.machine.finish(reason or UNKNOWN, incomplete=True)

    def cancel(self) -> list[Event]:
        # sending an item would close a text that is still open as if it were whole
        settled = self._settle(over=False) if self.open_id is None else []
        return settled + self.machine.cancel()

    def fail(self, error: dict[str, Any]) -> list[Event]:
        """Codex reports an error: an incomplete response ends as what it is."""
        reason = errors.incomplete_reason(error)
        return self.incomplete(reason) if reason else self.break_off(errors.payload_of(error))

    def break_off(self, error: ErrorPayload) -> list[Event]:
        return self.machine.fail(error)
