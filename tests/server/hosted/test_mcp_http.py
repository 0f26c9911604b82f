"""MCP servers over streamable HTTP: through our own client, bounded, with secrets that stay with it."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import uvicorn

from openresponses_server.hosted.mcp.connections import McpConnections, McpFailure, McpServer
from openresponses_server.hosted.mcp.provider import server_at
from openresponses_server.settings import Limits
from tests.support.logs import log_as_in_production
from tests.support.mcp_http import HttpPeer
from tests.support.mcp_servers import weather_server
from tests.support.upstream import CUT, HANG, JSON, Received, Script, ScriptedUpstream

pytestmark = pytest.mark.timeout(60)
SECRET = "hidden-authorization-0123456789"


def server_of(peer: HttpPeer, **fields: Any) -> McpServer:
    given = {"label": "http", "secrets": [SECRET], "times": (5.0, 5.0, 60.0)} | fields
    headers = {"authorization": f"Bearer {SECRET}", "x-tenant": "one"}
    return server_at(f"{peer.upstream.url}/mcp?k={SECRET}", headers, **given)


@pytest.fixture
def peer() -> Iterator[HttpPeer]:
    with ScriptedUpstream() as upstream:
        yield HttpPeer(upstream)


@pytest.fixture
async def connections() -> AsyncIterator[McpConnections]:
    made = McpConnections(Limits(mcp_message_bytes=4096))
    yield made
    await made.close()


def use(connections: McpConnections, server: McpServer, name: str | None = None) -> Any:
    key = ("named", "me", "http")
    if name is None:
        return connections.tools(key, server, "me")
    return connections.call(key, server, "me", name, {"city": "Oslo"})


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


async def failure(work: Any) -> str:
    with pytest.raises(McpFailure) as raised:
        await work
    return raised.value.message


async def test_s7_a_server_gets_its_headers_and_nobody_else_sees_them(
    peer: HttpPeer, connections: McpConnections, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    peer.results["tools/call"] = text(f"You are {SECRET}")
    log = io.StringIO()
    log_as_in_production(log)
    assert [each.name for each in await use(connections, server_of(peer))] == ["echo"]
    assert await use(connections, server_of(peer), "echo") == "You are [key]"
    peer.results["tools/call"] = None
    refused = await failure(use(connections, server_of(peer), "no"))
    log_as_in_production()
    (called, _) = peer.asked("tools/call")
    assert called.headers["authorization"] == f"Bearer {SECRET}"
    assert (called.headers["x-tenant"], called.headers["mcp-session-id"]) == ("one", "session-1")
    assert called.headers["host"] in peer.upstream.url, "the server's own name, not the one that the SDK has"
    assert called.body["params"]["arguments"] == {"city": "Oslo"}
    assert SECRET not in refused + log.getvalue() + caplog.text


async def test_a_session_that_the_server_forgot_is_begun_again(
    peer: HttpPeer, connections: McpConnections
) -> None:
    peer.results["tools/call"] = text("done")
    assert await use(connections, server_of(peer), "echo") == "done"
    peer.session = 2
    assert await use(connections, server_of(peer), "echo") == "done"
    assert [len(peer.asked(each)) for each in ("initialize", "tools/call")] == [2, 3]


async def test_a_server_of_the_sdk_over_http(connections: McpConnections) -> None:
    station = weather_server()
    config = uvicorn.Config(station.streamable_http_app(), port=0, log_config=None, lifespan="on")
    running = uvicorn.Server(config)
    serving = asyncio.create_task(running.serve())
    while not running.started:
        await asyncio.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    server = server_at(f"http://127.0.0.1:{port}/mcp", {}, label="sdk", secrets=[])
    assert [each.name for each in await use(connections, server)] == [
        "get_forecast",
        "file_report",
        "break_down",
    ]
    assert await use(connections, server, "get_forecast") == "Rain in Oslo tomorrow"
    assert "the station is down" in await failure(use(connections, server, "break_down"))
    await connections.close()
    running.should_exit = True
    await serving


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (Script([b"x" * 65536] * 100, headers=JSON), "more than 4096 bytes"),
        (Script([b"data: " + b"x" * 65536] * 100), "more than 4096 bytes"),
        (Script([b": x\n\n" * 4096] * 100), "SSE"),
        (Script([b"{}"], headers=JSON), "parse"),
        (Script([b"<html>"], headers={"content-type": "text/html"}), "text/html"),
        (Script([b"no"], 401, {}), "answered with status 401"),
        (Script(status=307, headers={"location": "http://169.254.169.254/"}), "redirects to another server"),
        (Script(status=307, headers={"location": "/mcp"}), "redirects in a circle"),
        (Script(status=202, headers={}), "202"),
        (Script([b"{", CUT], headers=JSON), "it closed the connection"),
    ],
)
async def test_s8_an_answer_that_is_none_fails_its_call_alone(
    peer: HttpPeer, connections: McpConnections, script: Script, said: str
) -> None:
    await use(connections, server_of(peer))
    peer.results["tools/call"] = script
    assert said in await failure(use(connections, server_of(peer), "echo"))
    peer.results["tools/call"] = text("done")
    assert await use(connections, server_of(peer), "echo") == "done"
    assert len(peer.asked("initialize")) == 1, "the session stays"


async def test_a_call_is_not_sent_again_when_its_connection_ends_without_an_answer(
    peer: HttpPeer, connections: McpConnections
) -> None:
    """The server may have done what it was asked for. What only asks is sent again."""
    peer.results["tools/call"] = text("done")
    assert await use(connections, server_of(peer), "echo") == "done"
    answers = peer.upstream.answer
    assert answers is not None

    def leave(received: Received) -> Script:
        raise ConnectionResetError

    peer.upstream.answer = leave
    assert "it closed the connection" in await failure(use(connections, server_of(peer), "echo"))
    assert len(peer.asked("tools/call")) == 2
    peer.upstream.answer = answers
    assert await use(connections, server_of(peer), "echo") == "done"
    connections._shared["named", "me", "http"].connection._changes += 1  # type: ignore[union-attr]
    asked = len(peer.asked("tools/list"))

    def leave_once(received: Received) -> Script:
        peer.upstream.answer = answers
        raise ConnectionResetError

    peer.upstream.answer = leave_once
    assert [each.name for each in await use(connections, server_of(peer))] == ["echo"]
    assert len(peer.asked("tools/list")) == asked + 2


async def test_s8_a_server_that_never_answers_has_its_time(
    peer: HttpPeer, connections: McpConnections
) -> None:
    server = server_of(peer, times=(5.0, 0.2, 60.0))
    await use(connections, server)
    peer.results["tools/call"] = Script([HANG], headers=JSON)
    assert "did not answer within 0.2 seconds" in await failure(use(connections, server, "echo"))


async def test_s10_no_address_of_this_network(peer: HttpPeer, connections: McpConnections) -> None:
    said = await failure(use(connections, server_of(peer, is_public=True)))
    assert "can't be reached" in said
    assert not peer.upstream.connections
