"""Connections to MCP servers: shared, bounded, opened again, and ended together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_server.hosted.mcp import connections as mcp_connections
from openresponses_server.hosted.mcp import transports
from openresponses_server.hosted.mcp.connections import McpConnections, McpFailure, McpServer
from openresponses_server.hosted.mcp.provider import configured_server
from openresponses_server.hosted.mcp.transports import MOST_UNASKED, Traffic
from openresponses_server.settings import Limits, McpServerSettings
from tests.support.documents import REPOSITORY
from tests.support.mcp_servers import (
    Peer,
    in_memory,
    notification,
    reached,
    text_result,
    tool,
    weather_server,
)
from tests.support.waiting import NEVER

KEY = ("configured", "peer")
SMALL = Limits(mcp_message_bytes=4096, mcp_tools=5, mcp_calls_per_key=2)


class Opened:
    """The connections of a test, with one server."""

    def __init__(self, connections: McpConnections) -> None:
        self.connections = connections

    async def tools(self, server: McpServer) -> list[str]:
        return [each.name for each in await self.connections.tools(KEY, server, "me")]

    async def call(self, server: McpServer, name: str = "echo", **arguments: Any) -> str:
        return await self.connections.call(KEY, server, "me", name, arguments)

    @contextmanager
    def hurried(self, **seconds: float) -> Iterator[None]:
        """The server, which is connected, has these times while the context lasts."""
        connection = self.connections._shared[KEY].connection
        assert connection is not None
        server = connection._server
        connection._server = replace(server, **seconds)
        yield
        connection._server = server


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    before = len(asyncio.all_tasks())
    made = Opened(McpConnections(SMALL))
    yield made
    await made.connections.close()
    assert len(asyncio.all_tasks()) == before, "no task is left"


async def failure(work: Any) -> McpFailure:
    with pytest.raises(McpFailure) as raised:
        await work
    return raised.value


async def test_a_server_of_the_sdk_is_listed_and_called(opened: Opened) -> None:
    station = weather_server()
    server = reached(lambda: in_memory(station))
    assert await opened.tools(server) == ["get_forecast", "file_report", "break_down"]
    assert await opened.call(server, "get_forecast", city="Oslo") == "Rain in Oslo tomorrow"
    broken = await failure(opened.call(server, "break_down"))
    assert broken.error("a")["type"] == "mcp_tool_execution_error"
    assert "the station is down" in broken.message
    unknown = await failure(opened.call(server, "no_such_tool"))
    assert "no_such_tool" in unknown.message


async def test_a_connection_is_shared_and_its_list_cached_until_it_changes(opened: Opened) -> None:
    peer = Peer(tools_call=text_result("done"))
    server = reached(peer.connect)
    await asyncio.gather(*(opened.tools(server) for _ in range(5)))
    assert (peer.opened, [name for name, _ in peer.requests].count("tools/list")) == (1, 1)

    async def change(sent: Any) -> None:
        await sent.send(notification("notifications/tools/list_changed"))

    peer.flood = change
    peer.answers["tools/list"] = {"tools": [tool("echo"), tool("more")]}
    assert await opened.call(server) == "done"
    assert await opened.tools(server) == ["echo", "more"]


async def test_s8_a_server_that_hangs_has_the_time_that_it_has(opened: Opened) -> None:
    peer = Peer(tools_call=None)
    server = reached(peer.connect)
    await opened.tools(server)
    with opened.hurried(call_seconds=0.05):
        assert "did not answer within 0.05 seconds" in (await failure(opened.call(server))).message
    peer.answers["tools/call"] = text_result("later")
    assert await opened.call(server) == "later"
    assert peer.opened == 1


async def test_s8_a_server_that_is_never_ready_is_given_up(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_connections, "_FAILED_AGAIN", NEVER)
    peer = Peer(initialize=None, server_discover=None)
    server = reached(peer.connect, start_seconds=0.05)
    assert "was not ready within 0.05 seconds" in (await failure(opened.tools(server))).message
    assert "was not ready" in (await failure(opened.tools(server))).message
    assert peer.opened == 1, "the failure is remembered for a while"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"content": "text"}, "not what the protocol defines"),
        ({}, "not what the protocol defines"),
        ({"content": [{"type": "text", "text": 5}]}, "not what the protocol defines"),
    ],
)
async def test_a_result_of_another_shape_or_size_is_a_failure(opened: Opened, answer: Any, said: str) -> None:
    server = reached(Peer(tools_call=answer).connect)
    assert said in (await failure(opened.call(server))).message
    assert await opened.tools(server) == ["echo"], "the connection stays"


async def test_what_is_not_text_is_named(opened: Opened) -> None:
    content = [
        {"type": "text", "text": "A"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "a:b", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "a:c", "blob": "AAAA", "mimeType": "application/pdf"}},
        {"type": "resource_link", "name": "n", "uri": "a:d"},
    ]
    peer = Peer(tools_call={"content": content})
    server = reached(peer.connect)
    assert await opened.call(server) == (
        "A\n\n[image: image/png]\n\ninside\n\n[application/pdf: a:c]\n\n[n: a:d]"
    )
    peer.answers["tools/call"] = {"content": [], "structuredContent": {"degrees": 5}}
    assert await opened.call(server) == '{"degrees":5}'


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"tools": [tool(f"t{number}") for number in range(6)]}, "more than 5 tools"),
        ({"tools": [tool("big", description="x" * 5000)]}, "more than 4096 bytes"),
        ({"tools": [tool("again")], "nextCursor": "again"}, "more than 100 pages"),
        ({"tools": [{"name": 5}]}, "not what the protocol defines"),
        ("exit", "ended the connection"),
    ],
)
async def test_s8_a_list_is_bounded(opened: Opened, answer: Any, said: str) -> None:
    server = reached(Peer(tools_list=answer).connect)
    assert said in (await failure(opened.tools(server))).message


async def test_tools_that_no_model_can_be_given_are_left_out(opened: Opened) -> None:
    named = [tool("a"), tool("a", description="again"), tool(""), tool("x" * 200), tool("b\n"), tool("ü.c")]
    server = reached(Peer(tools_list={"tools": named}).connect)
    assert await opened.tools(server) == ["a", "ü.c"]


async def test_s8_notifications_without_end_end_the_connection(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "_SLOWLY", 0.0)  # which they come on a busy machine

    async def flood(sent: Any) -> None:
        while True:
            await sent.send(notification("notifications/message"))

    peer = Peer(tools_call=text_result("never"))
    peer.flood = flood
    server = reached(peer.connect)
    assert "sends more than is read" in (await failure(opened.call(server))).message
    await peer.closed.wait()


async def test_a_tool_may_log_for_as_long_as_it_runs() -> None:
    now = 0.0
    traffic = Traffic(4096, lambda: None, lambda: now)
    for _ in range(100):
        now += 1.0
        assert all(traffic.received_message() for _ in range(900))
    assert not all(traffic.received_message() for _ in range(MOST_UNASKED + 1))
    assert traffic.ended.is_set()


async def test_a_server_that_exits_is_connected_to_again(opened: Opened) -> None:
    peer = Peer(tools_call="exit")
    server = reached(peer.connect)
    await opened.tools(server)
    assert "ended the connection" in (await failure(opened.call(server))).message
    assert [name for name, _ in peer.requests].count("tools/call") == 1, "the call is not repeated"
    peer.answers["tools/call"] = text_result("back")
    assert await opened.call(server) == "back"
    assert peer.opened == 2


async def test_s8_calls_at_once_are_bounded_and_a_cancelled_one_ends(opened: Opened) -> None:
    peer = Peer(tools_call=None)
    server = reached(peer.connect)
    await opened.tools(server)
    begun = [asyncio.create_task(opened.call(server)) for _ in range(2)]
    await asyncio.sleep(0)
    assert "2 calls are in progress" in (await failure(opened.call(server))).message
    for each in begun:
        each.cancel()
    await asyncio.wait(begun)
    assert all(each.cancelled() for each in begun)
    peer.answers["tools/call"] = text_result("free")
    assert await opened.call(server) == "free"


async def test_connections_that_requests_named_are_bounded_and_not_shared_by_owners() -> None:
    connections = McpConnections(replace(SMALL, mcp_connections_per_key=2, mcp_connections=3))
    peers = {key: Peer(tools_call=None) for key in "abcd"}

    def use(owner: str, key: str) -> Any:
        return connections.tools(("named", owner, key), reached(peers[key].connect), owner)

    await use("me", "a")
    await use("me", "b")
    await use("me", "c")
    await peers["a"].closed.wait()
    assert not peers["b"].closed.is_set()
    await use("you", "b")
    assert peers["b"].opened == 2
    await connections.close()
    assert peers["c"].closed.is_set()
    assert "the server is stopping" in (await failure(use("me", "d"))).message


async def test_closing_ends_what_is_in_progress_and_what_is_not_ready(opened: Opened) -> None:
    hanging, mute = Peer(tools_call=None), Peer(initialize=None)
    server = reached(hanging.connect)
    await opened.tools(server)
    called = asyncio.create_task(opened.call(server))
    key = ("named", "me", "mute")
    task = asyncio.create_task(opened.connections.tools(key, reached(mute.connect), "me"))
    while not mute.requests:
        await asyncio.sleep(0)
    await opened.connections.close()
    assert "the server is stopping" in (await failure(called)).message
    assert "the server is stopping" in (await failure(task)).message


async def test_those_that_wait_for_a_list_share_it_and_its_failure(opened: Opened) -> None:
    peer = Peer(tools_list=None, tools_call=text_result("connected"))
    server = reached(peer.connect)
    await opened.call(server)
    with opened.hurried(start_seconds=0.05):
        results = await asyncio.gather(*(opened.tools(server) for _ in range(5)), return_exceptions=True)
    assert {type(each) for each in results} == {McpFailure}
    assert [name for name, _ in peer.requests].count("tools/list") == 1


WEATHER = McpServerSettings(
    name="weather",
    command=sys.executable,
    args=[str(REPOSITORY / "tests" / "support" / "mcp_weather.py")],
)


async def test_a_program_is_started_called_and_ended(opened: Opened) -> None:
    server = configured_server(WEATHER)
    assert await opened.tools(server) == ["get_forecast"]
    assert await opened.call(server, "get_forecast", city="Oslo") == "Rain in Oslo tomorrow"


FLOOD = """
import json, sys
about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "f", "version": "1"}}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "tools/list":
        while True: sys.stdout.write("x" * 65536)
    if "id" in asked:
        result = about if asked["method"] == "initialize" else {}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


