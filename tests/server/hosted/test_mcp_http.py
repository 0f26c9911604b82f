"""MCP servers over streamable HTTP: through our own client, bounded, with secrets that stay with it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import uvicorn
from msgspec.structs import replace

from openresponses_server.hosted.mcp import transports
from openresponses_server.hosted.mcp.connections import McpConnection, McpConnections, McpFailure, McpServer
from openresponses_server.hosted.mcp.provider import configured_server, server_at
from openresponses_server.settings import Limits, McpServerSettings
from tests.support.documents import REPOSITORY
from tests.support.logs import log_as_in_production
from tests.support.mcp_http import HttpPeer
from tests.support.mcp_servers import weather_server
from tests.support.upstream import CUT, HANG, JSON, Received, Script, ScriptedUpstream
from tests.support.waiting import until

SECRET = "hidden-authorization-0123456789"


def server_of(peer: HttpPeer, **fields: Any) -> McpServer:
    options = {"label": "http", "secrets": [SECRET], "times": (5.0, 5.0, 60.0)} | fields
    headers = {"authorization": f"Bearer {SECRET}", "x-tenant": "one"}
    return server_at(f"{peer.upstream.url}/mcp?k={SECRET}", headers, **options)


@pytest.fixture
def peer() -> Iterator[HttpPeer]:
    with ScriptedUpstream() as upstream:
        yield HttpPeer(upstream)


@pytest.fixture
async def connections() -> AsyncIterator[McpConnections]:
    pool = McpConnections(Limits(mcp_message_bytes=4096))
    yield pool
    await pool.close()


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


async def test_s7_no_part_of_a_tool_shows_what_its_server_was_given(
    peer: HttpPeer, connections: McpConnections
) -> None:
    peer.results["tools/list"] = {
        "tools": [
            {"name": f"use_{SECRET}", "inputSchema": {"type": "object"}},
            {
                "name": "echo",
                "title": SECRET,
                "description": f"Use {SECRET}.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        SECRET: {"enum": [SECRET, 1], "default": SECRET, "description": f"a {SECRET}"}
                    },
                },
                "annotations": {"title": f"by {SECRET}", "readOnlyHint": True},
            },
        ]
    }
    (tool,) = await use(connections, server_of(peer))
    assert tool.name == "echo"
    assert tool.is_read_only
    assert SECRET not in msgspec.json.encode(tool).decode()
    assert "[key]" in tool.input_schema["properties"]


@pytest.mark.parametrize("kind", ["json", "stream"])
async def test_s7_an_answer_that_can_t_be_read_is_not_quoted(
    peer: HttpPeer, connections: McpConnections, kind: str
) -> None:
    """Neither what it has of a key, nor where the SDK's library cuts it."""
    await use(connections, server_of(peer))
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": f"the key is {SECRET}"}).encode()
    peer.results["tools/call"] = Script(
        *(([body], 200, JSON) if kind == "json" else ([b"data: " + body + b"\n\n"],))
    )
    message = await failure(use(connections, server_of(peer), "echo"))
    assert message == "its answer is not what the protocol defines"


