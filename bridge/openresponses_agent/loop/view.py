"""A loop as the user sees it, as data: rounds with their thinking, text and calls.

The callback's deltas, the journal's entries and the tools' progress update it, in order. For a loop that has
ended the entries are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct, field

from openresponses_agent.loop.journal import (
    CallEnded,
    CallsBegun,
    LoopBegun,
    LoopEnded,
    LoopEntry,
    RoundMade,
)
from openresponses_agent.prompt.context import ApprovalRequest, Citation, ToolCall, ToolCallRound
from openresponses_agent.tools.errors import ToolCallCancelledError, ToolDeclinedError
from openresponses_bridge.dialects.copilot import ResponseDelta
from openresponses_bridge.protocol.hosted import work_of
from openresponses_bridge.protocol.unknown import UnknownItem

_MOST_PROGRESS = 100  # lines of progress kept for each call


class ToolStatus(StrEnum):
    """The status of a call."""

    CALLING = "calling"  # the model is still writing its arguments
    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    APPROVED = "approved"
    DECLINED = "declined"
    CANCELLED = "cancelled"


_STATUS_OF_FAILURE = {
    ToolDeclinedError.DECLINED: ToolStatus.DECLINED,
    ToolCallCancelledError.CANCELLED: ToolStatus.CANCELLED,
}


class ToolResultElement(Struct, rename="camel", kw_only=True):
    """A call as it is shown."""

    name: str
    call_id: str
    """The model's id."""
    id: str = ""
    """The internal id; "" until the call is complete."""
    status: ToolStatus = ToolStatus.CALLING
    input: Any = None
    """The parsed arguments; their text while they are not JSON."""
    progress: list[str] = field(default_factory=list)
    """The newest lines of the tool's progress reports."""
    result: str | None = None
    """The text of the result."""
    error: str | None = None
    """Why there is no result."""
    notes: list[str] = field(default_factory=list)
    """The changes of the arguments."""
    runner: str | None = None
    """The label of the MCP server of a call that the model's server runs, "" for its other tools; None for
    all other calls."""
    seconds: float | None = None
    """The seconds for which the model's server ran the call; None if its beginning or end was not seen."""


class RoundView(Struct, rename="camel", kw_only=True):
    """A round as it is shown. `thinking` is meant for a section that is collapsed at first."""

    thinking: str = ""
    text: str = ""
    elements: list[ToolResultElement] = field(default_factory=list)
    retries: list[str] = field(default_factory=list)
    citations: list[Citation] = field(default_factory=list)
    max_tool_calls: int | None = None
    """The limit of the response, if the calls that its server ran reached it."""

    @property
    def is_calling(self) -> bool:
        """True while the model is writing a call: "Calling tools…"."""
        return any(element.status is ToolStatus.CALLING for element in self.elements)


