"""The server on a thread and a free port, and simple requests to it."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import structlog
from msgspec import Struct
from starlette.types import ASGIApp

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.sse import Frame, SSEDecoder, is_done
from openresponses_server.api.app import create_app
from openresponses_server.http.connection import http_protocol
from openresponses_server.settings import Settings, Timeouts
from openresponses_server.store.sql import migrate  # noqa: F401 - without it each new store takes a process
from tests.support.logs import log_as_in_production


@contextmanager
def serving(
    settings: Settings, send_buffer: int = 0, clock: Callable[[], float] = time.monotonic
) -> Iterator[str]:
    """The base URL of a server with these settings, which runs within the context; `clock` measures the
    timeouts of its connections."""
    if not structlog.is_configured():  # outside pytest
        log_as_in_production()
    options = {"lifespan": "on", "timeout_graceful_shutdown": 1, "http": http_protocol(settings, clock)}
    with serving_app(create_app(settings), send_buffer, **options) as base:
        yield base


@contextmanager
def serving_app(app: ASGIApp, send_buffer: int = 0, **options: Any) -> Iterator[str]:
    """The base URL of uvicorn with this application; `options` are those of its `Config`. With a
    `send_buffer`, the system buffers at most so many bytes for a client that does not read. WebSockets are
    not pinged: a client that does not read answers no ping, and on a busy machine would be disconnected."""
    from uvicorn import Config, Server

    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)  # its connections inherit it
    options = {"ws": "websockets-sansio", "ws_ping_interval": None, "log_level": "critical", **options}
    server = Server(Config(app, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


class Reply(Struct):
    """An HTTP answer that was read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error of a refusal; Amazon's errors have no envelope."""
        body = self.json
        error: dict[str, Any] = body.get("error", body)
        return error

    @property
    def frames(self) -> list[Frame]:
        decoder = SSEDecoder()
        return decoder.feed(self.body) + decoder.close()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(frame.data) for frame in self.frames if not is_done(frame)]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def final(self) -> dict[str, Any]:
        response: dict[str, Any] = self.events[-1]["response"]
        return response


def call(
    base: str,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    into: bytearray | None = None,
) -> Reply:
    """Make one request; a body that is not bytes is sent as JSON. The bytes of the answer are also appended
    to `into` as they arrive."""
    with opened(base, method, path, body, headers) as response:
        if into is not None:
            while data := response.read1():
                into += data
        answered = response.read() if into is None else bytes(into)
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, answered)


@contextmanager
def opened(
    base: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    """Make one request and yield its answer before it is read; the connection is closed at the end of the
    context."""
    address = urlsplit(base)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"content-type": "application/json"} if payload is not None else {}
    try:
        connection.request(method, path, payload, sent | (headers or {}))
        response = connection.getresponse()
        try:
            yield response
        finally:
            response.close()
    finally:
        connection.close()


def ready(
    base: str, headers: dict[str, str] | None = None, path: str = "/readyz", *, status: int = 200
) -> Reply:
    """Return the answer of `/readyz` once its status is this one, 200 by default. A server may not listen
    yet, and on a busy machine a write may take longer than the time after which a store counts as
    unavailable."""
    while True:
        try:
            if (reply := call(base, "GET", path, headers=headers)).status == status:
                return reply
        except OSError:
            pass
        time.sleep(0.02)


def running(base: str) -> int:
    """Return the number of responses that are being made at present."""
    return int(ready(base).json["running"])


def respond(
    base: str, headers: dict[str, str] | None = None, into: bytearray | None = None, **request: Any
) -> Reply:
    """`POST /v1/responses`."""
    return call(base, "POST", "/v1/responses", {"input": "Hello", **request}, headers, into)


def stream(
    base: str, headers: dict[str, str] | None = None, into: bytearray | None = None, **request: Any
) -> Reply:
    """Make a `POST /v1/responses` whose answer is streamed, and check the stream against every rule."""
    reply = respond(base, headers, into, stream=True, **request)
    assert reply.status == 200, reply.body
    assert violations(reply) == []
    return reply


def response_of(base: str, response_id: str) -> dict[str, Any]:
    """`GET /v1/responses/{id}`."""
    response: dict[str, Any] = call(base, "GET", f"/v1/responses/{response_id}").json
    return response


def output_text(response: dict[str, Any]) -> str:
    """The text of a response, of all its messages."""
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    )


def wait_for(base: str, response_id: str, *statuses: str) -> dict[str, Any]:
    """Wait until the stored response has one of these statuses, and return it."""
    while (response := response_of(base, response_id))["status"] not in statuses:
        time.sleep(0.02)
    return response


def violations(reply: Reply) -> list[str]:
    """The validator's violations in a streamed answer."""
    validator = StreamValidator()
    for frame in reply.frames:
        validator.feed_frame(frame)
    validator.close()
    return [str(violation) for violation in validator.violations]


FAST = Timeouts(connect=1.0, first_byte=1.0, idle=1.2, total=10.0)


HASTY = Timeouts(connect=0.4, first_byte=0.4, idle=0.6, total=10.0)


PATIENT = Timeouts(connect=600.0, first_byte=600.0, idle=600.0, total=600.0)  # longer than any test
