"""The registry of scenarios, their steps and outcomes, and what they may expect of a server's answers.

A scenario has no transport. It is a generator that yields steps. The player performs each step and sends a
`ServerAnswer` back; the generator returns when every expectation was met. It ends early by raising `Broken`
(the server violates a clause) or `NotOffered` (the server does not have the feature).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, Literal, NamedTuple, get_args

from msgspec import Struct, field

from openresponses_bridge.conformance.judging import validate_response
from openresponses_bridge.conformance.published import WireName, deviations
from openresponses_bridge.conformance.registry import TERMINALS, Violation
from openresponses_bridge.conformance.rules import RULES
from openresponses_bridge.conformance.validator import StreamValidator
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.lenient import Repair
from openresponses_bridge.sse import Frame, SSEDecoder, is_done


class HttpRequest(Struct, frozen=True, kw_only=True):
    """One HTTP request. `path` is relative to the base URL, which ends with `/v1`; a `body` that is not bytes
    is sent as JSON. With `leave_after`, the connection is closed after this many events."""

    path: str = "/responses"
    method: str = "POST"
    body: Any = None
    leave_after: int | None = None


class WebSocketMessage(Struct, frozen=True, kw_only=True):
    """One message on a WebSocket; the answer is all events up to a terminal one or an `error`. `socket`
    numbers the connections; each is opened by its first message."""

    message: dict[str, Any]
    socket: int = 0


class Delay(Struct, frozen=True):
    """A pause of this many seconds."""

    seconds: float


Step = HttpRequest | WebSocketMessage | Delay


class ServerAnswer(Struct, kw_only=True):
    """The server's answer. Over a WebSocket `messages` are the received messages and `status` is 101, or the
    status of a refused handshake. `left` is True if the client closed the connection before the end."""

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
        """The body or, over a WebSocket, the last message; None if that is not JSON."""
        try:
            return codec.decode_json(self.messages[-1] if self.messages else self.body)
        except (WireError, IndexError):
            return None

    @property
    def error(self) -> dict[str, Any]:
        """The `error` object of a refusal; empty if there is none."""
        value = self.json.get("error") if isinstance(self.json, dict) else None
        return value if isinstance(value, dict) else {}

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
        """The response of the terminal event, or the whole body; empty if there is none."""
        if self.messages or self.media_type == "text/event-stream":
            ends = [event.get("response") for event in self.events if event.get("type") in TERMINALS]
            payload = ends[-1] if ends else None
        else:
            payload = self.json
        return payload if isinstance(payload, dict) else {}

    def violations(self, wire: WireName) -> list[Violation]:
        """Return the validator's violations in the stream."""
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
    """Return the violations of the schema in a single item."""
    event = {"type": "response.output_item.done", "sequence_number": 0, "output_index": 0, "item": item}
    repairs: list[Repair] = []
    codec.event_from(event, repairs)
    return [f"{each.path}: {each.what}" for each in (*repairs, *deviations(wire, event))]


def _parsed(data: bytes | str) -> Any:
    try:
        return codec.decode_json(data)
    except WireError:
        return None


Level = Literal["core", "full"]
LEVELS: Final = get_args(Level)
"""`core` is what every server has: one request and its answer, streams, tools, errors. `full` adds what is
stored, continued, cancelled, resumed, compacted, and WebSockets."""
Play = Generator[Step, ServerAnswer, None]
_SHOWN = 3  # findings of one answer that are listed; others are only counted
_ABSENT = frozenset({404, 405, 501})
_UNSUPPORTED = frozenset({400, 422, 501})


