"""The app-server's notifications: `turn/*`, `item/*`, `thread/*` and its requests to the client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from openresponses_bridge.dialects.codex.turn import TurnEmitter, fields_of, kind_of
from openresponses_bridge.dialects.codex.types import (
    Notification,
    count_of,
    list_of,
    object_of,
    snake,
    text_of,
)
from openresponses_bridge.protocol.events import Event

_SILENT_ITEMS = frozenset({"userMessage", "hookPrompt"})


class AppServer:
    """Reads the app-server's generation into the turn."""

    def __init__(self, turn: TurnEmitter) -> None:
        self._turn = turn

    def read(self, said: Notification) -> list[Event]:
        """Read one notification that has a handler."""
        return self.handlers[said.name](self, said.body)

    def _message(self, body: dict[str, Any]) -> list[Event]:
        return self._turn.message(text_of(body.get("itemId")), text_of(body.get("delta")))

    def _reasoning(self, body: dict[str, Any]) -> list[Event]:
        return self._turn.reasoning(text_of(body.get("itemId")), text_of(body.get("delta")))

    def _summary(self, body: dict[str, Any]) -> list[Event]:
        part = count_of(body.get("summaryIndex"))
        return self._turn.summary(text_of(body.get("itemId")), text_of(body.get("delta")), part)

    def _output(self, body: dict[str, Any]) -> list[Event]:
        return self._turn.hosted_output(text_of(body.get("itemId")), text_of(body.get("delta")))

    def _started(self, body: dict[str, Any]) -> list[Event]:
        item = object_of(body.get("item"))
        item_type, item_id = text_of(item.get("type")), text_of(item.get("id"))
        if not item_type or item_type in _SILENT_ITEMS:
            return []
        handler = _STARTED.get(item_type)
        if handler is not None:
            return handler(self, item_id, item)
        return self._turn.hosted_begin(kind_of(item_type), item_id, fields_of(item))

    def _completed(self, body: dict[str, Any]) -> list[Event]:
        item = object_of(body.get("item"))
        item_type, item_id = text_of(item.get("type")), text_of(item.get("id"))
        if not item_type or item_type in _SILENT_ITEMS:
            return []
        handler = _COMPLETED.get(item_type)
        if handler is not None:
            return handler(self, item_id, item)
        outcome = snake(text_of(item.get("status"))) or "completed"
        return self._turn.hosted_done(kind_of(item_type), item_id, outcome, fields_of(item))

    def _message_started(self, item_id: str, item: dict[str, Any]) -> list[Event]:
        return self._turn.message_begin(item_id, item.get("phase"))

    def _message_done(self, item_id: str, item: dict[str, Any]) -> list[Event]:
        return self._turn.message_done(item_id, text_of(item.get("text")))

    def _reasoning_done(self, item_id: str, item: dict[str, Any]) -> list[Event]:
        summary = [text_of(text) for text in list_of(item.get("summary"))]
        raw = [text_of(text) for text in list_of(item.get("content"))]
        return self._turn.reasoning_done(item_id, summary, raw)

    def _usage(self, body: dict[str, Any]) -> list[Event]:
        return self._turn.usage(object_of(body.get("tokenUsage")))

    def _error(self, body: dict[str, Any]) -> list[Event]:
        if body.get("willRetry"):
            self._turn.diagnostics.warning("error", "the upstream failed and tries again")
            return []
        return self._turn.fail(object_of(body.get("error")))

    def _end(self, body: dict[str, Any]) -> list[Event]:
        turn = object_of(body.get("turn"))
        status = turn.get("status")
        if status == "inProgress":
            return []
        if status == "interrupted":
            return self._turn.cancel()
        if status == "failed":
            return self._turn.fail(object_of(turn.get("error")))
        events: list[Event] = []
        for item in self._turn.unsent_items(map(object_of, list_of(turn.get("items")))):
            if item.get("type") == "agentMessage":
                events += self._message_done(text_of(item.get("id")), item)
        return events + self._turn.finish()

    handlers: ClassVar[Mapping[str, Callable[[AppServer, dict[str, Any]], list[Event]]]] = {
        "item/agentMessage/delta": _message,
        "item/reasoning/textDelta": _reasoning,
        "item/reasoning/summaryTextDelta": _summary,
        "item/commandExecution/outputDelta": _output,
        "item/fileChange/outputDelta": _output,
        "item/started": _started,
        "item/completed": _completed,
        "thread/tokenUsage/updated": _usage,
        "turn/completed": _end,
        "error": _error,
    }


_STARTED: Final[dict[str, Callable[[AppServer, str, dict[str, Any]], list[Event]]]] = {
    "agentMessage": AppServer._message_started,
    "reasoning": lambda _reader, _item_id, _item: [],
}
_COMPLETED: Final[dict[str, Callable[[AppServer, str, dict[str, Any]], list[Event]]]] = {
    "agentMessage": AppServer._message_done,
    "reasoning": AppServer._reasoning_done,
}
