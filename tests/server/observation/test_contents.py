"""What was said, in spans, where the setting asks for it: masked and bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.observation.contents import LONGEST_TEXT, MOST_TEXT, Contents
from openresponses_server.settings import FunctionSettings, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.cyclic_garbage import garbage
from tests.support.gen_ai import collected, measured
from tests.support.in_process import InProcess
from tests.support.shared import REPOSITORY
from tests.support.upstream import DONE, HANG, Script, ScriptedUpstream, call, chunk, refusal, text
from tests.support.waiting import until

OPERATORS = "sk-operators-own-key-0123456789abcdef"
CLIENTS = "sk-clients-own-key-0123456789abcdef"
MODULE = """
from openresponses_agent.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool(tags={"read-only"})
def look(password: str, where: str) -> str:
    \"\"\"Looks.\"\"\"
    return f"seen {where}, with sk-operators-own-key-0123456789abcdef"
"""
CONTENT = {
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
}


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
def asked(
    upstream: ScriptedUpstream, spans: InMemorySpanExporter, tmp_path: Path
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes a request; the attributes of the response's span, and those of a tool."""
    (tmp_path / "tools.py").write_text(MODULE)
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url, api_key=OPERATORS)],
        functions=[FunctionSettings(module=str(tmp_path / "tools.py"), models=["calls"])],
        api_keys=[hashed(CLIENTS)],
        span_content=True,
    )
    app = InProcess(settings)

    def ask(model: str = "m", **body: Any) -> dict[str, Any]:
        spans.clear()
        headers = [(b"authorization", f"Bearer {CLIENTS}".encode())]
        assert app.call("POST", "/v1/responses", {"model": model, **body}, headers).status == 200
        attributes: dict[str, Any] = {}
        for span in spans.get_finished_spans():
            if span.kind is not SpanKind.CLIENT:
                attributes |= dict(span.attributes or {})
            else:
                assert not (CONTENT & set(span.attributes or {}))
        return attributes

    yield ask
    app.close()


