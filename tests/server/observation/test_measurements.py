"""The metrics of OpenTelemetry's conventions, in the SDK's reader in memory."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.metrics")

from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    PeriodicExportingMetricReader,
)

from openresponses_server.observation import measurements, tracing
from openresponses_server.observation.responses import EndedRun, TokenTiming
from openresponses_server.settings import FunctionSettings, Retries, Settings, UpstreamSettings
from tests.support.call_counts import plain_request
from tests.support.gen_ai import METRICS, OTHER_METRICS, measured, points
from tests.support.in_process import InProcess
from tests.support.mcp_application import NEVER, served
from tests.support.shared import REPOSITORY
from tests.support.upstream import DONE, HANG, Script, ScriptedUpstream, call, chunk, frame, refusal, text
from tests.support.waiting import until

MODULE = """
from openresponses_agent.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool(tags={"read-only"})
def add(a: int, b: int) -> int:
    \"\"\"Adds.\"\"\"
    return a + b
"""
SAID = "something private"
BETWEEN = "gen_ai.client.operation.time_per_output_chunk"
PAGE = (REPOSITORY / "docs/observing.md").read_text()


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as running:
        yield running


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    memory_reader = InMemoryMetricReader()
    measured(monkeypatch, memory_reader)
    return memory_reader


@pytest.fixture
def app(upstream: ScriptedUpstream, reader: InMemoryMetricReader, tmp_path: Path) -> Iterator[InProcess]:
    (tmp_path / "tools.py").write_text(MODULE)
    upstream_settings = UpstreamSettings(
        url=upstream.url, name="one", retries=Retries(times=1, first_wait=0.01)
    )
    module = FunctionSettings(module=str(tmp_path / "tools.py"), models=["m"])
    running = InProcess(Settings(upstreams=[upstream_settings], functions=[module]))
    yield running
    running.close()


def ask(app: InProcess, model: str = "m", **more: Any) -> Any:
    return app.call("POST", "/v1/responses", {"model": model, "input": SAID, **more})


def of_upstream(upstream: ScriptedUpstream, **more: Any) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "one",
        "gen_ai.request.model": "m",
        "server.address": "127.0.0.1",
        "server.port": int(upstream.url.split(":")[2].split("/")[0]),
        **more,
    }


def of_response(**more: Any) -> dict[str, Any]:
    named = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "one", "gen_ai.request.model": "m"}
    return {**named, **more}


def the_point(found: dict[str, list[Any]], name: str) -> Any:
    (point,) = found[name]
    return point


def test_a_stream_is_measured(
    app: InProcess, upstream: ScriptedUpstream, reader: InMemoryMetricReader
) -> None:
    def seen(chunks: int) -> Callable[[], bool]:
        """The server has read so many, each by itself."""

        def has_read() -> bool:
            metrics = points(reader)
            first = "gen_ai.client.operation.time_to_first_chunk" in metrics
            return first + sum(each.count for each in metrics.get(BETWEEN, [])) >= chunks

        return has_read

    words = [(chunk(content=each), seen(number)) for number, each in enumerate("abc", 1)]
    one_by_one = [*chain(*words), chunk("stop")]
    used = frame(choices=[], usage={"prompt_tokens": 30, "completion_tokens": 3, "total_tokens": 33})
    upstream.scripts = {"m": Script([*one_by_one, used, DONE])}
    assert ask(app, stream=True).status == 200
    metrics = points(reader)
    assert metrics.keys() == {name for name in METRICS if "tool" not in name and "mcp" not in name}
    for name, of in metrics.items():
        for point in of:
            assert point.explicit_bounds == pytest.approx(METRICS[name][1]), name
    request, response = of_upstream(upstream), of_response()
    duration = the_point(metrics, "gen_ai.client.operation.duration")
    assert (dict(duration.attributes), duration.count) == (request, 1)
    first = the_point(metrics, "gen_ai.client.operation.time_to_first_chunk")
    assert (dict(first.attributes), first.count) == (request, 1)
    assert 0 < first.sum < duration.sum
    between = the_point(metrics, BETWEEN)
    assert dict(between.attributes) == request
    assert between.count >= 3
    assert between.sum <= duration.sum
    tokens = {point.attributes["gen_ai.token.type"]: point for point in metrics["gen_ai.client.token.usage"]}
    assert {kind: point.sum for kind, point in tokens.items()} == {"input": 30, "output": 3}
    assert dict(tokens["input"].attributes) == {**request, "gen_ai.token.type": "input"}
    whole = the_point(metrics, "gen_ai.server.request.duration")
    to_first = the_point(metrics, "gen_ai.server.time_to_first_token")
    each = the_point(metrics, "gen_ai.server.time_per_output_token")
    assert all((dict(point.attributes), point.count) == (response, 1) for point in (whole, to_first, each))
    assert each.sum == pytest.approx((whole.sum - to_first.sum) / 2)


def test_an_answer_that_is_not_streamed_has_no_chunks(
    upstream: ScriptedUpstream, reader: InMemoryMetricReader
) -> None:
    app = InProcess(
        Settings(upstreams=[UpstreamSettings(url=upstream.url, name="one")], forwarding=["embeddings"])
    )
    upstream.pages["/v1/embeddings"] = Script([b'{"data": []}'], 200, {"content-type": "application/json"})
    try:
        body = {"model": "m", "input": SAID}
        assert app.call("POST", "/v1/embeddings", body).status == 200
    finally:
        app.close()
    metrics = points(reader)
    assert not [name for name in metrics if "chunk" in name]
    duration = the_point(metrics, "gen_ai.client.operation.duration")
    assert duration.attributes["gen_ai.operation.name"] == "embeddings"
    assert (
        the_point(metrics, "gen_ai.server.request.duration").attributes["gen_ai.operation.name"]
        == "embeddings"
    )


def test_estimated_tokens_are_not_counted(
    app: InProcess, upstream: ScriptedUpstream, reader: InMemoryMetricReader
) -> None:
    upstream.scripts = {"m": Script([chunk(content="x"), chunk("stop"), DONE])}
    ask(app)
    metrics = points(reader)
    assert "gen_ai.client.token.usage" not in metrics
    assert "gen_ai.server.time_per_output_token" not in metrics
    assert "gen_ai.server.time_to_first_token" in metrics


def test_failures_have_their_kind(
    app: InProcess, upstream: ScriptedUpstream, reader: InMemoryMetricReader
) -> None:
    upstream.scripts = {"m": [refusal(503), refusal(400, code="strange_code"), Script(text("Hello"))]}
    ask(app)
    metrics = points(reader)
    (response,) = metrics["gen_ai.server.request.duration"]
    kinds = sorted(point.attributes["error.type"] for point in metrics["gen_ai.client.operation.duration"])
    assert len(kinds) == 2
    assert response.attributes["error.type"] in kinds
    assert not [name for name in metrics if "first" in name]
    ask(app)
    named = [point.attributes.get("error.type") for point in points(reader)["gen_ai.server.request.duration"]]
    assert sorted(named, key=str) == sorted([response.attributes["error.type"], None], key=str)


def test_a_cancelled_request_says_so(
    app: InProcess, upstream: ScriptedUpstream, reader: InMemoryMetricReader
) -> None:
    upstream.scripts = {"m": Script([chunk(content="x"), HANG])}
    started = ask(app, background=True).json
    app.run(until(lambda: bool(upstream.received)))
    app.call("POST", f"/v1/responses/{started['id']}/cancel")
    app.run(until(lambda: "gen_ai.server.request.duration" in points(reader)))
    metrics = points(reader)
    request = the_point(metrics, "gen_ai.client.operation.duration")
    assert (request.attributes["error.type"], request.count) == ("cancelled", 1)
    assert the_point(metrics, "gen_ai.server.request.duration").count == 1


def test_tools_and_the_tokens_of_each_answer(
    app: InProcess, upstream: ScriptedUpstream, reader: InMemoryMetricReader
) -> None:
    def used(read: int, written: int) -> bytes:
        counts = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        return frame(choices=[], usage=counts)

    call_frames = [call(0, '{"a": 1, "b": 2}', "add", "call_1"), chunk("tool_calls"), used(10, 2), DONE]
    text_frames = [chunk(content="3"), chunk("stop"), used(20, 5), DONE]
    upstream.scripts = {"m": [Script(call_frames), Script(text_frames)]}
    ask(app)
    metrics = points(reader)
    tool = the_point(metrics, "gen_ai.execute_tool.duration")
    assert dict(tool.attributes) == {"gen_ai.tool.name": "add", "gen_ai.tool.type": "function"}
    assert tool.explicit_bounds == pytest.approx(METRICS["gen_ai.execute_tool.duration"][1])
    counts = {
        point.attributes["gen_ai.token.type"]: (point.count, point.sum)
        for point in metrics["gen_ai.client.token.usage"]
    }
    assert counts == {"input": (2, 30), "output": (2, 7)}
    assert the_point(metrics, "gen_ai.client.operation.duration").count == 2
    assert "gen_ai.server.time_per_output_token" not in metrics, "a tool's time is not a token's"


def test_a_call_of_an_mcp_server(reader: InMemoryMetricReader, tmp_path: Path) -> None:
    with served(tmp_path) as weather:
        weather.ask(tools=[NEVER])
        weather.peer.results["tools/call"] = None
        weather.ask(tools=[NEVER])
    answered, failed = points(reader)["mcp.client.operation.duration"]
    assert dict(answered.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-06-18",
        "network.transport": "tcp",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_forecast",
    }
    assert answered.explicit_bounds == pytest.approx(METRICS["mcp.client.operation.duration"][1])
    assert failed.attributes["error.type"] == "-32601"
    tools = points(reader)["gen_ai.execute_tool.duration"]
    assert [point.attributes["gen_ai.tool.type"] for point in tools] == ["extension", "extension"]
    assert sum(point.sum for point in tools) >= answered.sum + failed.sum


def test_names_of_strangers_make_a_hundred_series_at_most() -> None:
    reader = InMemoryMetricReader()
    with pytest.MonkeyPatch.context() as patch:
        measured(patch, reader)
        recorder = measurements.measurements({"mine"})
    assert recorder is not None
    for number in range(150):
        name = f"n{number}"
        recorder.requested(recorder.of_request({}, "chat", name, accepted=True), 1.0, f"code{number}")
        recorder.requested(recorder.of_request({}, "chat", "mine", accepted=False), 1.0, "")
        recorder.requested(recorder.of_request({}, "chat", f"refused{number}", accepted=False), 1.0, "")
        of_tool = {"gen_ai.tool.name": name, "gen_ai.tool.type": "extension", "mcp.method.name": "tools/call"}
        recorder.ran_tool(of_tool, 1.0, "")
        recorder.called_mcp(of_tool, 1.0, "")
        recorder.ran_tool({**of_tool, "gen_ai.tool.name": f"no{number}"}, 1.0, "tool_error")
    metrics = points(reader)
    requests = [point.attributes for point in metrics["gen_ai.client.operation.duration"]]
    models = {each["gen_ai.request.model"] for each in requests}
    assert len(models) == 102
    assert {"mine", "other", "n0", "n99"} <= models
    recorder.requested({}, 1.0, "upstream_timeout")
    recorder.ran_tool({"gen_ai.tool.name": "own", "gen_ai.tool.type": "function"}, 1.0, "")
    assert len({each.get("error.type") for each in requests}) == 102
    assert "_OTHER" in {each.get("error.type") for each in requests}
    for name in ("gen_ai.execute_tool.duration", "mcp.client.operation.duration"):
        assert len({point.attributes["gen_ai.tool.name"] for point in metrics[name]}) == 101
    # which leave the names of others their room
    metrics = points(reader)
    requests = [point.attributes for point in metrics["gen_ai.client.operation.duration"]]
    assert "upstream_timeout" in {each.get("error.type") for each in requests}
    tools = {point.attributes["gen_ai.tool.name"] for point in metrics["gen_ai.execute_tool.duration"]}
    assert "own" in tools


def test_nothing_that_was_said_is_measured(
    app: InProcess, upstream: ScriptedUpstream, reader: InMemoryMetricReader
) -> None:
    upstream.scripts = {"m": [refusal(400, message=SAID, code=SAID), Script(text(SAID))]}
    ask(app)
    ask(app)
    data = reader.get_metrics_data()
    assert data is not None
    assert SAID not in data.to_json()


class _Hanging(MetricExporter):
    """A collector that does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.released = threading.Event(), threading.Event()

    def export(self, metrics_data: Any, timeout_millis: float = 0, **_: Any) -> MetricExportResult:
        self.asked.set()
        self.released.wait(60)
        return MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
        return None