class LoopView:
    """All rounds of one question. `end` is the LoopEnd, "" until the loop has ended; `message` is why it
    ended without an answer. `clock` returns seconds, for the duration of what the model's server runs."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._begun: dict[str, float] = {}
        self.query = ""
        self.end = ""
        self.message = ""
        self._rounds: list[RoundView] = []
        self._open: RoundView | None = None
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._elements: dict[str, ToolResultElement] = {}

    @property
    def rounds(self) -> list[RoundView]:
        """The rounds so far, with the partial text of the current one."""
        if self._open is not None:
            self._open.text = "".join(self._text)
            self._open.thinking = "".join(self._thinking).strip()
        return self._rounds

    def element(self, call_id: str) -> ToolResultElement | None:
        """Return the element of a complete call, by its internal id."""
        return self._elements.get(call_id)

    def as_json(self) -> dict[str, Any]:
        """Return `{"query", "rounds", "end", "message"}`."""
        shown = {"query": self.query, "rounds": self.rounds, "end": self.end, "message": self.message}
        plain: dict[str, Any] = msgspec.to_builtins(shown, enc_hook=str)
        return plain

    def delta(self, delta: ResponseDelta) -> None:
        """Update with a delta of the callback."""
        if delta.retry_reason is not None:
            self._again(str(delta.retry_reason))
        self._current()
        if delta.text:
            self._text.append(delta.text)
        if delta.thinking is not None and delta.thinking.text:
            self._thinking.append(delta.thinking.text)
        for begun in delta.begin_tool_calls or ():
            self._calling(begun.name, begun.id)
        for update in delta.copilot_tool_call_stream_updates or ():
            self._calling(update.name, update.id).input = update.arguments
        for call in delta.copilot_tool_calls or ():
            element = self._calling(call.name, call.id)
            element.status, element.input = ToolStatus.PENDING, _parsed(call.arguments)

    def hosted(self, item: UnknownItem, is_done: bool) -> ToolResultElement | None:
        """Update with an item of a tool that the model's server runs (the loop's `hosted_cb`). Returns its
        element; None for a request for approval."""
        element = _element_of(item, is_done)
        if element is None:
            return None
        if is_done:
            begun = self._begun.pop(item.id, None)
            element.seconds = None if begun is None else self._clock() - begun
        else:
            self._begun[item.id] = self._clock()
        elements = self._current().elements
        for index, each in enumerate(elements):
            if each.runner is not None and each.call_id == item.id:
                elements[index] = element
                return element
        elements.append(element)
        return element

    def progress(self, call_id: str, text: str) -> None:
        """Update with a tool's progress report."""
        element = self._elements.get(call_id)
        if element is not None:
            element.progress = [*element.progress[1 - _MOST_PROGRESS :], text]

    def entry(self, entry: LoopEntry) -> None:
        """Update with a recorded entry."""
        if isinstance(entry, LoopBegun):
            self._rounds, self._open, self._elements = [], None, {}
            self.query, self.end, self.message = entry.query, "", ""
        elif isinstance(entry, RoundMade):
            self._round(entry.round)
        elif isinstance(entry, CallsBegun):
            for call_id in entry.ids:
                self._elements[call_id].status = ToolStatus.RUNNING
        elif isinstance(entry, CallEnded):
            self._ended(entry)
        elif isinstance(entry, LoopEnded):
            self.end, self.message, self._open = entry.end, entry.message, None

    def _current(self) -> RoundView:
        if self._open is None:
            self._open = RoundView()
            self._rounds.append(self._open)
            self._text, self._thinking = [], []
        return self._open

    def _again(self, why: str) -> None:
        current = self._current()
        current.retries.append(why)
        current.elements.clear()
        self._text, self._thinking = [], []

    def _calling(self, name: str, call_id: str) -> ToolResultElement:
        elements = self._current().elements
        for element in elements:
            if element.call_id == call_id:
                return element
        elements.append(ToolResultElement(name=name, call_id=call_id))
        return elements[-1]

    def _round(self, tool_round: ToolCallRound) -> None:
        """Replace what the deltas of a round have shown by the recorded round."""
        current = self._current()
        current.text = tool_round.response
        current.thinking = "" if tool_round.thinking is None else tool_round.thinking.thinking
        current.citations, current.max_tool_calls = tool_round.citations, tool_round.max_tool_calls
        seconds = {each.call_id: each.seconds for each in current.elements if each.runner is not None}
        hosted = [
            element for item in map(UnknownItem, tool_round.items) if (element := _element_of(item, True))
        ]
        for element in hosted:
            element.seconds = seconds.get(element.call_id)
        self._begun.clear()
        current.elements = [
            *hosted,
            *(
                _pending(request, request.request_id, request.server_label)
                for request in tool_round.approvals
            ),
            *(_pending(call, call.call_id) for call in tool_round.tool_calls),
        ]
        self._elements.update((element.id, element) for element in current.elements if element.id)
        self._open = None

    def _ended(self, entry: CallEnded) -> None:
        element, text = self._elements[entry.id], entry.result.text
        failed = ToolStatus.FAILED if entry.failure or entry.result.is_error else ToolStatus.COMPLETE
        element.notes = entry.notes
        element.status = _STATUS_OF_FAILURE.get(entry.failure, failed)
        if element.runner is not None and failed is ToolStatus.COMPLETE:
            element.status = ToolStatus.APPROVED  # the server runs it, and shows the call
        elif failed is ToolStatus.COMPLETE:
            element.result = text
        else:
            element.error = text


def _element_of(item: UnknownItem, is_done: bool) -> ToolResultElement | None:
    work = work_of(item)
    if work is None:
        return None
    failed = work.error is not None or work.status in ("failed", "incomplete")
    done = ToolStatus.FAILED if failed else ToolStatus.COMPLETE
    return ToolResultElement(
        name=work.name,
        call_id=item.id,
        status=done if is_done else ToolStatus.RUNNING,
        input=_parsed(work.input) if isinstance(work.input, str) else work.input,
        result=work.result if is_done else None,
        error=work.error,
        runner=work.server_label,
    )


def _pending(call: ToolCall | ApprovalRequest, call_id: str, runner: str | None = None) -> ToolResultElement:
    return ToolResultElement(
        name=call.name,
        call_id=call_id,
        id=call.id,
        status=ToolStatus.PENDING,
        input=_parsed(call.arguments),
        runner=runner,
    )


def _parsed(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
