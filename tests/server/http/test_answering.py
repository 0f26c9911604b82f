"""What is written past uvicorn's own `send` is what that would have written."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from openresponses_server.http import connection

_TYPE = (b"content-type", b"application/json")
_LENGTH = (b"content-length", b"4")


class _Transport:
    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def _start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def _body(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


_ANSWERS: dict[str, list[dict[str, Any]]] = {
    "a whole one": [_start(_TYPE, _LENGTH), _body(b"true")],
    "chunks": [_start(_TYPE), _body(b"tr", more=True), _body(b"", more=True), _body(b"ue")],
    "chunks that end with none": [_start(_TYPE), _body(b"true", more=True), _body(b"")],
    "nothing": [_start(_TYPE), _body(b"")],
    "no content": [_start(status=204), _body(b"")],
    "a length in two pieces": [_start(_LENGTH), _body(b"tr", more=True), _body(b"ue")],
    "less than its length": [_start(_LENGTH), _body(b"tr")],
    "more than its length": [_start(_LENGTH), _body(b"truer")],
    "two lengths": [_start(_LENGTH, (b"content-length", b"9")), _body(b"true")],
    "a length that is not one": [_start((b"content-length", b"four")), _body(b"true")],
    "a connection that ends": [_start(_LENGTH, (b"connection", b"close")), _body(b"true")],
    "chunks of its own": [_start((b"transfer-encoding", b"chunked")), _body(b"true")],
    "a name in capitals": [_start(_LENGTH, (b"X-Name", b"1")), _body(b"true")],
    "a line end in a value": [_start(_LENGTH, (b"x-name", b"1\r\nx-other: 2")), _body(b"true")],
    "a line end in a name": [_start(_LENGTH, (b"x-name: 1\r\nx-other", b"2")), _body(b"true")],
    "a colon in a name": [_start(_LENGTH, (b"x-name: 1", b"2")), _body(b"true")],
    "bytes beyond ASCII": [_start(_LENGTH, (b"x-name", b"caf\xe9")), _body(b"true")],
    "a body first": [_body(b"true")],
    "two heads": [_start(_TYPE), _start(_TYPE)],
    "something behind its end": [_start(_LENGTH), _body(b"true"), _body(b"true")],
}


def _cycle(method: str, keep_alive: bool) -> tuple[RequestResponseCycle, _Transport, list[str]]:
    transport: Any = _Transport()
    ended: list[str] = []
    cycle = RequestResponseCycle(
        scope={"type": "http", "method": method, "path": "/", "http_version": "1.1"},  # type: ignore[arg-type]
        transport=transport,
        flow=FlowControl(transport),
        logger=logging.getLogger("a test"),
        access_logger=logging.getLogger("a test"),
        access_log=False,
        default_headers=[(b"date", b"today")],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=lambda: ended.append("ended"),
    )
    return cycle, transport, ended


async def _seen(answer: list[dict[str, Any]], method: str, keep_alive: bool, ours: bool) -> list[Any]:
    cycle, transport, ended = _cycle(method, keep_alive)
    failure = ""
    try:
        for message in answer:
            await (connection.send(cycle, message) if ours else cycle.send(message))  # type: ignore[arg-type]
    except (RuntimeError, ValueError) as error:
        failure = type(error).__name__
    over = cycle.response_complete, cycle.response_started, cycle.message_event.is_set()
    return [transport.written, transport.closed, ended, failure, over, cycle.expected_content_length]


@pytest.mark.parametrize("answer", _ANSWERS.values(), ids=_ANSWERS.keys())
@pytest.mark.parametrize("method", ["POST", "HEAD"])
@pytest.mark.parametrize("keep_alive", [True, False])
async def test_it_is_written_as_uvicorn_writes_it(
    answer: list[dict[str, Any]], method: str, keep_alive: bool
) -> None:
    ours, theirs = [await _seen(answer, method, keep_alive, each) for each in (True, False)]
    if theirs[3]:  # how much of an answer that is refused has left differs
        assert ours[3] == theirs[3]
    else:
        assert ours == theirs


async def test_nothing_is_written_for_a_client_that_has_left() -> None:
    cycle, transport, _ = _cycle("POST", True)
    cycle.disconnected = True
    await connection.send(cycle, _start(_LENGTH))
    assert transport.written == b""


async def test_a_client_that_takes_nothing_is_waited_for() -> None:
    cycle, transport, _ = _cycle("POST", True)
    cycle.flow.pause_writing()
    sending = asyncio.ensure_future(connection.send(cycle, _start(_LENGTH)))
    await asyncio.sleep(0)
    assert (transport.written, sending.done()) == (b"", False)
    cycle.flow.resume_writing()
    await sending
    assert transport.written.startswith(b"HTTP/1.1 200 OK\r\n")