async def test_s8_a_program_that_floods_is_killed(opened: Opened) -> None:
    server = configured_server(replace(WEATHER, args=["-c", FLOOD]))
    assert "sends more than is read" in (await failure(opened.tools(server))).message
    missing = configured_server(replace(WEATHER, name="missing", command="no-such-program"))
    gone = await failure(opened.connections.tools(("configured", "missing"), missing, "me"))
    assert "its program has ended" in gone.message


DIES = """
import json, os, signal, sys
about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "d", "version": "1"}}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "tools/call":
        with open(sys.argv[1], "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    if "id" in asked:
        result = about if asked["method"] == "initialize" else {"tools": []}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


async def test_a_program_that_dies_in_a_call_is_started_again_and_not_asked_again(
    opened: Opened, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    server = configured_server(replace(WEATHER, args=["-c", DIES, str(ran)]))
    await opened.tools(server)
    for count in (1, 2):
        assert "its program has ended" in (await failure(opened.call(server))).message
        assert ran.read_text() == "x" * count


# by the arguments of a call: `bytes` of a result, in the order of one of the SDKs; `wait` for an other call
TWO = """
import json, sys
about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "t", "version": "1"}}
waiting = []
def answer(id, result):
    ends = {"jsonrpc": "2.0", "id": id}
    whole = {**ends, "result": result} if sys.argv[1] == "first" else {"result": result, **ends}
    print(json.dumps(whole), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "tools/call":
        given = asked["params"]["arguments"]
        if "wait" in given:
            waiting.append(asked["id"])
            continue
        answer(asked["id"], {"content": [{"type": "text", "text": '"id":1}' * given["times"]}]})
        while waiting:
            answer(waiting.pop(), {"content": [{"type": "text", "text": "waited"}]})
    elif "id" in asked:
        answer(asked["id"], about if asked["method"] == "initialize" else {"tools": []})
"""


@pytest.mark.parametrize("order", ["first", "last"])
async def test_s8_a_result_that_is_too_long_fails_its_own_call_and_no_other(
    opened: Opened, order: str
) -> None:
    server = configured_server(replace(WEATHER, args=["-c", TWO, order]))
    waits = asyncio.create_task(opened.connections.call(KEY, server, "you", "t", {"wait": True}))
    for _ in range(3):
        long = await failure(opened.connections.call(KEY, server, "me", "t", {"times": 2000}))
        assert "a message of more than 4096 bytes" in long.message
        assert not long.is_said, "these are our own words"
    assert await waits == "waited"
    connection = opened.connections._shared[KEY].connection
    assert await opened.connections.call(KEY, server, "you", "t", {"times": 1}) == '"id":1}'
    assert opened.connections._shared[KEY].connection is connection, "the program was not started again"


async def test_s8_a_program_that_one_key_ends_serves_another_at_once(opened: Opened, tmp_path: Path) -> None:
    script = DIES.replace(
        'if asked["method"] == "tools/call":', 'if asked.get("params", {}).get("name") == "d":'
    )
    server = configured_server(replace(WEATHER, args=["-c", script, str(tmp_path / "ran")]))
    for _ in range(3):
        died = await failure(opened.connections.call(KEY, server, "me", "d", {}))
        assert "its program has ended" in died.message
        listed = await opened.connections.tools(KEY, server, "you")
        assert listed == []


# reads nothing after a call until a file is there
DEAF = """
import json, os, sys, time
about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "t", "version": "1"}}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "tools/call":
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        result = {"content": [{"type": "text", "text": "read"}]}
    else:
        result = about if asked["method"] == "initialize" else {"tools": []}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


async def test_s8_calls_to_a_program_that_does_not_read_fail_and_those_before_go_on(
    opened: Opened, tmp_path: Path
) -> None:
    server = configured_server(replace(WEATHER, args=["-c", DEAF, str(tmp_path / "read")]))
    first = asyncio.create_task(opened.connections.call(KEY, server, "you", "t", {}))
    big = "x" * 5 * 1024 * 1024
    second = asyncio.create_task(opened.connections.call(KEY, server, "me", "t", {"big": big}))
    third: McpFailure | None = None
    while third is None:
        try:
            async with asyncio.timeout(0.05):
                await opened.connections.call(KEY, server, "me", "t", {})
        except McpFailure as error:
            third = error
        except TimeoutError:
            pass  # the second is not written yet
    assert "does not read" in third.message
    (tmp_path / "read").touch()
    assert await asyncio.gather(first, second) == ["read", "read"]
