"""What a scenario asks of a server and what it gets back, with no transport in sight.

A scenario yields `Ask` (HTTP), `Say` (WebSocket) or `Wait`; whoever plays it performs that and sends
back an `Answer`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from openresponses_bridge.conformance.published import WireName, deviations
from openresponses_bridge.conformance.registry import TERMINALS, Violation
from openresponses_bridge.conformance.validator import StreamValidator
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.lenient import Repair
from openresponses_bridge.sse import Frame, SSEDecoder, is_done


class Ask(Struct, frozen=True, kw_only=True):
    """One HTTP request. `path` begins after the address that ends in `/v1`; a `body` that is not bytes goes
    out as JSON. With `leave_after` the client closes the connection once it has that many events."""

    path: str = "/responses"
    method: str = "POST"
    body: Any = None
    leave_after: int | None = None


class Say(Struct, frozen=True, kw_only=True):
    """One message on a WebSocket, answered by the events up to a terminal one or an `error`. Each
    `socket` is a connection of its own, opened when it is first spoken to."""

    message: dict[str, Any]
    socket: int = 0


class Wait(Struct, frozen=True):
    """Let this many seconds pass."""

    seconds: float


Step = Ask | Say | Wait


class Answer(Struct, kw_only=True):
    """What came back. Over a WebSocket `status` is 101 when it was opened and `messages` are the frames,
    else it is the status that refused it; `left` says that the client went before the end."""

    status: int
    headers: dict[str, str] = {}
    body: bytes = b""
    messages: list[bytes] = field(default_factory=list)
    left: bool = False

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def json(self) -> Any:
        """The body or, over a WebSocket, the last message; None when that is not JSON."""
        try:
            return codec.decode_json(self.messages[-1] if self.messages else self.body)
        except (WireError, IndexError):
            return None

    @property
    def error(self) -> dict[str, Any]:
        """The `error` object of a refusal; empty when there is none."""
        found = self.json.get("error") if isinstance(self.json, dict) else None
        return found if isinstance(found, dict) else {}

    @property
    def frames(self) -> list[Frame]:
        decoder = SSEDecoder()
        frames = decoder.feed(self.body)
        return frames if self.left else frames + decoder.close()

    @property
    def events(self) -> list[dict[str, Any]]:
        """Every event that is a JSON object, in order."""
        data = self.messages or [frame.data for frame in self.frames if not is_done(frame)]
        return [event for each in data if isinstance(event := _parsed(each), dict)]

    @property
    def types(self) -> list[str]:
        return [str(event.get("type")) for event in self.events]

    @property
    def response(self) -> dict[str, Any]:
        """The response that was reported: of the terminal event, or the whole body. Empty when none was."""
        if self.messages or self.media_type == "text/event-stream":
            ends = [event.get("response") for event in self.events if event.get("type") in TERMINALS]
            found = ends[-1] if ends else None
        else:
            found = self.json
        return found if isinstance(found, dict) else {}

    def violations(self, wire: WireName) -> list[Violation]:
        """What the validator has against the stream."""
        validator = StreamValidator(wire)
        if self.messages:
            for message in self.messages:
                validator.feed(message)
        else:
            for frame in self.frames:
                validator.feed_frame(frame)
        if not self.left:
            validator.close()
        return validator.violations


def item_faults(item: Any, wire: WireName) -> list[str]:
    """Where an item that stands alone leaves the schema."""
    event = {"type": "response.output_item.done", "sequence_number": 0, "output_index": 0, "item": item}
    repairs: list[Repair] = []
    codec.event_from(event, repairs)
    return [f"{each.path}: {each.what}" for each in (*repairs, *deviations(wire, event))]


def _parsed(data: bytes | str) -> Any:
    try:
        return codec.decode_json(data)
    except WireError:
        return None
