"""A span for each run of a tool: functions, the web search, tools of MCP servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry import baggage, context
from opentelemetry.propagate import inject
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from openresponses_server.observation.spans import Spans
from openresponses_server.settings import (
    FunctionSettings,
    HostedLimits,
    McpServerSettings,
    Settings,
    UpstreamSettings,
    WebSearchSettings,
)
from tests.support.gen_ai import collected
from tests.support.in_process import InProcess
from tests.support.mcp_application import NEVER, Served, model, served
from tests.support.shared import REPOSITORY
from tests.support.upstream import DONE, JSON, Script, ScriptedUpstream, call, chunk, text
from tests.support.waiting import until

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MODULE = """
import asyncio

from openresponses_agent.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool(tags={"read-only"})
def add(a: int, b: int) -> int:
    \"\"\"Adds two numbers, privately.\"\"\"
    return a + b


@registry.tool(tags={"read-only"})
async def broken() -> str:
    \"\"\"Breaks.\"\"\"
    raise ValueError("private")


@registry.tool(tags={"read-only"})
async def hang() -> str:
    \"\"\"Does not end.\"\"\"
    await asyncio.Event().wait()
    return ""
"""


def calling(name: str, arguments: str = "{}") -> list[Script]:
    frames = [call(0, "", name, "call_1"), call(0, arguments), chunk("tool_calls"), DONE]
    return [Script(frames), Script(text("Done."))]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    collected(monkeypatch, exporter)
    return exporter


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as running:
        yield running


@pytest.fixture
def app(upstream: ScriptedUpstream, spans: InMemorySpanExporter, tmp_path: Path) -> Iterator[InProcess]:
    (tmp_path / "tools.py").write_text(MODULE)
    module = FunctionSettings(module=str(tmp_path / "tools.py"))
    upstream_settings = UpstreamSettings(url=upstream.url)
    running = InProcess(Settings(upstreams=[upstream_settings], functions=[module]))
    yield running
    running.close()


@pytest.fixture
def weather(spans: InMemorySpanExporter, tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as server:
        yield server


def ask(app: InProcess, **more: Any) -> Any:
    return app.call("POST", "/v1/responses", {"model": "m", "input": "x", **more}).json


def of_tools(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [each for each in spans.get_finished_spans() if each.kind is SpanKind.INTERNAL]


def the_tool(spans: InMemorySpanExporter) -> tuple[ReadableSpan, dict[str, Any]]:
    (span,) = of_tools(spans)
    return span, dict(span.attributes or {})


def test_a_function_has_a_span_below_that_of_the_response(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts["m"] = calling("add", '{"a": 41, "b": 787}')
    assert ask(app)["status"] == "completed"
    span, attributes = the_tool(spans)
    (response,) = (each for each in spans.get_finished_spans() if each.kind is SpanKind.SERVER)
    assert span.name == "execute_tool add"
    assert span.parent is not None
    assert response.context is not None
    assert span.parent.span_id == response.context.span_id
    assert span.status.status_code is StatusCode.UNSET
    assert attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
    }
    requests = [each for each in spans.get_finished_spans() if each.kind is SpanKind.CLIENT]
    assert len(requests) == 2
    assert all(each.parent and each.parent.span_id == response.context.span_id for each in requests)


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("broken", "{}", "tool_error"),
        ("add", '{"a": "private", "b": 1}', "tool_error"),
        ("add", "private", "tool_error"),
    ],
)
def test_a_failure_has_its_kind_and_nothing_of_its_text(
    app: InProcess,
    upstream: ScriptedUpstream,
    spans: InMemorySpanExporter,
    name: str,
    arguments: str,
    kind: str,
) -> None:
    upstream.scripts["m"] = calling(name, arguments)
    ask(app)
    span, attributes = the_tool(spans)
    assert attributes["error.type"] == kind
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == kind
    assert "private" not in "".join(each.to_json() for each in spans.get_finished_spans())


def test_a_tool_that_takes_too_long(
    upstream: ScriptedUpstream, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    (tmp_path / "tools.py").write_text(MODULE)
    module = FunctionSettings(module=str(tmp_path / "tools.py"))
    upstream.scripts["m"] = calling("hang")
    settings = UpstreamSettings(url=upstream.url)
    app = InProcess(Settings(upstreams=[settings], functions=[module], tools=HostedLimits(seconds=0.05)))
    try:
        ask(app)
    finally:
        app.close()
    _, attributes = the_tool(spans)
    assert attributes["error.type"] == "timeout"


@pytest.mark.parametrize("kind", ["", "tool_error"])
def test_a_search_of_the_web(upstream: ScriptedUpstream, spans: InMemorySpanExporter, kind: str) -> None:
    upstream.scripts["m"] = calling("web_search", '{"query": "private"}')
    upstream.pages["/search"] = (
        Script([b"{}"], 500, JSON) if kind else Script([b'{"results": []}'], 200, JSON)
    )
    search = WebSearchSettings(provider="searxng", url=upstream.url.removesuffix("/v1"))
    app = InProcess(Settings(upstreams=[UpstreamSettings(url=upstream.url)], web_search=search))
    try:
        ask(app, tools=[{"type": "web_search"}])
    finally:
        app.close()
    span, attributes = the_tool(spans)
    assert span.name == "execute_tool web_search"
    assert attributes["gen_ai.tool.type"] == "extension"
    assert attributes.get("error.type", "") == kind
    assert "private" not in "".join(each.to_json() for each in spans.get_finished_spans())


def test_a_cancelled_tool_ends_its_span_once(
    upstream: ScriptedUpstream, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    (tmp_path / "tools.py").write_text(MODULE)
    module = FunctionSettings(module=str(tmp_path / "tools.py"))
    upstream.scripts["m"] = calling("hang")
    app = InProcess(Settings(upstreams=[UpstreamSettings(url=upstream.url)], functions=[module]))
    try:
        started = ask(app, background=True)
        kinds = [SpanKind.CLIENT]
        app.run(until(lambda: [each.kind for each in spans.get_finished_spans()] == kinds))
        app.call("POST", f"/v1/responses/{started['id']}/cancel")
        kinds += [SpanKind.INTERNAL, SpanKind.SERVER]
        app.run(until(lambda: [each.kind for each in spans.get_finished_spans()] == kinds))
    finally:
        app.close()
    assert len(spans.get_finished_spans()) == 3


def test_calls_beside_each_other_have_a_span_each(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    calls = [call(0, '{"a": 1, "b": 2}', "add", "call_1"), call(1, "{}", "broken", "call_2")]
    upstream.scripts["m"] = [Script([*calls, chunk("tool_calls"), DONE]), Script(text("Done."))]
    ask(app)
    ids = {(each.attributes or {})["gen_ai.tool.call.id"]: each for each in of_tools(spans)}
    assert sorted(each.name for each in ids.values()) == ["execute_tool add", "execute_tool broken"]
    assert [ids["call_1"].status.status_code, ids["call_2"].status.status_code] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]


def test_a_tool_of_an_mcp_server_gets_the_context(weather: Served, spans: InMemorySpanExporter) -> None:
    body = {"model": "m", "input": "Rain in Oslo?", "tools": [NEVER]}
    headers = [(b"traceparent", PARENT), (b"baggage", b"a=b")]
    assert weather.app.call("POST", "/v1/responses", body, headers).status == 200
    span, attributes = the_tool(spans)
    assert span.name == "execute_tool get_forecast"
    port = int(weather.peer.upstream.url.split(":")[2].split("/")[0])
    assert attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_forecast",
        "gen_ai.tool.call.id": "call_up_1",
        "gen_ai.tool.type": "extension",
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-06-18",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    (request,) = weather.peer.asked("tools/call")
    assert span.context is not None
    meta = request.body["params"]["_meta"]
    assert meta["traceparent"] == f"00-{PARENT.decode()[3:35]}-{span.context.span_id:016x}-01"
    assert "baggage" not in meta
    shown = "".join(each.to_json() for each in spans.get_finished_spans())
    assert "session-" not in shown
    assert "Oslo" not in shown


def test_baggage_of_another_instrumentation_goes_no_further(spans: InMemorySpanExporter) -> None:
    before = context.attach(baggage.set_baggage("a", "b"))
    sent: dict[str, str] = {}
    try:
        with Spans({}, None).tool("f", "call_1", "extension"):
            inject(sent)
        outside: dict[str, str] = {}
        inject(outside)
    finally:
        context.detach(before)
    span, _ = the_tool(spans)
    assert span.context is not None
    assert sent.keys() == {"traceparent"}
    assert f"-{span.context.span_id:016x}-" in sent["traceparent"]
    assert outside == {"baggage": "a=b"}


@pytest.mark.parametrize(
    ("result", "kind", "code"),
    [
        ({"content": [{"type": "text", "text": "private"}], "isError": True}, "tool_error", None),
        (None, "-32601", "-32601"),
        (Script([b"private"], 500, JSON), "_OTHER", None),
    ],
    ids=["its own", "of the protocol", "of HTTP"],
)
def test_the_failures_of_an_mcp_server(
    weather: Served, spans: InMemorySpanExporter, result: Any, kind: str, code: str | None
) -> None:
    weather.peer.results["tools/call"] = result
    weather.ask(tools=[NEVER])
    span, attributes = the_tool(spans)
    assert attributes["error.type"] == kind
    assert attributes.get("rpc.response.status_code") == code
    assert span.status.status_code is StatusCode.ERROR
    assert "private" not in "".join(each.to_json() for each in spans.get_finished_spans())


def test_names_of_strangers_tools_are_cut(weather: Served, spans: InMemorySpanExporter) -> None:
    name = "n" * 120
    weather.peer.results["tools/list"] = {"tools": [{"name": name, "inputSchema": {"type": "object"}}]}

    def answer(received: Any) -> Script:
        shown = [each["function"]["name"] for each in received.body.get("tools", [])]
        if received.body["messages"][-1]["role"] == "user":
            return Script([call(0, "{}", shown[0], "c" * 64), chunk("tool_calls"), DONE])
        return Script(text("Done."))

    weather.upstream.answer = answer
    weather.ask(tools=[NEVER])
    span, attributes = the_tool(spans)
    assert span.name == f"execute_tool {name[:80]}"
    assert attributes["gen_ai.tool.name"] == name[:80]


def test_a_program_is_reached_by_a_pipe(spans: InMemorySpanExporter, upstream: ScriptedUpstream) -> None:
    upstream.answer = model
    program = str(REPOSITORY / "tests/support/mcp_weather.py")
    weather = McpServerSettings(name="weather", command=sys.executable, args=[program])
    app = InProcess(Settings(upstreams=[UpstreamSettings(url=upstream.url)], mcp_servers=[weather]))
    try:
        assert "Rain in Oslo" in json.dumps(ask(app, input="Rain in Oslo?", tools=[NEVER]))
    finally:
        app.close()
    _, attributes = the_tool(spans)
    assert attributes["network.transport"] == "pipe"
    assert not [name for name in attributes if name.startswith(("server.", "network.protocol"))]
