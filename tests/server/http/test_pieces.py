"""Pieces of a body that leave in a plain call: the same bytes as by `send`, and only when they may."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from openresponses_server.http.connection import http_protocol
from openresponses_server.http.flow import offered, withdraw
from openresponses_server.settings import Settings
from tests.support.direct_writes import DirectWrites
from tests.support.raw_sockets import HANDSHAKE, raw_connection, raw_websocket, request, ws_frame
from tests.support.serving import serving_app
from tests.support.waiting import wait_until

PIECES = (b"a", b"", b"bc" * 5000, b"0\r\n\r\n", b"\xff")
LARGE = b"x" * 200_000
MANY = 200
Answering = Callable[[Any, Any, Any], Awaitable[None]]


class Application:
    """ASGI, answering with whatever a test wants; `wrote` is what the writes said."""

    def __init__(self) -> None:
        self.answer: Answering = self.by_send
        self.wrote: list[bool] = []
        self.over = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self.answer(scope, receive, send)
        finally:
            self.over += 1

    async def by_send(self, _scope: Any, _receive: Any, send: Any) -> None:
        await begin(send)
        for piece in PIECES:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await end(send)

    async def at_once(self, scope: Any, _receive: Any, send: Any) -> None:
        await begin(send)
        self.wrote += [offered(scope)(piece) for piece in PIECES]
        await end(send)


async def begin(send: Any, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})


async def end(send: Any) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def base(application: Application, written: DirectWrites) -> Iterator[str]:
    settings = Settings()
    options = {"lifespan": "off", "http": http_protocol(settings), "timeout_graceful_shutdown": 1}
    with serving_app(application, 8192, **options) as base:
        yield base


def asked(base: str, application: Application, data: bytes, answers: int = 1) -> bytes:
    """All that comes on one connection, which the client leaves open until the application has answered."""
    over = application.over + answers
    with raw_connection(base) as client:
        client.send(data)
        wait_until(lambda: application.over == over)
        client.socket.shutdown(socket.SHUT_WR)
        return client.read()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_bytes_are_those_of_send(base: str, application: Application, version: str) -> None:
    question = request("/", None, method="GET").replace(b"HTTP/1.1", b"HTTP/" + version.encode())
    sent = asked(base, application, question)
    application.answer = application.at_once
    assert asked(base, application, question) == sent
    assert application.wrote == [True] * len(PIECES)
    assert sent.endswith(b"\r\n0\r\n\r\n")


def test_connection_close_closes_behind_the_last_piece(base: str, application: Application) -> None:
    application.answer = application.at_once
    with raw_connection(base) as client:
        client.send(request("/", None, "Connection: close", method="GET"))
        assert client.read().endswith(b"\r\n0\r\n\r\n")
        client.wait_until_closed()


def test_nothing_is_written_before_the_head_or_behind_the_end(base: str, application: Application) -> None:
    async def answer(scope: Any, _receive: Any, send: Any) -> None:
        write = offered(scope)
        application.wrote.append(write(b"too early"))
        await begin(send)
        application.wrote.append(write(b"in time"))
        await end(send)
        application.wrote.append(write(b"too late"))
        application.wrote.append(offered(scope)(b"too late"))

    application.answer = answer
    got = asked(base, application, request("/", None, method="GET"))
    assert application.wrote == [False, True, False, False]
    assert got.endswith(b"\r\n\r\n7\r\nin time\r\n0\r\n\r\n")


def test_answer_with_a_length_is_for_send(base: str, application: Application) -> None:
    async def answer(scope: Any, _receive: Any, send: Any) -> None:
        await begin(send, (b"content-length", b"2"))
        application.wrote.append(offered(scope)(b"no"))
        await send({"type": "http.response.body", "body": b"ok"})

    application.answer = answer
    assert asked(base, application, request("/", None, method="GET")).endswith(b"\r\n\r\nok")
    assert application.wrote == [False]


@pytest.mark.parametrize("headers", [(), ((b"transfer-encoding", b"chunked"),)])
def test_head_has_no_body(base: str, application: Application, headers: tuple[Any, ...]) -> None:
    async def answer(scope: Any, _receive: Any, send: Any) -> None:
        await begin(send, *headers)
        application.wrote.append(offered(scope)(b"no"))
        await end(send)

    application.answer = answer
    assert asked(base, application, request("/", None, method="HEAD")).endswith(b"\r\n\r\n")
    assert application.wrote == [False]


def test_middleware_can_have_it_all_through_send(base: str, application: Application) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        withdraw(scope)
        await application.at_once(scope, receive, send)

    application.answer = answer
    asked(base, application, request("/", None, method="GET"))
    assert application.wrote == [False] * len(PIECES)


def test_s4_what_fills_the_buffer_is_the_last_before_the_client_is_waited_for(
    base: str, application: Application, written: DirectWrites
) -> None:
    async def answer(scope: Any, _receive: Any, send: Any) -> None:
        write = offered(scope)
        await begin(send)
        for _ in range(MANY):
            if not write(LARGE):
                await send({"type": "http.response.body", "body": LARGE, "more_body": True})
        await end(send)

    application.answer = answer
    with raw_connection(base, reads_little=True) as client:
        client.send(request("/", None, method="GET"))
        wait_until(lambda: written.refused > 0)
        time.sleep(0.2)
        assert (written.refused, application.over) == (1, 0)
        assert written.count < MANY // 2
        client.widen()
        got = client.read(until=b"\r\n0\r\n\r\n")
    assert got.count(b"x") == MANY * len(LARGE)
    assert written.count + written.refused == MANY
    assert written.paused == 0
    assert written.held <= HIGH_WATER_LIMIT + len(LARGE)


def test_pipelined_answers_do_not_mix(base: str, application: Application) -> None:
    """A writer of the second one is there before the first has ended."""
    number = 0

    async def answer(scope: Any, _receive: Any, send: Any) -> None:
        nonlocal number
        number += 1
        mine = b"%d" % number
        await begin(send)
        for _ in range(20):
            application.wrote.append(offered(scope)(mine))
            await asyncio.sleep(0.005)
        await end(send)

    application.answer = answer
    with raw_connection(base) as client:
        client.send(request("/", None, method="GET") * 2)
        got = client.read(until=b"1\r\n2\r\n0\r\n\r\n")
    first, second = got.split(b"HTTP/1.1 200 OK\r\n")[1:]
    for body, mine in ((first, b"1"), (second, b"2")):
        assert body.partition(b"\r\n\r\n")[2] == b"1\r\n%s\r\n" % mine * 20 + b"0\r\n\r\n"
    assert all(application.wrote)


@pytest.mark.parametrize("half", [False, True])
def test_client_that_leaves_is_written_nothing(base: str, application: Application, half: bool) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        write = offered(scope)
        await begin(send)
        write(b"first")
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass
        application.wrote += [write(b"late"), offered(scope)(b"late")]

    application.answer = answer
    with raw_connection(base) as client:
        client.send(request("/", None, method="GET"))
        client.read(until=b"first")
        client.socket.shutdown(socket.SHUT_WR) if half else client.socket.close()
        wait_until(lambda: application.over == 1)
    assert application.wrote == [False, False]


def test_crash_behind_a_piece_cuts_the_answer_off(base: str, application: Application) -> None:
    async def answer(scope: Any, _receive: Any, send: Any) -> None:
        await begin(send)
        application.wrote.append(offered(scope)(b"first"))
        raise OSError("crash")

    application.answer = answer
    with raw_connection(base) as client:
        client.send(request("/", None, method="GET"))
        assert client.read().endswith(b"\r\n\r\n5\r\nfirst\r\n")
        client.wait_until_closed()
    assert application.wrote == [True]


@pytest.mark.parametrize("crashes", [False, True])
def test_nothing_of_it_stays_in_a_scope(
    base: str, application: Application, written: DirectWrites, crashes: bool
) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if crashes:
            await begin(send)
            raise OSError("crash")
        await application.at_once(scope, receive, send)

    application.answer = answer
    asked(base, application, request("/", None, method="GET") * 3, answers=1 if crashes else 3)
    assert len(written.scopes) == 3
    wait_until(lambda: not any("extensions" in scope for scope in written.scopes))  # type: ignore[operator]


def test_websocket_is_written_to_between_its_handshake_and_its_close(
    base: str, application: Application
) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        write = offered(scope)
        await receive()
        application.wrote.append(write(b"too early"))
        await send({"type": "websocket.accept"})
        await receive()
        application.wrote.append(write("in time ü".encode()))
        if (await receive()).get("text") == "close":
            await send({"type": "websocket.close", "code": 1000})
        application.wrote.append(write(b"too late"))

    application.answer = answer
    for number, ends in enumerate((ws_frame(1, b"close"), ws_frame(8, b"\x03\xe8"), b""), 1):
        with raw_websocket(base) as client:
            client.send(ws_frame(1, b"begin"))
            assert client.read(until=b"\xc3\xbc") == b"\x81\x0ain time \xc3\xbc"
            if ends:
                client.send(ends)
                assert client.read(until=b"\x88\x02\x03\xe8") == b"\x88\x02\x03\xe8"
            else:
                client.socket.close()
            wait_until(lambda number=number: application.over == number)  # type: ignore[misc]
    assert application.wrote == [False, True, False] * 3


def test_websocket_that_is_refused_is_not_written_to(base: str, application: Application) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.close", "code": 1000})
        application.wrote.append(offered(scope)(b"no"))

    application.answer = answer
    assert b" 403 " in asked(base, application, HANDSHAKE + b"\r\n")
    assert application.wrote == [False]
