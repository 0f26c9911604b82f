"""One turn on its way into the machine: the part that all generations share.

Text and reasoning arrive by item id, streamed or whole; what was streamed is not sent again when the
item completes. Of items that are over only the last are remembered; what the whole turn is compared with at
its end is the response itself. What Codex does by itself is an item from its start to its end, and what it
prints meanwhile are events of that item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

from openresponses_bridge.calls.recent import Recent
from openresponses_bridge.dialects.base import counted
from openresponses_bridge.dialects.codex import errors
from openresponses_bridge.dialects.codex.hosted import HostedItem
from openresponses_bridge.dialects.codex.types import text_of
from openresponses_bridge.dialects.codex.usage import TurnUsage
from openresponses_bridge.emitter.finish_reasons import UNKNOWN
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.errors import ErrorPayload
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import MessagePhase
from openresponses_bridge.state import ResponseStreamPhase

_LIVE = ResponseStreamPhase.IN_PROGRESS
IN_PROGRESS = "in_progress"
_PHASES = get_args(MessagePhase)


class Turn:
    """Calls the machine. `open_id` is the item whose text is being streamed."""

    __slots__ = ("_phases", "_running", "_sent", "_streamed", "_usage", "diagnostics", "machine", "open_id")

    def __init__(self, machine: ResponseStream) -> None:
        self.machine = machine
        self.diagnostics = machine.diagnostics
        self.open_id: str | None = None
        self._phases: Recent[MessagePhase] = Recent()
        self._streamed: Recent[set[str]] = Recent()
        self._sent: Recent[None] = Recent()
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
        kinds = self._streamed.get(item_id)
        if kinds is None:
            kinds = self._streamed[item_id] = set()
        kinds.add(kind)
        return events + call(delta)

    def _was_streamed(self, item_id: str, kind: str) -> bool:
        return kind in self._streamed.get(item_id, ())

    def interrupted(self) -> None:
        """A tool call has closed the item that was open: text that still comes of it begins another."""
        self.open_id = None

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

    def refusal(self, item_id: str, delta: str) -> list[Event]:
        """The next piece of a refusal."""
        return self._stream(item_id, "refusal", self.machine.refusal, delta)

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
        if item_id in self._sent:
            return []
        events = [] if self._was_streamed(item_id, "text") else self.message(item_id, text)
        return events + self._close(item_id)

    def reasoning_done(
        self, item_id: str, summary: Sequence[str], raw: Sequence[str], encrypted: str = ""
    ) -> list[Event]:
        """A reasoning item is whole."""
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

    def not_sent(self, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of the turn's items that the response does not have whole. Costs the response's size."""
        items = list(items)
        whole = [item for item in self.machine.snapshot.output if _is_whole(item)] if items else []
        ids = {getattr(item, name, None) for item in whole for name in ("id", "call_id")} - {None, ""}
        return [each for each in items if ids.isdisjoint({_id(each, "id"), _id(each, "call_id")})]

    def finish(self, reason: str = "stop") -> list[Event]:
        return self._settle(over=True) + self.machine.finish(reason)

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


def _is_whole(item: object) -> bool:
    return getattr(item, "status", None) != IN_PROGRESS


def _id(item: dict[str, Any], name: str) -> str:
    return text_of(item.get(name))
