"""A client of the WebSocket transport, which validates every turn against every rule."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from websockets.sync.client import connect

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.protocol.codec import event_from

LAST = frozenset({"error", "response.completed", "response.failed", "response.incomplete"})


class SocketTurn(Struct):
    """The answer to one message."""

    events: list[dict[str, Any]]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def final(self) -> dict[str, Any]:
        response: dict[str, Any] = self.events[-1]["response"]
        return response

    @property
    def error(self) -> dict[str, Any]:
        """The error envelope, which has to be the only message."""
        (envelope,) = self.events
        assert envelope["type"] == "error"
        return envelope

    @property
    def text(self) -> str:
        parts = (part for item in self.final["output"] for part in item.get("content", ()))
        return "".join(part.get("text", "") for part in parts)


class Socket:
    """One connection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def send(self, **request: Any) -> None:
        self.connection.send(json.dumps({"type": "response.create", "model": "demo", **request}))

    def receive(self) -> dict[str, Any]:
        """The next message: one JSON object in one text frame."""
        message = self.connection.recv()
        assert isinstance(message, str)
        assert message != "[DONE]"
        sent: dict[str, Any] = json.loads(message)
        return sent

    def rest(self, *before: dict[str, Any]) -> SocketTurn:
        """The messages up to the end of the turn."""
        events = list(before)
        while not events or events[-1]["type"] not in LAST:
            events.append(self.receive())
        if events[-1]["type"] != "error":
            assert violations(events) == []
        return SocketTurn(events)

    def turn(self, **request: Any) -> SocketTurn:
        """Send a message and return the resulting turn."""
        self.send(**request)
        return self.rest()

    def raw(self, message: str | bytes) -> SocketTurn:
        """Send a raw message and return the resulting turn."""
        self.connection.send(message)
        return self.rest()


@contextmanager
def opened_socket(base: str, headers: dict[str, str] | None = None, **options: Any) -> Iterator[Socket]:
    """Yield a connection to `GET /v1/responses`; only the test's own timeout limits it."""
    address = base.replace("http", "ws", 1) + "/v1/responses"
    patient = {"open_timeout": None, "ping_interval": None, "close_timeout": 1, **options}
    with connect(address, additional_headers=headers, **patient) as connection:
        yield Socket(connection)


def violations(events: list[dict[str, Any]]) -> list[str]:
    """Return the validator's violations in the events of one turn."""
    validator = StreamValidator()
    problems = [violation for event in events for violation in validator.feed(event_from(event))]
    problems += validator.close()
    return [str(violation) for violation in problems]
