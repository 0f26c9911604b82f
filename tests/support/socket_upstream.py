"""A scripted upstream of the Responses API that also has WebSockets, at the same path: it remembers the last
answer of each connection, gives the same answers over HTTP, and misbehaves frame by frame."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha1
from typing import Any, NamedTuple

from msgspec import Struct
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import Event
from tests.support.upstream import CUT, RESET, Received, Script, ScriptedUpstream, Step, refusal
from tests.support.waiting import until

USAGE = {"input_tokens": 3, "output_tokens": 2}
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Raw(NamedTuple):
    """Bytes that are sent unchanged, between the frames."""

    data: bytes


class Call(NamedTuple):
    """A call of a function, as a piece of an answer."""

    id: str
    name: str
    arguments: str


class SocketTurn(Struct):
    """A received message. `body` is the equivalent request with the whole input; `size` is the number of
    bytes of the message on the network, `whole` that of the request as JSON. `left` is set when the client
    closes the connection within the turn."""

    connection: int
    message: dict[str, Any]
    body: dict[str, Any]
    size: int
    whole: int
    left: bool = False


class Handshake(NamedTuple):
    """A received handshake."""

    path: str
    headers: dict[str, str]


SocketStep = Step | Raw
Say = Callable[[dict[str, Any]], Sequence[str | Call]]
"""Returns the answer to a request: pieces of text, and calls."""
Play = Callable[[SocketTurn, list[bytes]], Sequence[SocketStep]]
"""Returns the steps of a turn, made from the messages of its answer."""


def hello(_body: dict[str, Any]) -> Sequence[str | Call]:
    return ["Hel", "lo"]


def whole(_turn: SocketTurn, messages: list[bytes]) -> Sequence[SocketStep]:
    return messages


def error_message(status: int, code: str, **more: Any) -> bytes:
    """A refusal on a WebSocket."""
    error = {"type": "invalid_request_error", "code": code, "message": f"It is {code}."}
    return json.dumps({"type": "error", "status": status, "error": error, **more}).encode()


def text_frame(data: bytes, *, fin: bool = True, opcode: Opcode = Opcode.TEXT) -> Raw:
    """A text frame as it is on the network."""
    return Raw(Frame(opcode, data, fin).serialize(mask=False))


def events_of(said: Sequence[str | Call], model: str, response_id: str) -> list[Event]:
    """The events of an answer."""
    machine = ResponseStreamStateMachine(model, wire="openai", response_id=response_id)
    events = machine.start()
    for number, each in enumerate(said):
        events += machine.tool_call(number, *each) if isinstance(each, Call) else machine.text(each)
    machine.usage(USAGE)
    calls = any(isinstance(each, Call) for each in said)
    return [*events, *machine.finish("tool_calls" if calls else "stop")]


class SocketUpstream(ScriptedUpstream):
    """`say` makes the answers, `play` the frames that are sent of them on a WebSocket. `refuses` is an answer
    that is sent instead of a handshake, `accepts` has additional headers of the handshake, which is sent when
    `admits` is true, and `greets` is sent immediately after it. `handshakes`, `turns`, and, for requests over
    HTTP, `received` have what arrived."""

    def __init__(self, say: Say = hello, play: Play = whole) -> None:
        super().__init__()
        self.say, self.play = say, play
        self.refuses: Script | None = None
        self.accepts: Mapping[str, str] = {}
        self.admits: Callable[[], bool] = lambda: True
        self.greets = b""
        self.handshakes: list[Handshake] = []
        self.turns: list[SocketTurn] = []
        self.open = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self.answer = self._over_http
        self._made = 0

    def events(self, body: dict[str, Any]) -> list[Event]:
        """The events of the answer to a request."""
        self._made += 1
        return events_of(self.say(body), body["model"], f"resp_up{self._made}")

    def interrupt(self, data: bytes) -> None:
        """Send this on each open connection, whether or not it was requested."""

        def write() -> None:
            for writer in self._writers:
                writer.write(data)

        self._loop.call_soon_threadsafe(write)

    def _over_http(self, received: Received) -> Script:
        frames = [b"data: " + encode(each) + b"\n\n" for each in self.events(received.body)]
        return Script(frames)

    def _script(self, received: Received) -> Script:
        if self.refuses is not None and "upgrade" in received.headers:
            return self.refuses
        return super()._script(received)

    async def _answer(
        self, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if received.headers.get("upgrade") != "websocket":
            return await super()._answer(received, reader, writer)
        self.handshakes.append(Handshake(received.path, received.headers))
        number = len(self.handshakes)
        if self.refuses is not None:
            return await super()._answer(received, reader, writer)
        await until(self.admits)
        key = received.headers["sec-websocket-key"] + _GUID
        headers = {
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-accept": b64encode(sha1(key.encode()).digest()).decode(),
            **self.accepts,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode() + self.greets)
        self.open += 1
        self._writers.add(writer)
        try:
            await _Socket(self, number, reader, writer).serve()
        finally:
            self._writers.discard(writer)
            self.open -= 1
        return False


class _Socket:
    """One connection."""

    def __init__(
        self,
        upstream: SocketUpstream,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._upstream = upstream
        self._number = number
        self._reader, self._writer = reader, writer
        self._protocol = ServerProtocol(state=OPEN, max_size=64 * 1024 * 1024)
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._last: tuple[str, list[Any]] | None = None  # the id of its last answer, its input and output
        self._size = 0
        self._turn: SocketTurn | None = None

    async def serve(self) -> None:
        reading = asyncio.ensure_future(self._read())
        playing = asyncio.ensure_future(self._turns())
        try:
            await asyncio.wait((reading, playing), return_when=asyncio.FIRST_COMPLETED)
            if self._turn is not None and reading.done():
                self._turn.left = True
        finally:
            for task in (reading, playing):
                task.cancel()
            await asyncio.gather(reading, playing, return_exceptions=True)

    async def _read(self) -> None:
        parts: list[bytes] = []
        while data := await self._reader.read(64 * 1024):
            self._size += len(data)
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                assert isinstance(event, Frame | Request)
                if isinstance(event, Request) or event.opcode in (Opcode.PING, Opcode.PONG):
                    continue
                if event.opcode is Opcode.CLOSE:
                    return
                parts.append(bytes(event.data))
                if event.fin:
                    self._messages.put_nowait(b"".join(parts))
                    parts = []
            for written in self._protocol.data_to_send():
                self._writer.write(written)

    async def _turns(self) -> None:
        while (message := await self._messages.get()) is not None:
            size, self._size = self._size, 0
            if not await self._play(json.loads(message), size):
                return

    async def _play(self, message: dict[str, Any], size: int) -> bool:
        """Play one turn; return whether the connection continues."""
        upstream, last = self._upstream, self._last
        body = {name: value for name, value in message.items() if name not in ("type", "generate")}
        previous = body.pop("previous_response_id", None)
        assert message["type"] == "response.create"
        assert not {"stream", "background"} & set(message)
        self._last = None
        missing = previous is not None and (last is None or previous != last[0])
        if not missing and last is not None and previous is not None:
            body["input"] = [*last[1], *body["input"]]
        turn = SocketTurn(self._number, message, body, size, len(json.dumps(body)))
        self._turn = turn
        upstream.turns.append(turn)
        if missing:
            steps: Sequence[SocketStep] = [error_message(400, "previous_response_not_found")]
        else:
            messages = [encode(each) for each in upstream.events(body)]
            response = json.loads(messages[-1])["response"]
            self._last = response["id"], [*body["input"], *response["output"]]
            steps = upstream.play(turn, messages)
        for step in steps:
            if step == CUT:
                return False
            if step == RESET:
                self._writer.transport.abort()
                return False
            if isinstance(step, Raw):
                self._writer.write(step.data)
                await self._writer.drain()
            elif isinstance(step, bytes):
                self._writer.write(text_frame(step).data)
                await self._writer.drain()
            elif callable(step):
                await until(step)
            else:
                await asyncio.sleep(3600 if isinstance(step, str) else step)
        self._turn = None
        return True


def refused(status: int) -> Script:
    """The answer to a handshake by a server that has no WebSockets."""
    return refusal(status, code="no_websocket", message="There is no WebSocket.")
