"""The application without sockets: requests are ASGI messages on an event loop of its own, which runs only
during a call. For tests that measure, or that repeat a request thousands of times."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import structlog

from openresponses_server.api.app import create_app
from openresponses_server.settings import Settings
from tests.support.logs import log_as_in_production
from tests.support.serving import Reply

T = TypeVar("T")
LONGEST = 110.0
"""Seconds that one exchange may last."""
_LAST = frozenset({"error", "response.completed", "response.failed", "response.incomplete"})
_HOST = (b"host", b"127.0.0.1:8080")


class InProcess:
    """A running application on the event loop `loop`. `call` makes a request, `turns` has a conversation over
    a WebSocket. If a test sets `got`, the bodies of answers are appended to it as they arrive."""

    def __init__(self, settings: Settings) -> None:
        if not structlog.is_configured():  # outside pytest
            log_as_in_production()
        self.app = create_app(settings)
        self.loop = asyncio.new_event_loop()
        self.got: bytearray | None = None
        self._commands: asyncio.Queue[Any] = asyncio.Queue()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._lifespan = self.loop.create_task(self._live())
        self._command("startup")

    def close(self) -> None:
        """Shut the application down."""
        if self.loop.is_closed():
            return
        self._command("shutdown")
        self.run(self._lifespan)
        self.loop.run_until_complete(_end_all())
        self.run(self.loop.shutdown_asyncgens())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
        """Run the coroutine on the loop, and return its result. Raises TimeoutError if it takes longer than
        LONGEST."""
        return self.loop.run_until_complete(asyncio.wait_for(work, LONGEST))

    def call(
        self,
        method: str,
        target: bytes | str,
        body: bytes | list[bytes] | dict[str, Any] = b"",
        headers: Iterable[tuple[bytes, bytes]] = (),
        *,
        leaves: bool = False,
    ) -> Reply:
        """Make one request and return its whole answer; a client that `leaves` disconnects once the request
        is sent. `target` is the path with its query. A body that is a list is sent in these pieces, an object
        as JSON; a body without a content type is declared as JSON."""
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        pieces = body if isinstance(body, list) else [body]
        sent = list(headers)
        if any(pieces) and not any(name == b"content-type" for name, _ in sent):
            sent.append((b"content-type", b"application/json"))
        return self.run(self._exchange(method, _bytes(target), pieces, sent, leaves))

    def turns(
        self, messages: Iterable[bytes], headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> list[list[dict[str, Any]]]:
        """Return the answers to each message on one WebSocket, up to the message that ends its turn."""
        return self.run(self._converse(list(messages), list(headers)))

    async def _exchange(
        self,
        method: str,
        target: bytes,
        pieces: list[bytes],
        headers: list[tuple[bytes, bytes]],
        leaves: bool,
    ) -> Reply:
        waiting = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
        waiting[-1]["more_body"] = False
        coming = iter(waiting)
        status, shown, body = 0, dict[str, str](), list[bytes]()
        answered = asyncio.Event()
        if leaves:
            answered.set()

        async def receive() -> dict[str, Any]:
            message = next(coming, None)
            if message is None:
                await answered.wait()
                return {"type": "http.disconnect"}
            return message

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                shown.update(
                    {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
                )
            elif message["type"] == "http.response.body":
                body.append(message.get("body", b""))
                if self.got is not None:
                    self.got += body[-1]
                if not message.get("more_body", False):
                    answered.set()

        await self.app({**scope_of("http", target, headers), "method": method}, receive, send)
        return Reply(status, shown, b"".join(body))

    async def _converse(
        self, messages: list[bytes], headers: list[tuple[bytes, bytes]]
    ) -> list[list[dict[str, Any]]]:
        inbox: asyncio.Queue[Any] = asyncio.Queue()
        outbox: asyncio.Queue[Any] = asyncio.Queue()
        inbox.put_nowait({"type": "websocket.connect"})
        scope = {**scope_of("websocket", b"/v1/responses", headers), "subprotocols": []}
        serving = asyncio.create_task(self.app(scope, inbox.get, outbox.put))
        turns = []
        try:
            if (await outbox.get())["type"] == "websocket.accept":
                for message in messages:
                    inbox.put_nowait(_message(message))
                    turns.append(await _turn(outbox))
        finally:
            inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})
            await serving
        return turns

    async def _live(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        await self.app(scope, self._commands.get, self._answers.put)

    def _command(self, name: str) -> None:
        self._commands.put_nowait({"type": f"lifespan.{name}"})
        shown = self.run(self._answers.get())
        assert shown["type"] == f"lifespan.{name}.complete", shown


async def _end_all() -> None:
    """End the tasks that libraries keep for the life of a process."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def scope_of(kind: str, target: bytes, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    path, _, query = target.partition(b"?")
    known = {name for name, _ in headers}
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http" if kind == "http" else "ws",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers if b"host" in known else [_HOST, *headers],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8080),
        "extensions": {},
        "state": {},
    }


def _message(data: bytes) -> dict[str, Any]:
    try:
        return {"type": "websocket.receive", "text": data.decode()}
    except UnicodeDecodeError:
        return {"type": "websocket.receive", "bytes": data}


async def _turn(outbox: asyncio.Queue[Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in _LAST:
        message = await outbox.get()
        if message["type"] == "websocket.close":
            break
        events.append(json.loads(message["text"]))
    return events


def _bytes(target: bytes | str) -> bytes:
    return target.encode() if isinstance(target, str) else target