class Broken(Exception):
    """A clause that the server violates; the message says what and where.

    `causes` name the fault without its place, so that failures with the same cause can be grouped; without
    any, the message is the cause.
    """

    def __init__(self, message: str, causes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(dict.fromkeys(causes)) or (message,)


class NotOffered(Exception):
    """The server does not have this feature, which is optional."""


class ServerUnderTest(Struct, frozen=True):
    """The server that scenarios are played against: the name of a model, and the wire that answers must
    follow."""

    model: str
    wire: WireName = "openresponses"

    def request(self, **fields: Any) -> dict[str, Any]:
        return {"model": self.model, "input": "Say hello in three words.", **fields}

    def create(self, **fields: Any) -> HttpRequest:
        return HttpRequest(body=self.request(**fields))

    def send(self, socket: int = 0, **fields: Any) -> WebSocketMessage:
        return WebSocketMessage(message={"type": "response.create", **self.request(**fields)}, socket=socket)


Script = Callable[[ServerUnderTest], Play]


class Scenario(NamedTuple):
    """One scenario. `id` is `area.what`; `source` is the text that requires it."""

    id: str
    description: str
    source: str
    level: Level
    play: Script

    @property
    def area(self) -> str:
        return self.id.partition(".")[0]


REGISTERED: dict[str, Scenario] = {}


def scenario(source: str, level: Level = "core") -> Callable[[Script], Script]:
    """Register a generator function. Its id is its name with the first `_` as a dot, its description its
    docstring."""

    def register(play: Script) -> Script:
        name = play.__name__.replace("_", ".", 1).replace("_", "-")
        REGISTERED[name] = Scenario(name, " ".join((play.__doc__ or "").split()), source, level, play)
        return play

    return register


def expect(holds: object, message: str) -> None:
    """Raise Broken with this message unless the condition is true."""
    if not holds:
        raise Broken(message)


def expect_whole(answer: ServerAnswer, target: ServerUnderTest, status: str = "completed") -> dict[str, Any]:
    """Return the response of an answer that is not streamed, which must be valid and have this status."""
    expect(answer.status == 200, _unexpected(answer, 200))
    expect(answer.media_type == "application/json", f"content-type is {answer.media_type!r}, not JSON")
    response = answer.response
    _expect_clean("the response breaks the protocol", validate_response(response, target.wire))
    expect(response.get("status") == status, f"status is {response.get('status')!r}, not {status!r}")
    return response


def expect_stream(answer: ServerAnswer, target: ServerUnderTest, *statuses: str) -> dict[str, Any]:
    """Return the response at the end of a valid stream (HTTP or WebSocket), which must have one of these
    statuses."""
    if not answer.messages:
        expect(answer.status == 200, _unexpected(answer, 200))
        expect(answer.media_type == "text/event-stream", f"content-type is {answer.media_type!r}")
    _expect_clean("the stream breaks the protocol", answer.violations(target.wire))
    status = answer.response.get("status")
    allowed = statuses or ("completed",)
    expect(status in allowed, f"the stream ended as {status!r}, not {' or '.join(allowed)}")
    return answer.response


def expect_marker(answer: ServerAnswer, target: ServerUnderTest) -> None:
    """Expect the stream to end with [DONE], unless the wire is OpenAI's, which has none."""
    if target.wire != "openai":
        expect(answer.frames and is_done(answer.frames[-1]), "the last frame is not [DONE]")


def _expect_clean(what: str, violations: list[Violation]) -> None:
    if violations:
        raise Broken(_listed(what, list(map(str, violations))), map(_cause, violations))


def _cause(violation: Violation) -> str:
    """Return the violated clause and its field, without the place in the stream or in a list."""
    if violation.rule == "schema":
        path = "".join(each for each in violation.path if not each.isdigit())
        return f"{violation.rule}: {path}: {violation.message}"
    return f"{violation.rule}: {RULES[violation.rule].description}"


def expect_refusal(answer: ServerAnswer, *statuses: int) -> dict[str, Any]:
    """Return the error of a request that must be refused with one of these statuses, as JSON in the error
    format."""
    expect(answer.status in statuses, _unexpected(answer, *statuses))
    expect(answer.media_type == "application/json", f"the refusal's content-type is {answer.media_type!r}")
    error = answer.error
    for name in ("type", "message"):
        expect(isinstance(error.get(name), str) and error[name], f"error.{name} is not text: {error!r:.200}")
    for name in ("code", "param"):
        expect(isinstance(error.get(name), str | None), f"error.{name} is neither text nor null")
    return error


def need_route(answer: ServerAnswer, what: str) -> None:
    """Raise NotOffered if the server does not have this endpoint."""
    if answer.status in _ABSENT:
        raise NotOffered(f"{what}: status {answer.status}")


def need_support(answer: ServerAnswer, what: str) -> None:
    """Raise NotOffered if the server reports that it does not support this."""
    if answer.status in _UNSUPPORTED:
        raise NotOffered(f"{what}: {answer.status} {str(answer.error.get('message', ''))[:120]}")


def items(response: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the output's items of this type."""
    output = response.get("output")
    entries = output if isinstance(output, list) else []
    return [item for item in entries if isinstance(item, dict) and item.get("type") == kind]


def text_of(response: dict[str, Any]) -> str:
    """Return all text of the response's messages."""
    parts = [part for item in items(response, "message") for part in item.get("content") or []]
    return "".join(str(part.get("text", "")) for part in parts if part.get("type") == "output_text")


def object_in(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text; None if the text is anything else."""
    try:
        value = decode_json(text)
    except WireError:
        return None
    return value if isinstance(value, dict) else None


def _unexpected(answer: ServerAnswer, *statuses: int) -> str:
    message = answer.error.get("message") or answer.body[:120].decode("utf-8", "replace")
    return f"status {answer.status} instead of {' or '.join(map(str, statuses))}: {message!s:.160}"


def _listed(what: str, entries: list[str]) -> str:
    more = f" (and {len(entries) - _SHOWN} more)" if len(entries) > _SHOWN else ""
    return f"{what}: {'; '.join(entries[:_SHOWN])}{more}"
