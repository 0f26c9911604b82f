"""Converts Codex's notifications to calls of the machine. A frame is one JSON line, bare or in a recording's
envelope.

Servers send a turn in two generations side by side. One of them is chosen for the stream: the one with more
content, as long as nothing of the other was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from openresponses_bridge.diagnostics import LONGEST_SHOWN
from openresponses_bridge.dialects.base import CUT, INVALID_JSON, INVALID_SHAPE, BaseInbound, failure
from openresponses_bridge.dialects.codex.app_server import AppServer
from openresponses_bridge.dialects.codex.errors import payload_of
from openresponses_bridge.dialects.codex.legacy import Legacy
from openresponses_bridge.dialects.codex.proxy import ProxyReader
from openresponses_bridge.dialects.codex.routes import ROUTES, Action, Route, opens_turn
from openresponses_bridge.dialects.codex.turn import TurnEmitter, plain, requested_approval
from openresponses_bridge.dialects.codex.types import Generation, Notification, notification_of, object_of
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.state import TERMINAL_PHASES, ResponseStreamPhase
from openresponses_bridge.text import is_printable

# The most common frame of each generation, a piece of a message, read without making objects of the rest.

# by name, since Python 3.11 runs code for each access to an enum's member
_FROM_APP_SERVER, _FROM_LEGACY = Generation.APP_SERVER, Generation.LEGACY
_APP_SERVER = "item/agentMessage/delta"
_LEGACY = "codex/event/agent_message_content_delta"
_RESPONSE = "response.output_text.delta"


class _AppServerParams(Struct):
    itemId: str  # noqa: N815 - the wire's name
    delta: str
    turnId: str = ""  # noqa: N815


class _AppServer(Struct):
    method: str
    params: _AppServerParams


class _Message(Struct):
    item_id: str
    delta: str


class _LegacyParams(Struct):
    msg: _Message


class _Legacy(Struct):
    method: str
    params: _LegacyParams


class _Proxy(Struct):
    type: str
    delta: str
    item_id: str = ""


_app_server = msgspec.json.Decoder(_AppServer).decode
_legacy = msgspec.json.Decoder(_Legacy).decode
_proxy = msgspec.json.Decoder(_Proxy).decode


def read_delta(data: bytes, generation: Generation, open_id: str | None, turn_id: str) -> str | None:
    """Return the next piece of the open message; None for any other frame."""
    try:
        if generation is _FROM_APP_SERVER:
            frame = _app_server(data)
            params = frame.params
            ours = params.itemId == open_id and params.turnId in ("", turn_id)
            return params.delta if ours and frame.method == _APP_SERVER else None
        if generation is _FROM_LEGACY:
            older = _legacy(data)
            message = older.params.msg
            # only the spelling with an id can have opened an item with that id
            return message.delta if message.item_id == open_id and older.method == _LEGACY else None
        proxied = _proxy(data)
        return proxied.delta if proxied.item_id == open_id and proxied.type == _RESPONSE else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


_IN_PROGRESS = ResponseStreamPhase.IN_PROGRESS
# the ends of a turn, even if the turn is reported by a proxy's notifications
_ENDS = frozenset({"turn/completed", "task_complete", "turn_aborted", "error"})
_TOOL_CALLS = "tool_calls"
# methods of the app-server about the turn; others are about the thread or the account
_TURN_METHODS = ("turn/", "item/", "error")
_SPENT = "thread/tokenUsage/updated"


class Inbound(BaseInbound):
    """Reads one turn into one machine. `turn_id` is the turn to read; without it, the first turn that starts.

    `generation` is the newest generation of notifications seen so far, the only one that is read. A turn
    whose tool calls are whole is complete if nothing has begun after them: further frames still belong to it,
    but `read_done` or `close` ends it as `tool_calls`.
    """

    def __init__(self, machine: ResponseStream, turn_id: str = "") -> None:
        self.diagnostics = machine.diagnostics
        self.generation = Generation.NONE
        self._machine = machine
        self._turn = TurnEmitter(machine)
        self._turn_id = turn_id
        self._thread_id = ""  # of that turn, once a frame named both
        self._committed = False
        self._proxy = ProxyReader(self._turn)
        self._readers: dict[Generation, Callable[[Notification], list[Event]]] = {
            Generation.LEGACY: Legacy(self._turn).read,
            Generation.APP_SERVER: AppServer(self._turn).read,
            Generation.RESPONSE: self._proxy.read,
        }

    @property
    def turn_id(self) -> str:
        """The app-server's id of the turn that is read; "" until it is known."""
        return self._turn_id

    @property
    def ended(self) -> bool:
        """True if the turn is complete, so that nothing more has to be read."""
        return self._machine.phase in TERMINAL_PHASES or self._proxy.called

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one JSON line. A line that can't be read ends the response as failed."""
        # the common frame continues the open text
        if self._committed and self._machine.phase is _IN_PROGRESS:
            delta = read_delta(data, self.generation, self._turn.open_id, self._turn_id)
            if delta is not None:
                return self._machine.text(delta)
        return self._feed(data)

    def feed_frame(self, frame: dict[str, Any]) -> list[Event]:
        """Feed a decoded frame: a JSON-RPC notification or request, an answer, or an event of a proxy."""
        events = self._begin()
        if self._turn.ended:
            self.diagnostics.ignored("frame", "came after the end")
            return events
        notification = notification_of(frame)
        return events if notification is None else events + self._dispatch(notification)

    def read_done(self) -> list[Event]:
        """Handle the end of a read, after all of its frames were fed: a complete turn ends here."""
        return self._turn.finish(_TOOL_CALLS) if self._proxy.called and not self._turn.ended else []

    def close(self) -> list[Event]:
        """Handle the end of the upstream; a turn that is not complete was cut off (field case 26)."""
        events = self._begin()
        if self._turn.ended:
            return events
        if self._proxy.called:
            return events + self.read_done()
        return events + self._fail(CUT, "the upstream ended before its turn did")

    def _begin(self) -> list[Event]:
        return self._machine.start() if self._machine.phase is ResponseStreamPhase.IDLE else []

    def _feed(self, data: bytes) -> list[Event]:
        try:
            frame = decode_frame(data)
        except WireError as error:
            return self._unreadable(INVALID_JSON, error.message)
        if not isinstance(frame, dict):
            return self._unreadable(INVALID_SHAPE, "a frame is not a JSON object")
        return self.feed_frame(frame)

    def _unreadable(self, code: str, message: str) -> list[Event]:
        events = self._begin()
        if self._turn.ended:
            self.diagnostics.ignored("frame", "came after the end")
            return events
        return events + self._fail(code, message)

    def _fail(self, code: str, message: str) -> list[Event]:
        return self._turn.fail_with(failure(code, message))

    def _dispatch(self, notification: Notification) -> list[Event]:
        if notification.generation is Generation.NONE:
            return self._answer(notification)
        if (notification.thread_id or notification.turn_id) and not self._is_ours(notification):
            return []
        about_turn = notification.generation is not Generation.APP_SERVER or notification.name.startswith(
            _TURN_METHODS
        )
        if about_turn and not self._committed and notification.generation > self.generation:
            self.generation = notification.generation
        if notification.generation is not self.generation and not self._is_always_read(
            notification, about_turn
        ):
            return []
        route = ROUTES[notification.generation].get(notification.name)
        events = self._unknown(notification) if route is None else self._apply(route, notification)
        self._committed = self._committed or bool(events)
        return events

    def _apply(self, route: Route, notification: Notification) -> list[Event]:
        if route.action is Action.READ:
            return self._readers[notification.generation](notification)
        if route.action is Action.SHOWN:
            return self._machine.extension_event(route.kind, plain(notification.body))
        if route.action is Action.IGNORED:
            return []
        if route.action is Action.ASKED and notification.request_id is not None:
            return requested_approval(self._turn, notification)
        return self._unanswered(notification)

    def _unknown(self, notification: Notification) -> list[Event]:
        if notification.request_id is not None:
            return self._unanswered(notification)
        self.diagnostics.ignored(_shown(notification.name), "unknown notification")
        return []

    def _unanswered(self, notification: Notification) -> list[Event]:
        if notification.request_id is None:
            self.diagnostics.ignored(_shown(notification.name), "a request without an id")
        else:
            self.diagnostics.warning(
                _shown(notification.name), "a request of the upstream that is not answered"
            )
        return []

    def _is_always_read(self, notification: Notification, about_turn: bool) -> bool:
        """Return True if the notification is read in every generation: a request waits for its answer, and an
        end is an end."""
        if notification.request_id is not None or not about_turn:
            return True
        return self.generation is Generation.RESPONSE and notification.name in _ENDS

    def _is_ours(self, notification: Notification) -> bool:
        thread_id, turn_id = notification.thread_id, notification.turn_id
        same_thread = not (thread_id and self._thread_id) or thread_id == self._thread_id
        if not turn_id:
            return same_thread
        if not self._turn_id and opens_turn(notification):
            self._turn_id = turn_id
        if same_thread and turn_id == self._turn_id:
            self._thread_id = self._thread_id or thread_id
            return True
        if notification.name == _SPENT and same_thread:
            self._turn.skip_usage(object_of(notification.body.get("tokenUsage")))
        self.diagnostics.ignored("turn", "notifications of another turn")
        return False

    def _answer(self, notification: Notification) -> list[Event]:
        """Read an answer to a request of ours. An error before the turn means that there is no turn."""
        error: Any = notification.body.get("error")
        if isinstance(error, dict) and self.generation is Generation.NONE:
            return self._turn.fail_with(payload_of({**error, "code": ""}))
        return []


def _shown(name: str) -> str:
    """Return a name that the upstream chose, in a form for logs."""
    return name[:LONGEST_SHOWN] if is_printable(name[:LONGEST_SHOWN]) else "a name that can't be printed"
