"""A server that plays scripts on its own thread: it can cut, hang, reset and lie, which usual web frameworks
don't allow."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from msgspec import Struct, field

from tests.support.waiting import until

Step = bytes | float | str | Callable[[], object]
"""A step of a script: bytes are sent, a number is a wait in seconds, a function is called until it returns a
true value; CUT and HANG do what their names say."""

CUT = "cut"
RESET = "reset"
HANG = "hang"
DONE = b"data: [DONE]\n\n"
JSON = {"content-type": "application/json"}
_BUFFER = 65536  # bytes that the system keeps of an answer; on its own it would keep megabytes
_STREAM = {"content-type": "text/event-stream"}


class Script(Struct, frozen=True):
    """One answer. The body is sent in chunks, one per step; after the last step it ends properly."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=_STREAM.copy)
    before: float | str = 0.0


class Received(Struct):
    """A received request. `gone_at` is the time on the monotonic clock at which the client closed the
    connection before the end of the answer; `sent` counts the bytes of the body that the client read. `body`
    is the JSON in `raw`, empty for another content type."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    gone_at: float | None = None
    sent: int = 0
    raw: bytes = b""

    @property
    def model(self) -> str:
        """The model in the body or the path."""
        if "model" in self.body:
            return str(self.body["model"])
        if "/converse" in self.path:
            return unquote(self.path.partition("/model/")[2].partition("/")[0])
        return unquote(self.path.partition("/models/")[2].partition(":")[0])


def chunk(finish_reason: str | None = None, /, **delta: Any) -> bytes:
    """One frame with one choice."""
    return frame(choices=[{"index": 0, "delta": delta, "finish_reason": finish_reason}])


def frame(**fields: Any) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return b"data: " + json.dumps(head | fields).encode() + b"\n\n"


def call(index: int, arguments: str, name: str | None = None, id: str | None = None) -> bytes:
    """One fragment of a tool call."""
    function = {"arguments": arguments} | ({"name": name} if name else {})
    head = {"id": id, "type": "function"} if id else {}
    return chunk(tool_calls=[{"index": index, "function": function, **head}])


def text(*pieces: str, finish_reason: str = "stop") -> list[Step]:
    """A whole stream of text with its usage."""
    usage = {"prompt_tokens": 3, "completion_tokens": len(pieces), "total_tokens": 3 + len(pieces)}
    sent = [chunk(role="assistant", content=""), *(chunk(content=piece) for piece in pieces)]
    return [*sent, chunk(finish_reason), frame(choices=[], usage=usage), DONE]


def paced(*pieces: str, every: float = 0.005) -> Script:
    """Send each of these so that it arrives in a separate read."""
    steps = [step for piece in pieces for step in (every, chunk(content=piece))]
    return Script([*steps, every, *text("end")])


def by_turns(pieces: Sequence[str], got: bytearray) -> Script:
    """Send each of these after the client has received the previous one. The pieces differ from each
    other."""
    steps = [step for piece in pieces for step in (chunk(content=piece), partial(contains, got, piece))]
    return Script([*steps, *text("end")])


def contains(got: bytearray, piece: str, times: int = 1) -> bool:
    return got.count(piece.strip().encode()) >= times


def refusal(status: int, headers: dict[str, str] | None = None, **error: Any) -> Script:
    """An HTTP error with OpenAI's body."""
    body = json.dumps({"error": error}).encode()
    return Script([body], status, JSON | (headers or {}))


class ScriptedUpstream:
    """Plays `scripts` by the model that a request names; a list of scripts is played in turn. `received` has
    the requests in order; `models` are the names or whole entries that it lists, None if it lists none, and
    `listed` counts the requests for them; `connections` are the times at which clients connected; `answer`,
    if it is set, makes the script for each request; `pages` has answers by path, which take precedence. A
    context manager."""

    def __init__(self, scripts: dict[str, Script | list[Script]] | None = None) -> None:
        self.scripts = scripts or {}
        self.models: list[str | dict[str, Any]] | None = None
        self.pages: dict[str, Script] = {}
        self.answer: Callable[[Received], Script] | None = None
        self.listed = 0
        self.received: list[Received] = []
        self.connections: list[float] = []
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ready = threading.Event()
        self._stop: asyncio.Event

    def __enter__(self) -> "ScriptedUpstream":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def last(self, model: str) -> Received:
        """The newest request for this model."""
        return next(each for each in reversed(self.received) if each.model == model)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)  # as its connections then
        host, port = server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}/v1"
        self._ready.set()
        await self._stop.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(time.monotonic())
        try:
            while (received := await _read_request(reader)) is not None:
                if received.method == "POST":
                    self.received.append(received)
                if not await self._answer(received, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Play the script; return whether the connection can be used again."""
        script = self._script(received)
        play = asyncio.ensure_future(_play(script, received, writer))
        leave = asyncio.ensure_future(reader.read(1))
        await asyncio.wait([play, leave], return_when=asyncio.FIRST_COMPLETED)
        if play.done():
            leave.cancel()
            await asyncio.wait([leave])
            if isinstance(play.exception(), ConnectionError):  # a write has found this out
                received.gone_at = time.monotonic()
            return play.exception() is None and play.result()
        received.gone_at = time.monotonic()
        play.cancel()
        return False

    def _script(self, received: Received) -> Script:
        for path in (received.path, received.path.partition("?")[0]):
            if path in self.pages:
                return self.pages[path]
        if received.method == "GET":
            self.listed += 1
            models = [{"id": each} if isinstance(each, str) else each for each in self.models or ()]
            listed = {"object": "list", "data": models}
            return Script([json.dumps(listed).encode()], 404 if self.models is None else 200, JSON)
        if self.answer is not None:
            return self.answer(received)
        entry = self.scripts.get(received.model, Script(text("Hello", " there")))
        if isinstance(entry, Script):
            return entry
        return entry.pop(0) if len(entry) > 1 else entry[0]


async def _play(script: Script, received: Received, writer: asyncio.StreamWriter) -> bool:
    await _wait(script.before)
    head = "".join(f"{name}: {value}\r\n" for name, value in script.headers.items())
    writer.write(f"HTTP/1.1 {script.status} Scripted\r\n{head}transfer-encoding: chunked\r\n\r\n".encode())
    for step in script.steps:
        if step == CUT:
            return False
        if step == RESET:
            writer.transport.abort()
            return False
        if isinstance(step, bytes):
            writer.write(b"%x\r\n%s\r\n" % (len(step), step))
            await writer.drain()
            received.sent += len(step)
            await asyncio.sleep(0)
        else:
            await _wait(step)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def _wait(step: float | str | Callable[[], object]) -> None:
    if callable(step):
        await until(step)
    else:
        await asyncio.sleep(3600 if isinstance(step, str) else step)


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    line = await reader.readline()
    if not line:
        return None
    headers: dict[str, str] = {}
    while line_ := (await reader.readline()).decode().strip():
        name, _, value = line_.partition(":")
        headers[name.strip().lower()] = value.strip()
    if "transfer-encoding" in headers:
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, path, _ = line.decode().split()
    is_json = headers.get("content-type", "application/json") == "application/json"
    return Received(method, path, headers, json.loads((is_json and body) or b"{}"), raw=body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