def test_messages_have_the_form_of_the_convention(
    asked: Callable[..., dict[str, Any]], upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = Script(text("It ", "rains."))
    tool = {"type": "function", "name": "f", "description": "Does.", "parameters": {"type": "object"}}
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    items = [
        {"role": "user", "content": "Rain?"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"role": "user", "content": [{"type": "input_text", "text": "So?"}, image]},
    ]
    attributes = asked(input=items, instructions="Be brief.", tools=[tool])
    assert json.loads(attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Rain?"}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "f", "arguments": {"city": "Oslo"}}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "rain"}]},
        {"role": "user", "parts": [{"type": "text", "content": "So?"}, {"type": "input_image"}]},
    ]
    assert json.loads(attributes["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "It rains."}],
            "finish_reason": "stop",
        }
    ]
    assert json.loads(attributes["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(attributes["gen_ai.tool.definitions"]) == [tool]
    attributes = asked(input="Rain?")
    assert json.loads(attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Rain?"}]}
    ]
    assert "gen_ai.tool.definitions" not in attributes


def test_a_tool_has_its_arguments_and_result_without_secrets(
    asked: Callable[..., dict[str, Any]], upstream: ScriptedUpstream
) -> None:
    arguments = json.dumps({"password": "hunter2-hunter2", "where": f"here {CLIENTS}"})
    frames = [call(0, "", "look", "call_1"), call(0, arguments), chunk("tool_calls"), DONE]
    upstream.scripts["calls"] = [Script(frames), Script(text("Done."))]
    attributes = asked("calls", input="x")
    assert json.loads(attributes["gen_ai.tool.call.arguments"]) == {
        "password": "[masked]",
        "where": "here [key]",
    }
    assert attributes["gen_ai.tool.call.result"] == "seen here [key], with [key]"


def test_secrets_are_masked_wherever_they_are(
    asked: Callable[..., dict[str, Any]], upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts["m"] = Script(text(f"Your keys: {OPERATORS} {CLIENTS.upper()}"))
    across = "x" * (LONGEST_TEXT - 10) + OPERATORS
    asked(input=f"Mine is {CLIENTS}, {across}", instructions=across, metadata={"k": "v"})
    shown = "".join(span.to_json() for span in spans.get_finished_spans())
    assert "sk-op" not in shown
    assert CLIENTS[:12] not in shown
    assert CLIENTS[:12].upper() not in shown
    assert "Your keys: [key] [key]" in shown


def test_a_secret_that_the_end_of_what_is_masked_cuts_is_not_shown_in_part() -> None:
    """So many are before it that the masked text is short."""
    secret = "k7" * 250
    content = Contents([secret]).of_request(CreateResponse(model="m", input=f"{secret} " * 40), {}, None)
    (message,) = json.loads(str(content.asked()["gen_ai.input.messages"]))
    shown = message["parts"][0]["content"]
    assert shown.startswith("[key] [key] ")
    assert "k7" not in shown


def test_what_is_shown_is_bounded(asked: Callable[..., dict[str, Any]], upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("y" * 50_000))
    items = [{"role": "user", "content": f"{number} " + "x" * 9000} for number in range(100)]
    attributes = asked(input=items, instructions="z" * 90_000)
    assert len(attributes["gen_ai.input.messages"]) < MOST_TEXT + 10_000
    texts = [each["parts"][0]["content"] for each in json.loads(attributes["gen_ai.input.messages"])]
    assert [each[:3] for each in texts] == [f"{number} " for number in range(84, 100)]
    assert len(attributes["gen_ai.output.messages"]) < LONGEST_TEXT + 500
    assert len(attributes["gen_ai.system_instructions"]) < LONGEST_TEXT + 500


@pytest.mark.parametrize(
    "arguments",
    ["[" * 5000, '{"a":' * 3000, "not JSON", "", "\ud800", '"\\ud800"', "[1e999]"],
    ids=["deep", "deep and open", "text", "nothing", "half a character", "half in JSON", "beyond numbers"],
)
def test_odd_arguments_do_no_harm(arguments: str) -> None:
    content = Contents([OPERATORS]).of_request(CreateResponse(model="m", input="x"), {}, None)
    assert content.asked()["gen_ai.input.messages"]
    for value in content.called(arguments).values():
        assert isinstance(value, str)
        assert len(value.encode()) <= MOST_TEXT
    for value in content.gave(arguments).values():
        value.encode()


def test_too_many_secrets_hide_everything() -> None:
    many = [
        {
            "type": "mcp",
            "server_label": f"s{number}",
            "server_url": "https://h/",
            "headers": {"authorization": f"Bearer {number:040}"},
        }
        for number in range(40)
    ]
    body = decode_request(json.dumps({"model": "m", "input": "private", "tools": many}))
    content = Contents(()).of_request(body, {}, None)
    assert content.asked() == {"openresponses.content_hidden": True}
    assert content.called("{}") == content.gave("private") == content.answered([1], "stop") == {}


def test_a_request_is_not_kept() -> None:
    body = CreateResponse(model="m", input="private")
    content = Contents(()).of_request(body, {}, None)
    assert content.asked()
    assert content.asked() == {}


def test_without_the_setting_there_is_none(upstream: ScriptedUpstream, spans: InMemorySpanExporter) -> None:
    app = InProcess(Settings(upstreams=[UpstreamSettings(url=upstream.url)]))
    try:
        assert app.app.state.service.contents is None
        app.call("POST", "/v1/responses", {"model": "m", "input": "private"})
    finally:
        app.close()
    assert not CONTENT & {name for span in spans.get_finished_spans() for name in span.attributes or {}}


def test_the_tables_have_what_is_opted_in() -> None:
    section = (REPOSITORY / "docs/observing.md").read_text().partition("## Spans")[2]
    rows = re.findall(r"^\| (`.*?) \| opt-in \|", section, re.MULTILINE)
    assert {name for names in rows for name in re.findall(r"`([^`]+)`", names)} == CONTENT
    assert f"{LONGEST_TEXT:,} characters" in section
    assert f"{MOST_TEXT:,}" in section


def test_nothing_of_a_response_waits_for_the_collector(
    upstream: ScriptedUpstream, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law S4, with all that is observed."""
    measured(monkeypatch, InMemoryMetricReader())
    upstream.scripts = {
        "m": Script(text("Hello")),
        "refused": refusal(400),
        "left": Script([chunk(content="x"), HANG]),
    }
    upstream_settings = UpstreamSettings(url=upstream.url)
    app = InProcess(Settings(upstreams=[upstream_settings], span_content=True, store="memory://"))

    def all_kinds() -> None:
        for body in ({"model": "m"}, {"model": "m", "stream": True}, {"model": "refused"}):
            app.call("POST", "/v1/responses", {"input": "x", "store": False, **body})
        gone = {"model": "left", "input": "x", "stream": True, "store": False}
        app.call("POST", "/v1/responses", gone, leaves=True)
        app.run(until(lambda: app.app.state.service.gate.runs.count == 0))

    try:
        all_kinds()  # what the first ones load
        with garbage() as left:
            all_kinds()
    finally:
        app.close()
    assert spans.get_finished_spans()
    assert [each for each in left if "openresponses_" in each] == []
