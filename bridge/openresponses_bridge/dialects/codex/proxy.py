"""A proxy's `response.*` notifications, with any of the names that proxies use around an item.

An item is under `item`, `output_item` or `outputItem`; the id of a call is `call_id`, `item_id` or `id`.

The turn ends with `response.completed` and its kin. Proxies leave these out where a tool call ends the turn:
once every call that was opened has its `output_item.done`, and nothing else is open, the turn is complete. A
message or reasoning that is still open then does not count: proxies leave out its end as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from openresponses_bridge.calls.aggregator import AggregatedCall, BoundedDict, ToolCallAggregator
from openresponses_bridge.calls.notifications import CALL_TYPES, item_of
from openresponses_bridge.dialects.base import counts_of
from openresponses_bridge.dialects.codex.turn import TurnEmitter
from openresponses_bridge.dialects.codex.types import (
    Notification,
    count_of,
    list_of,
    object_of,
    text_of,
)
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event, OutputItemAdded


class ProxyCalls:
    """Sends each call once, however often it is named. Arguments beyond the aggregator's limit raise
    ToolError. Only open calls are kept: `open` counts them, `ended` those that have ended."""

    def __init__(self, machine: ResponseStream) -> None:
        self._machine = machine
        self._calls = ToolCallAggregator()
        self.ended = 0

    @property
    def open(self) -> int:
        return len(self._calls)

    def read(self, name: str, body: dict[str, Any]) -> list[Event]:
        """Read a notification about a call. What was not streamed of its arguments is sent once at the end
        (field case 7)."""
        change = self._calls.ingest_delta(body if body.get("type") == name else {**body, "type": name})
        if change is None:
            return []
        if change.differs:
            self._machine.diagnostics.loss(
                "tool_call.arguments", "differ from the streamed ones, which are kept"
            )
        events = self._announce(change.call, change.arguments)
        for call in self._calls.drain_completed_calls():
            self.ended += 1
            events += self._machine.tool_call_done(call.index, cut=not call.name)
        return events

    def _announce(self, call: AggregatedCall, arguments: str) -> list[Event]:
        return self._machine.tool_call(
            call.index,
            call.call_id or call.item_id,
            call.name,
            arguments,
            "custom" if call.custom else "function",
            call.namespace or None,
        )


_TEXTS = ("message", "reasoning")
_FINAL_STATUS = {"failed": "response.failed", "incomplete": "response.incomplete"}


class ProxyReader:
    """Reads a proxy's generation into the turn."""

    def __init__(self, turn: TurnEmitter) -> None:
        self._turn = turn
        self._calls = ProxyCalls(turn.machine)
        self._texts_open: BoundedDict[None] = BoundedDict()  # ids of announced messages and reasoning
        self._others_open: BoundedDict[None] = BoundedDict()
        self._text_before: str | None = None  # the item whose text was open when the last call ended

    @property
    def called(self) -> bool:
        """True if there is a tool call, every one that was opened is whole, and nothing else is open."""
        open_now = self._calls.open or self._others_open or self._texts_open
        return self._calls.ended > 0 and not open_now and self._turn.open_id in (None, self._text_before)

    def read(self, said: Notification) -> list[Event]:
        """Read one notification. One that can't be read ends the response as failed."""
        try:
            return self.handlers[said.name](self, said.body)
        except BridgeError as error:
            return self._turn.machine.fail(error)

    def _text(self, body: dict[str, Any]) -> list[Event]:
        return self._turn.message(_item_id(body), text_of(body.get("delta")))

    def _refusal(self, body: dict[str, Any]) -> list[Event]:
        return self._turn.refusal(_item_id(body), text_of(body.get("delta")))

    def _raw(self, body: dict[str, Any]) -> list[Event]:
        return self._turn.reasoning(_item_id(body), text_of(body.get("delta")))

    def _summary(self, body: dict[str, Any]) -> list[Event]:
        part = count_of(body.get("summary_index"))
        return self._turn.summary(_item_id(body), text_of(body.get("delta")), part)

    def _annotation(self, body: dict[str, Any]) -> list[Event]:
        return self._turn.machine.annotation(object_of(body.get("annotation")))

    def _call(self, body: dict[str, Any], name: str) -> list[Event]:
        ended = self._calls.ended
        events = self._calls.read(name, body)
        if self._calls.ended > ended and not self._calls.open:
            self._texts_open.clear()
            self._text_before = self._turn.open_id
        if any(type(event) is OutputItemAdded for event in events):
            self._turn.interrupted()
        return events

    def _added(self, body: dict[str, Any]) -> list[Event]:
        item = item_of(body)
        kind, item_id = text_of(item.get("type")), text_of(item.get("id"))
        if kind in CALL_TYPES:
            return self._call(body, "response.output_item.added")
        self._open_ones(kind)[item_id] = None
        if kind == "message":
            return self._turn.message_begin(item_id, item.get("phase"))
        return []

    def _open_ones(self, kind: str) -> BoundedDict[None]:
        return self._texts_open if kind in _TEXTS else self._others_open

    def _done(self, body: dict[str, Any]) -> list[Event]:
        item = item_of(body)
        kind, item_id = text_of(item.get("type")), text_of(item.get("id"))
        if kind in CALL_TYPES:
            return self._call(body, "response.output_item.done")
        self._open_ones(kind).pop(item_id, None)
        if kind == "message":
            return self._turn.message_done(item_id, _joined(item.get("content")))
        if kind == "reasoning":
            return self._reasoning_done(item_id, item)
        return self._turn.machine.item(item) if kind else []

    def _reasoning_done(self, item_id: str, item: dict[str, Any]) -> list[Event]:
        summary = [_text(part) for part in _parts(item.get("summary"))]
        raw = _joined(item.get("content"))
        encrypted = text_of(item.get("encrypted_content"))
        return self._turn.reasoning_done(item_id, summary, [raw], encrypted)

    def _end(self, body: dict[str, Any]) -> list[Event]:
        response = object_of(body.get("response"))
        other = _FINAL_STATUS.get(text_of(response.get("status")))
        if other is not None:
            return self.handlers[other](self, body)
        events: list[Event] = []
        output = [object_of(item) for item in list_of(response.get("output"))]
        # what no event has sent yet
        for item in self._turn.unsent_items(output):
            if item.get("type") in ("message", *CALL_TYPES):
                events += self._done({"item": item})
        return events + self._facts(response) + self._turn.finish()

    def _incomplete(self, body: dict[str, Any]) -> list[Event]:
        response = object_of(body.get("response"))
        reason = text_of(object_of(response.get("incomplete_details")).get("reason"))
        return self._facts(response) + self._turn.incomplete(reason)

    def _fail(self, body: dict[str, Any]) -> list[Event]:
        response = object_of(body.get("response"))
        error = object_of(response.get("error")) or object_of(body.get("error")) or {**body, "type": ""}
        return self._facts(response) + self._turn.fail(error)

    def _facts(self, response: dict[str, Any]) -> list[Event]:
        usage = counts_of(object_of(response.get("usage")), self._turn.diagnostics)
        return [] if usage is None else self._turn.machine.usage(usage)

    handlers: ClassVar[Mapping[str, Callable[[ProxyReader, dict[str, Any]], list[Event]]]] = {
        "response.output_text.delta": _text,
        "response.refusal.delta": _refusal,
        "response.reasoning.delta": _raw,
        "response.reasoning_text.delta": _raw,
        "response.reasoning_summary.delta": _summary,
        "response.reasoning_summary_text.delta": _summary,
        "response.output_item.added": _added,
        "response.output_item.done": _done,
        "response.output_text.annotation.added": _annotation,
        "response.completed": _end,
        "response.done": _end,
        "response.incomplete": _incomplete,
        "response.failed": _fail,
        "response.error": _fail,
    } | {
        name: partial(call, name=name)
        for call, kind in ((_call, "function_call_arguments"), (_call, "custom_tool_call_input"))
        for name in (f"response.{kind}.delta", f"response.{kind}.done")
    }


def _item_id(body: dict[str, Any]) -> str:
    return text_of(body.get("item_id")) or text_of(body.get("id"))


def _joined(content: Any) -> str:
    return "".join(map(_text, _parts(content)))


def _parts(content: Any) -> list[Any]:
    """Return the parts of an item, which some proxies send as one part or as text."""
    return [content] if isinstance(content, str | dict) else list_of(content)


def _text(part: Any) -> str:
    return part if isinstance(part, str) else text_of(object_of(part).get("text"))
