"""MCP servers as a request declares them: which are allowed, their tools, and what needs approval."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownTool
from openresponses_server.errors import HttpError
from openresponses_server.hosted.base import HostedCall, HostedContext
from openresponses_server.hosted.mcp import approvals
from openresponses_server.hosted.mcp.approvals import Approvals
from openresponses_server.hosted.mcp.declared import declared_of, function_name, headers_of, is_allowed
from openresponses_server.hosted.mcp.provider import McpServers, McpToolSet, check_servers
from openresponses_server.settings import McpServerSettings, Settings, SettingsError, load_settings
from openresponses_server.store.base import ResponseStore
from openresponses_server.store.memory import MemoryStore
from tests.support.clocks import Clock
from tests.support.failing_store import FailingStore
from tests.support.mcp_servers import (
    Peer,
    in_memory,
    notification,
    reached,
    text_result,
    tool,
    weather_server,
)

ME = HostedContext("me", 1000, 5.0)
READS = {"annotations": {"readOnlyHint": True}}


class Station:
    """An application with one server of its settings, `weather`, which is in memory."""

    def __init__(self, *keys: bytes, store: ResponseStore | None = None, **fields: Any) -> None:
        configured = McpServerSettings(name="weather", command="unused", **fields)
        settings = Settings(mcp_servers=[configured], mcp_hosts=["mcp.example"])
        self.servers = McpServers(settings, lambda: keys or (b"k" * 32,), (store or MemoryStore()).use_once)
        self.peer = Peer(tools_list={"tools": [tool("read", **READS), tool("write")]})
        self.peer.answers["tools/call"] = lambda asked: text_result(json.dumps(asked["arguments"]))
        self.servers._servers["weather"] = reached(self.peer.connect)

    async def tools(self, context: HostedContext = ME, **fields: Any) -> McpToolSet:
        declared = {"type": "mcp", "server_label": "weather", **fields}
        return await self.servers.open(UnknownTool(declared), context)

    @property
    def ran(self) -> list[dict[str, Any]]:
        return [
            parameters["arguments"] for method, parameters in self.peer.requests if method == "tools/call"
        ]


@pytest.fixture
async def station() -> AsyncIterator[Callable[..., Station]]:
    stations: list[Station] = []

    def make(*keys: bytes, **fields: Any) -> Station:
        stations.append(Station(*keys, **fields))
        return stations[-1]

    yield make
    for each in stations:
        await each.servers.close()


def call(name: str, arguments: str = "{}", approval_id: str | None = None) -> HostedCall:
    return HostedCall("call_1", function_name("weather", name), arguments, approval_id)


async def test_a_call_of_the_sdks_server_is_an_item_with_openais_fields() -> None:
    rig = Station()
    server = weather_server()
    rig.servers._servers["weather"] = reached(lambda: in_memory(server))
    tools = await rig.tools(server_description="About rain.", require_approval="never")
    assert [each.name for each in tools.functions] == [
        "mcp__weather__get_forecast",
        "mcp__weather__file_report",
        "mcp__weather__break_down",
    ]
    assert tools.functions[0].description == "About rain.\n\nThe weather of tomorrow"
    assert tools.functions[0].parameters["required"] == ["city"]
    (listed,) = tools.preface
    assert listed["tools"][0]["annotations"] == {"readOnlyHint": True}
    tool_call = call("get_forecast", '{"city":"Oslo"}')
    assert tools.is_repeatable(tool_call)
    assert not tools.is_repeatable(call("file_report"))
    result = await tools.run(tool_call)
    item = tools.announce(tool_call) | result.item
    assert item == {
        "type": "mcp_call",
        "server_label": "weather",
        "name": "get_forecast",
        "arguments": '{"city":"Oslo"}',
        "status": "completed",
        "approval_request_id": None,
        "output": "Rain in Oslo tomorrow",
        "error": None,
    }
    assert [kind for kind, _ in tools.progress(tool_call)] == [
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
    ]
    broken = await tools.run(call("break_down"))
    assert (broken.failed, broken.item["status"]) == (True, "failed")
    assert broken.item["error"]["type"] == "mcp_tool_execution_error"
    for each in (item, tools.announce(tool_call) | broken.item):
        recalled = rig.servers.recall(UnknownItem(each), upstream_has=False)
        assert recalled is not None
        assert recalled.output in ("Rain in Oslo tomorrow", broken.output)
    long = await rig.tools(HostedContext("me", 40, 5.0), require_approval="never")
    cut = await long.run(call("get_forecast", json.dumps({"city": "x" * 100})))
    assert (len(cut.output), cut.output[-5:]) == (40, "[cut]")
    assert cut.item["output"] == cut.output
    cut = await long.run(call("x" * 100))
    assert len(cut.item["error"]["message"]) <= 40
    malformed = await tools.run(call("get_forecast", '["Oslo"'))
    assert malformed.item["arguments"] == '["Oslo"'
    assert "not a JSON object" in malformed.output
    assert server.calls == [("get_forecast", "Oslo"), ("get_forecast", "x" * 100)]  # type: ignore[attr-defined]
    await rig.servers.close()


@pytest.mark.parametrize(
    ("allowed", "ours", "found"),
    [
        (None, None, ["read", "write"]),
        (["write", "other"], None, ["write"]),
        ({"tool_names": ["read"]}, None, ["read"]),
        ({"read_only": True}, None, ["read"]),
        ({"read_only": False}, None, ["write"]),
        ({"tool_names": ["write"], "read_only": True}, None, []),
        ({}, None, ["read", "write"]),
        ([], None, []),
        (["read", "write"], ["read"], ["read"]),
        (None, ["read"], ["read"]),
    ],
)
async def test_allowed_tools_are_the_requests_and_the_operators(
    station: Callable[..., Station], allowed: Any, ours: Any, found: list[str]
) -> None:
    tools = await station(allowed_tools=ours).tools(allowed_tools=allowed)
    assert [each.name for each in tools.functions] == [function_name("weather", name) for name in found]
    assert [each["name"] for each in tools.preface[0]["tools"]] == found
    hidden = await tools.run(call("hidden"))
    assert hidden.failed


@pytest.mark.parametrize(
    ("required", "ours", "asked"),
    [
        (None, "never", {"read", "write"}),
        ("always", "never", {"read", "write"}),
        ("never", "never", set()),
        ("never", "always", {"read", "write"}),
        ("never", ["write"], {"write"}),
        ({"never": {"tool_names": ["read"]}}, "never", {"write"}),
        ({"never": {"read_only": True}}, "never", {"write"}),
        ({"always": {"tool_names": ["write"]}}, "never", {"write"}),
        ({"always": {"read_only": False}}, "never", {"write"}),
        ({"always": {"tool_names": ["read"]}, "never": {"tool_names": ["read", "write"]}}, "never", {"read"}),
        ({"always": {"tool_names": ["read"]}, "never": {"tool_names": []}}, "never", {"read", "write"}),
        ({"never": {}}, "never", {"read", "write"}),
        ({}, "never", {"read", "write"}),
    ],
)
async def test_approval_is_required_as_the_request_and_the_operator_say(
    station: Callable[..., Station], required: Any, ours: Any, asked: set[str]
) -> None:
    rig = station(require_approval=ours)
    tools = await rig.tools(**({} if required is None else {"require_approval": required}))
    assert {name for name in ("read", "write") if tools.approval(call(name))} == asked
    for name in asked:
        assert "not approved" in (await tools.run(call(name))).output
    assert not rig.ran


def answered(request: dict[str, Any], approve: bool = True, **changes: Any) -> list[Any]:
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}
    return [UnknownItem(request | changes), UnknownItem(answer)]


async def approved(made: Station) -> dict[str, Any]:
    request = (await made.tools()).approval(call("write", '{"n":1}'))
    assert request is not None
    return request


async def test_s7_an_approval_runs_what_was_approved_and_once(station: Callable[..., Station]) -> None:
    rig = station()
    request = await approved(rig)
    assert request == {
        "type": "mcp_approval_request",
        "id": request["id"],
        "server_label": "weather",
        "name": "write",
        "arguments": '{"n":1}',
    }
    assert len(request["id"]) <= 64
    tools = await rig.tools()
    assert tools.released(answered(request, approve=False)) == []
    (released,) = tools.released(answered(request))
    assert tools.approval(released) is None
    result = await tools.run(released)
    assert (result.output, rig.ran) == ('{"n": 1}', [{"n": 1}])
    assert tools.announce(released)["approval_request_id"] == request["id"]
    item = UnknownItem(tools.announce(released) | result.item)
    assert tools.released([*answered(request), item]) == [], "it has run in this conversation"
    (again,) = (await rig.tools()).released(answered(request))
    used = await tools.run(again)
    assert (used.failed, rig.ran) == (True, [{"n": 1}]), "in another one it has been used"


@pytest.mark.parametrize(
    ("context", "fields", "changes"),
    [
        (ME, {}, {"arguments": '{"n":2}'}),
        (ME, {}, {"name": "read"}),
        (ME, {}, {"id": "mcpr_" + "0" * 56}),
        (ME, {}, {"id": "mcpr_1"}),
        (HostedContext("you", 1000, 5.0), {}, {}),
        (ME, {"server_label": "other", "connector_id": "weather"}, {"server_label": "other"}),
        (ME, {"allowed_tools": ["read"]}, {}),
    ],
)
async def test_s7_an_approval_of_something_else_is_refused(
    station: Callable[..., Station], context: HostedContext, fields: dict[str, Any], changes: dict[str, Any]
) -> None:
    rig = station()
    request = await approved(rig)
    shown = request | changes
    tools = await rig.tools(context, **fields)
    with pytest.raises(InvalidRequestError):
        tools.released(answered(shown))
    assert not rig.ran


async def test_s7_approvals_survive_a_restart_but_no_other_key_time_or_tool(
    station: Callable[..., Station], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = await approved(station())
    assert (await station().tools()).released(answered(request)), "another process with the same key"
    with pytest.raises(InvalidRequestError):
        (await station(b"x" * 32).tools()).released(answered(request))
    rotated = station(b"x" * 32, b"k" * 32)
    assert (await rotated.tools()).released(answered(request)), "signed with a key that signs no more"
    changed = station()
    changed.peer.answers["tools/list"] = {"tools": [tool("write", description="sends it to all")]}
    with pytest.raises(InvalidRequestError, match="changed since"):
        (await changed.tools()).released(answered(request))
    clock = Clock()
    clock.now += 10 * approvals.SECONDS
    late = station()
    late.servers._approvals = Approvals(lambda: [b"k" * 32], MemoryStore().use_once, clock)
    with pytest.raises(InvalidRequestError, match="more than a day"):
        (await late.tools()).released(answered(request))


async def test_s7_workers_that_race_for_an_approval_run_it_once(station: Callable[..., Station]) -> None:
    """Nothing of the responses is stored; the store is what the workers share."""
    store = MemoryStore()
    workers = [station(store=store) for _ in range(2)]
    request = await approved(workers[0])
    runs = []
    for each in workers * 3:
        tools = await each.tools()
        (released,) = tools.released(answered(request))
        runs.append(tools.run(released))
    results = await asyncio.gather(*runs)
    assert [len(each.ran) for each in workers].count(1) == 1
    assert sum(len(each.ran) for each in workers) == 1
    assert sorted(each.failed for each in results) == [False, *[True] * 5]


async def test_an_approval_that_can_not_be_recorded_runs_nothing_and_stays(
    station: Callable[..., Station],
) -> None:
    store = FailingStore()
    rig = station(store=store)
    request = await approved(rig)
    tools = await rig.tools()
    (released,) = tools.released(answered(request))
    store.down.add("use_once")
    assert "was not run" in (await tools.run(released)).output
    store.down.clear()
    assert (await tools.run(released)).output == '{"n": 1}'
    assert rig.ran == [{"n": 1}]


@pytest.mark.parametrize(
    "later", [[], [tool("write", description="sends it to all")], [tool("write", **READS)]]
)
async def test_a_tool_that_the_server_changed_since_its_list_is_not_run(
    station: Callable[..., Station], later: list[Any]
) -> None:
    rig = station()
    request = await approved(rig)
    tools = await rig.tools()
    (released,) = tools.released(answered(request))

    async def change(sent: Any) -> None:
        await sent.send(notification("notifications/tools/list_changed"))

    rig.peer.flood = change
    never = await rig.tools(require_approval="never")
    assert not (await never.run(call("read"))).failed
    rig.peer.flood = None
    rig.peer.answers["tools/list"] = {"tools": [tool("read", **READS), *later]}
    assert "changed this tool" in (await tools.run(released)).output
    assert not (await never.run(call("read"))).failed, "it is as it was"
    assert rig.ran == [{}, {}]
    rig.peer.answers["tools/list"] = {"tools": [tool("read", **READS), tool("write")]}
    await rig.servers.close()
    same = station(store=MemoryStore())
    assert (await same.tools()).released(answered(request)), "the approval was not used up"


async def test_deferred_loading_changes_nothing(station: Callable[..., Station]) -> None:
    rig = station()
    variants = [await rig.tools(**more) for more in ({}, {"defer_loading": True}, {"defer_loading": "x"})]
    assert [each.functions for each in variants[1:]] == [variants[0].functions] * 2
    assert [each.preface for each in variants[1:]] == [variants[0].preface] * 2


async def test_the_list_is_shown_once_and_again_when_it_changed(station: Callable[..., Station]) -> None:
    rig = station()
    tools = await rig.tools()
    (listed,) = tools.preface
    again = await rig.tools()
    again.released([UnknownItem({**listed, "id": "mcpl_1"})])
    assert again.preface == []
    fewer = await rig.tools(allowed_tools=["read"])
    fewer.released([UnknownItem(listed)])
    assert len(fewer.preface) == 1


async def test_a_server_that_can_not_be_listed_has_no_tools_and_says_why(
    station: Callable[..., Station],
) -> None:
    rig = station()
    rig.peer.answers["tools/list"] = {"tools": 5}
    tools = await rig.tools()
    assert tools.functions == []
    (listed,) = tools.preface
    assert (listed["tools"], listed["error"]) == ([], "its answer is not what the protocol defines")


def test_names_of_functions_are_the_same_in_every_turn_and_of_one_server() -> None:
    assert function_name("a", "b") == "mcp__a__b"
    pairs = [("a", "b.c"), ("a", "b_c"), ("a__b", "c"), ("a", "b__c"), ("a", "x" * 100), ("ü" * 90, "y")]
    names = [function_name(*pair) for pair in pairs]
    assert len(set(names)) == len(names)
    assert all(len(each) <= 64 and each.isascii() for each in names)


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("https://mcp.example/sse", False),
        ("https://MCP.example.:443/", False),
        ("https://mcp.example:8443/", None),
        ("https://port.example:8443/", False),
        ("https://a.b.wild.example/", False),
        ("https://wild.example/", None),
        ("https://wild.example.evil/", None),
        ("https://mcp.example@evil.example/", 400),
        ("https://evil.example#@mcp.example/", None),
        ("https://evil.example\\@mcp.example/", 400),
        ("http://mcp.example/", None),
        ("http://127.0.0.1:9000/mcp", True),
        ("http://127.0.0.1/mcp", None),
        ("http://[::1]:9000/mcp", True),
        ("http://127.1:9000/mcp", None),
        ("ftp://mcp.example/", 400),
        ("https://", 400),
        ("https://mcp.example:x/", 400),
        ("https://mcp.example/ \r\nx: y", 400),
        ("mcp.example", 400),
    ],
)
def test_s10_only_hosts_that_the_operator_allows(url: str, private: Any) -> None:
    hosts = ["mcp.example", "port.example:8443", "*.wild.example"]
    locals_ = ["127.0.0.1:9000", "[::1]:9000"]
    if private in (None, 400):
        with pytest.raises((HttpError, InvalidRequestError)) as raised:
            is_allowed(url, hosts, locals_)
        refused = private is None and isinstance(raised.value, HttpError)
        assert refused == (private is None and not url.startswith("http://mcp.example"))
    else:
        assert is_allowed(url, hosts, locals_) is private


def test_s10_any_host_is_public_and_over_https() -> None:
    assert is_allowed("https://anything.example/", ["*"], []) is False
    with pytest.raises((HttpError, InvalidRequestError)):
        is_allowed("http://anything.example/", ["*"], [])


@pytest.mark.parametrize(
    "fields",
    [
        {"server_label": ""},
        {"allowed_tools": "all"},
        {"require_approval": "sometimes"},
        {"headers": {"A": "b\r\nc: d"}},
        {"headers": {"a b": "c"}},
        {"headers": {"Host": "other"}},
        {"headers": {"mcp-session-id": "other"}},
        {"authorization": "a\nb"},
        {"headers": {"a": "x" * 40_000}},
        {"server_url": 5},
    ],
)
def test_what_is_declared_wrongly_is_refused_without_its_secrets(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        headers_of(declared_of({"server_label": "a", "server_url": "https://mcp.example/", **fields}))
    assert "MCP server" in str(raised.value)
    assert len(str(raised.value)) < 300


async def test_which_servers_are_taken_and_which_refused(station: Callable[..., Station]) -> None:
    servers = station().servers

    def takes(upstream_has: bool = False, **fields: Any) -> bool:
        return servers.takes(UnknownTool({"type": "mcp", **fields}), upstream_has=upstream_has)

    named = {"server_label": "x", "server_url": "https://mcp.example/"}
    assert takes(**named)
    assert not takes(True, **named)
    assert takes(True, server_label="weather")
    assert takes(True, server_label="x", connector_id="weather")
    assert not takes(True, server_label="x", connector_id="connector_gmail")
    assert not servers.takes(UnknownTool({"type": "web_search"}), upstream_has=False)
    assert not McpServers(Settings(), bytes, MemoryStore().use_once).takes(
        UnknownTool({"type": "mcp", **named}), upstream_has=False
    )
    with pytest.raises(InvalidRequestError, match="there are: weather"):
        await servers.open(UnknownTool({"type": "mcp", "server_label": "x"}), ME)
    with pytest.raises(HttpError, match=r"evil\.example") as raised:
        await servers.open(
            UnknownTool({"server_label": "x", "server_url": "https://evil.example/s3cret"}), ME
        )
    assert raised.value.http_status == 403
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[mcp_servers]]\nname = "a"', "either command or url"),
        ('[[mcp_servers]]\nname = "a"\nurl = "http://a"\ncommand = "b"', "either command or url"),
        ('[[mcp_servers]]\nname = "a b"\nurl = "http://a"', "name"),
        ('[[mcp_servers]]\nname = "a"\nurl = "http://a"\n' * 2, "given twice"),
        ('mcp_hosts = ["https://mcp.example.com"]', "is not the name"),
        ('mcp_private_hosts = ["*"]', "is not the name"),
        ('[[mcp_servers]]\nname = "a"\nurl = "http://a"\napi_key_env = "NO_SUCH_KEY"', "NO_SUCH_KEY"),
        ('[[mcp_servers]]\nname = "a"\ncommand = "b"\nenv = {A = "${NO_SUCH_KEY}"}', "NO_SUCH_KEY"),
    ],
)
def test_settings_that_can_not_be_used(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=said):
        check_servers(load_settings(file))
