"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from openresponses_bridge.dialects.base import (
    AnswerFormat,
    AnswerWay,
    CaptureFormat,
    Dialect,
    Place,
    UpstreamSide,
    type_of,
)
from openresponses_bridge.dialects.codex.inbound import Inbound
from openresponses_bridge.dialects.codex.request import FIELDS, CodexOptions, to_upstream
from openresponses_bridge.dialects.codex.routes import ROUTES, opens_turn
from openresponses_bridge.dialects.codex.turn import APPROVAL_REQUEST, plain
from openresponses_bridge.dialects.codex.types import Generation, list_of, notification_of, object_of, snake
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame, decode_json, encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import JsonSchemaFormatParam
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.state import ResponseStreamPhase

# A turn that waits for an approval: its response ends, and the next one continues the turn. The program that
# has Codex's streams sends the notification `bridge/turnPaused` instead of the request that waits. The
# response then has an event and an item `codex:approval_request` for each question, with the id that the
# client's answer names.

TURN_PAUSED: Final = "bridge/turnPaused"
_MARK: Final = f'"{TURN_PAUSED}"'.encode()
_OWN: Final = frozenset({"type", "id", "status"})
_ENDED: Final = encode({"method": "turn/completed", "params": {"turn": {"status": "completed"}}})


def turn_paused(questions: Iterable[tuple[str, str, dict[str, Any]]]) -> bytes:
    """Return the notification. Each question has the id by which it is answered, what it asks for, and
    Codex's text about it."""
    items = [
        {**plain(params), "type": APPROVAL_REQUEST, "id": approval_id, "status": "completed", "kind": kind}
        for approval_id, kind, params in questions
    ]
    return encode({"method": TURN_PAUSED, "params": {"items": items}})


class UpstreamInbound(Inbound):
    """One request's part of a turn."""

    def __init__(self, machine: ResponseStream) -> None:
        super().__init__(machine)
        self._stream = machine

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one JSON line as `Inbound.feed` does."""
        if _MARK not in data[: len(_MARK) + 16]:
            return super().feed(data, event)
        return self._pause(data)

    def _pause(self, data: bytes) -> list[Event]:
        try:
            items = list_of(object_of(decode_frame(data).get("params")).get("items"))
        except (WireError, AttributeError):
            return super().feed(data)
        events = self._stream.start() if self._stream.phase is ResponseStreamPhase.IDLE else []
        if self._stream.phase is not ResponseStreamPhase.IN_PROGRESS:
            return events
        for item in items:
            request = {"request_id": item["id"], **{name: item[name] for name in item if name not in _OWN}}
            events += self._stream.extension_event(APPROVAL_REQUEST, request)
            events += self._stream.item(UnknownItem(item))
        return events + super().feed(_ENDED)


class _RecordedInbound(Inbound):
    """Also reads records of both directions, of which those from the app-server count."""

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        record = _record_of(data)
        if record is None:
            return super().feed(data, event)
        return super().feed(encode(record["msg"])) if record["dir"] == "in" else []


def _record_of(data: bytes) -> dict[str, Any] | None:
    if b'"dir"' not in data:
        return None
    try:
        value = decode_json(data)
    except WireError:
        return None
    return value if isinstance(value, dict) and _is_record(value) else None


def _is_record(value: Mapping[str, Any]) -> bool:
    return "dir" in value and "msg" in value


# the first events of a turn; a recording may begin with any of them
_BEGINNINGS = {
    Generation.APP_SERVER: frozenset({"turn/started", "item/started", "item/agentMessage/delta"}),
    Generation.LEGACY: frozenset({"task_started", "turn_started", "item_started", "agent_message_delta"}),
    Generation.RESPONSE: frozenset(
        {"response.created", "response.output_item.added", "response.output_text.delta"}
    ),
}


def _begins(value: Mapping[str, Any], _before: Mapping[str, Any] | None) -> bool:
    notification = notification_of(dict(value))
    return notification is not None and notification.name in _BEGINNINGS.get(notification.generation, ())


def _place(value: Mapping[str, Any]) -> Place:
    notification = notification_of(dict(value))
    return (
        Place()
        if notification is None
        else Place(notification.thread_id, notification.turn_id, opens_turn(notification))
    )


# names that other dialects use as well
_SHARED = frozenset({"error", "warning"})
# fields of every event of a Responses stream that no proxy's notification has
_OF_RESPONSES = ("sequence_number", "output_index")


def _recognises(value: Mapping[str, Any]) -> bool:
    if ("method" in value and "response" not in value) or _is_record(value):  # JSON-RPC has no `response`
        return True
    kind = type_of(object_of(value.get("msg")) or value)
    if kind in ROUTES[Generation.RESPONSE]:
        response = object_of(value.get("response"))
        return not any(name in value for name in _OF_RESPONSES) and not {"object", "id"} & response.keys()
    return snake(kind) in ROUTES[Generation.LEGACY] and kind not in _SHARED


def _answers(format: AnswerFormat, _model: str, _options: CodexOptions) -> AnswerWay:
    return AnswerWay.NATIVE if isinstance(format, JsonSchemaFormatParam) else AnswerWay.INSTRUCTED


DIALECT: Final = Dialect(
    name="codex",
    title="Codex",
    text_after_tools=False,
    upstream=UpstreamSide(
        options=CodexOptions,
        request=to_upstream,
        inbound=lambda machine, _context: UpstreamInbound(machine),
        whole=lambda _value: False,
        outcomes=lambda _options: FIELDS,
        answers=_answers,
    ),
    capture=CaptureFormat(recognises=_recognises, inbound=_RecordedInbound, begins=_begins, place=_place),
)
"""The entry has no client's side: Codex's notifications are only read, and its turns only started."""
