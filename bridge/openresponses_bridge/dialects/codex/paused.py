"""A turn that waits for an approval: its response ends, and the next one goes on with the turn.

Whoever holds Codex's streams puts the notification `bridge/turnPaused` in the place of the request that
waits. The response then has an event and an item `codex:approval_request` for each question, with the id
by which the client answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from openresponses_bridge.dialects.codex.approvals import APPROVAL_REQUEST, plain
from openresponses_bridge.dialects.codex.inbound import Inbound
from openresponses_bridge.dialects.codex.types import list_of, object_of
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame, encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.state import ResponseStreamPhase

TURN_PAUSED: Final = "bridge/turnPaused"
_MARK: Final = f'"{TURN_PAUSED}"'.encode()
_OWN: Final = frozenset({"type", "id", "status"})
_ENDED: Final = encode({"method": "turn/completed", "params": {"turn": {"status": "completed"}}})


def turn_paused(questions: Iterable[tuple[str, str, dict[str, Any]]]) -> bytes:
    """The notification. Of each question: the id by which it is answered, what is asked for, and what Codex
    says of it."""
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
        """One JSON line, as `Inbound.feed`."""
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
            asked = {"request_id": item["id"], **{name: item[name] for name in item if name not in _OWN}}
            events += self._stream.extension_event(APPROVAL_REQUEST, asked)
            events += self._stream.item(UnknownItem(item))
        return events + super().feed(_ENDED)