@pytest.mark.parametrize("over", ["http", "program"])
async def test_half_a_surrogate_in_arguments_fails_no_other_call(
    peer: HttpPeer, connections: McpConnections, over: str
) -> None:
    peer.results["tools/call"] = text("done")
    weather = McpServerSettings(
        name="w", command=sys.executable, args=[str(REPOSITORY / "tests" / "support" / "mcp_weather.py")]
    )
    server = server_of(peer) if over == "http" else configured_server(weather)
    key = ("configured", over)
    name = "echo" if over == "http" else "get_forecast"
    calls = [
        connections.call(key, server, who, name, {"city": city})
        for who, city in (("me", "\ud800"), ("you", "Oslo"), ("me", "a\udc00b"), ("you", "Rome"))
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert not [each for each in results if isinstance(each, BaseException)]
    assert await connections.call(key, server, "you", name, {"city": "Oslo"})
    assert connections._shared[key].connection is not None
    if over == "http":
        assert len(peer.asked("initialize")) == 1


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


async def test_arguments_that_can_t_be_sent_fail_no_other_call(
    peer: HttpPeer, connections: McpConnections
) -> None:
    finish = threading.Event()
    key, server = ("configured", "http"), server_of(peer)
    respond = peer.upstream.answer
    assert respond is not None

    def wait(received: Received) -> Script:
        script = respond(received)
        is_call = received.body.get("method") == "tools/call"
        return replace(script, steps=once(finish, *script.steps)) if is_call else script

    peer.upstream.answer = wait
    peer.results["tools/call"] = text("done")
    other = asyncio.create_task(connections.call(key, server, "you", "echo", {}))
    while not peer.asked("tools/call"):
        await asyncio.sleep(0.005)
    assert "can't be sent" in await failure(connections.call(key, server, "me", "echo", {"a": nested(400)}))
    finish.set()
    assert await other == "done"
    assert len(peer.asked("initialize")) == 1


def once(event: threading.Event, *steps: Any) -> Any:
    """The steps of a script, once the event has happened."""
    while not event.is_set():
        yield 0.005
    yield from steps


def answered(received: Received, said: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": received.body["id"], "result": text(said)}).encode()


@pytest.mark.parametrize("ends", ["answered", "cut"])
async def test_only_a_call_that_was_itself_refused_is_sent_in_another_session(
    peer: HttpPeer, connections: McpConnections, ends: str
) -> None:
    """Call 1 runs when call 2, of another client, is told that the server has forgotten the session."""
    server, key = server_of(peer), ("configured", "http")
    finish = threading.Event()
    respond = peer.upstream.answer
    assert respond is not None

    def play(received: Received) -> Script:
        script = respond(received)
        if received.body.get("method") != "tools/call" or script.status != 200:
            return script
        who = received.body["params"]["arguments"]["who"]
        end = answered(received, who) if ends == "answered" else CUT
        return replace(script, steps=once(finish, end) if who == "first" else [answered(received, who)])

    peer.upstream.answer = play
    peer.results["tools/call"] = text("")
    first = asyncio.create_task(connections.call(key, server, "first", "echo", {"who": "first"}))
    while not peer.asked("tools/call"):
        await asyncio.sleep(0.005)
    peer.session = 2
    assert await connections.call(key, server, "second", "echo", {"who": "second"}) == "second"
    finish.set()
    if ends == "answered":
        assert await first == "first", "a call that runs is not given up"
    else:
        assert "it closed the connection" in await failure(first)
    sent = [each.body["params"]["arguments"]["who"] for each in peer.asked("tools/call")]
    assert sent == ["first", "second", "second"]
    assert len(peer.asked("initialize")) == 2


async def test_a_call_is_sent_once_more_and_not_for_ever_to_a_server_that_forgets(
    peer: HttpPeer, connections: McpConnections
) -> None:
    await use(connections, server_of(peer))
    respond = peer.upstream.answer
    assert respond is not None

    def forget(received: Received) -> Script:
        return (
            Script([b"gone"], 404, {}) if received.body.get("method") == "tools/call" else respond(received)
        )

    peer.upstream.answer = forget
    assert "it has ended the session" in await failure(use(connections, server_of(peer), "echo"))
    assert len(peer.asked("tools/call")) == 2
    peer.upstream.answer = respond
    peer.results["tools/call"] = text("done")
    assert await use(connections, server_of(peer), "echo") == "done"


async def test_a_server_can_not_say_that_a_call_is_to_be_sent_again(
    peer: HttpPeer, connections: McpConnections
) -> None:
    await use(connections, server_of(peer))
    error = {"code": -32000, "message": "it has ended the session", "data": ["", True]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode()
    peer.results["tools/call"] = Script([body], 400, JSON)
    assert "it has ended the session" in await failure(use(connections, server_of(peer), "echo"))
    assert len(peer.asked("tools/call")) == 1


async def test_a_server_of_the_sdk_over_http(connections: McpConnections) -> None:
    station = weather_server()
    config = uvicorn.Config(station.streamable_http_app(), port=0, ws="none", log_config=None, lifespan="on")
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
        (Script([b"{}"], headers=JSON), "not what the protocol defines"),
        (Script([b"data: {}\n\n"]), "not what the protocol defines"),
        (Script([b"<html>"], headers={"content-type": "text/html"}), "text/html"),
        (Script([b"no"], 401, {}), "answered with status 401"),
        (Script(status=307, headers={"location": "http://169.254.169.254/"}), "redirects to another server"),
        (Script(status=307, headers={"location": "/mcp"}), "redirects in a loop"),
        (Script(status=307, headers={"location": "http://[/"}), "can't be reached"),
        (Script(status=307, headers={"location": "/\u00ff\x01"}), "redirects in a loop"),
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
    before = len(peer.asked("tools/list"))

    def leave_once(received: Received) -> Script:
        peer.upstream.answer = answers
        raise ConnectionResetError

    peer.upstream.answer = leave_once
    assert [each.name for each in await use(connections, server_of(peer))] == ["echo"]
    assert len(peer.asked("tools/list")) == before + 2


async def test_s8_a_server_that_never_answers_has_its_time(
    peer: HttpPeer, connections: McpConnections
) -> None:
    server = server_of(peer, times=(5.0, 0.2, 60.0))
    await use(connections, server)
    peer.results["tools/call"] = Script([HANG], headers=JSON)
    assert "did not answer within 0.2 seconds" in await failure(use(connections, server, "echo"))


@pytest.mark.parametrize(
    "script",
    [
        Script([HANG], headers=JSON),
        Script([b": still there\n\n", HANG]),
        Script([b"{", HANG], 500, JSON),
    ],
    ids=["json", "stream", "refusal"],
)
async def test_s8_a_call_that_was_given_up_keeps_no_connection(
    peer: HttpPeer, connections: McpConnections, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK goes on reading: a tool that hangs would take one connection after the other."""
    clients: list[Any] = []

    class Noted(transports._OurClient):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            clients.append(self)

    within, limit = McpConnection._within, 3600.0

    async def limited(self: McpConnection, work: Any, _seconds: float) -> Any:
        return await within(self, work, limit)

    monkeypatch.setattr(transports, "_OurClient", Noted)
    monkeypatch.setattr(McpConnection, "_within", limited)
    server = server_of(peer)
    await use(connections, server)
    (client,) = clients
    client._seconds = limit = 0.1  # from now on
    peer.results["tools/call"] = script
    assert "did not answer" in await failure(use(connections, server, "echo"))
    await until(lambda: peer.asked("tools/call"))
    (called,) = peer.asked("tools/call")
    await until(lambda: called.gone_at is not None)
    client._seconds = limit = 3600.0
    peer.results["tools/call"] = text("done")
    assert await use(connections, server, "echo") == "done"
    assert len(peer.asked("initialize")) == 1, "the session stays"


async def test_s8_names_that_one_key_has_looked_up_hold_up_no_other_key(
    peer: HttpPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hosts are ones that the operator allows, and their name server does not answer."""
    answered = threading.Event()
    hosts: list[str] = []
    look_up = socket.getaddrinfo

    def slow(host: Any, *rest: Any, **options: Any) -> Any:
        hosts.append(host)
        if str(host).startswith("slow"):
            assert answered.wait(60)
        return look_up("127.0.0.1", *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    connections = McpConnections(Limits())
    port = urlsplit(peer.upstream.url).port

    def open_at(owner: str, host: str) -> Any:
        server = server_at(f"http://{host}:{port}/mcp", {}, label="http", secrets=[])
        return connections.tools(("named", owner, host), server, owner)

    try:
        mine = [asyncio.create_task(open_at("me", f"slow{n}.internal")) for n in range(16)]
        while not hosts:
            await asyncio.sleep(0.005)
        assert [each.name for each in await open_at("you", "quick.internal")] == ["echo"]
        assert await asyncio.to_thread(lambda: "free") == "free"
        assert len([each for each in hosts if each.startswith("slow")]) == 1, "one at a time of one key"
    finally:
        answered.set()
        for each in mine:
            each.cancel()
        await connections.close()


async def test_s10_no_address_of_this_network(peer: HttpPeer, connections: McpConnections) -> None:
    message = await failure(use(connections, server_of(peer, is_public=True)))
    assert "can't be reached" in message
    assert not peer.upstream.connections