def test_a_collector_that_hangs_or_refuses_delays_no_request(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = _Hanging()
    provider = measured(monkeypatch, PeriodicExportingMetricReader(exporter, export_interval_millis=5))
    upstream.scripts = {"m": Script(text("Hello"))}
    app = InProcess(Settings(upstreams=[UpstreamSettings(url=upstream.url)]))
    try:
        assert ask(app).status == 200
        assert exporter.asked.wait(30)
        for _ in range(10):
            assert ask(app, stream=True).status == 200
        assert not exporter.released.is_set()
    finally:
        app.close()
        exporter.released.set()
        provider.shutdown()


@pytest.mark.anyio
async def test_without_an_sdk_nothing_is_measured() -> None:
    """Where the API alone is installed."""
    assert tracing.meter() is None
    assert measurements.measurements(()) is None
    count = await plain_request()
    assert [name for name in count.calls if "/observation/spans.py" in name]
    assert not [name for name in count.calls if "measurements" in name or "request_attributes" in name]


def test_a_response_without_an_upstream_is_measured() -> None:
    reader = InMemoryMetricReader()
    with pytest.MonkeyPatch.context() as patch:
        measured(patch, reader)
        recorder = measurements.measurements(())
    assert recorder is not None
    from openresponses_bridge.emitter.machine import ResponseStreamStateMachine

    response = ResponseStreamStateMachine("m").snapshot
    ended = EndedRun("", "", response, TokenTiming(), [], 1.5, None, has_end=False)
    recorder.responded(recorder.of_request({}, "chat", "", accepted=False), ended, "upstream_unreachable")
    (point,) = points(reader)["gen_ai.server.request.duration"]
    assert point.sum == 1.5
    assert point.attributes["error.type"] == "upstream_unreachable"


def test_the_table_of_metrics_has_each_of_the_conventions() -> None:
    table = PAGE.partition("| Metric of the conventions |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE)
    units = {name: unit for names, unit in rows for name in re.findall(r"`([^`]+)`", names)}
    assert {name for name, unit in units.items() if unit != "none"} == METRICS.keys()
    assert {name for name, unit in units.items() if unit == "none"} == OTHER_METRICS
    for name, (unit, _) in METRICS.items():
        assert units[name] == {"s": "seconds", "{token}": "tokens"}[unit]
