"""The tables of docs/observing.md against OpenTelemetry's conventions: they have every attribute, and say on
which spans the server gives it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from openresponses_server.observation import tracing
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.gen_ai import REQUEST_SPAN, TOOL_SPAN, collected
from tests.support.in_process import InProcess
from tests.support.mcp_application import NEVER, served
from tests.support.shared import REPOSITORY
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, frame, refusal

PAGE = (REPOSITORY / "docs/observing.md").read_text()
SPANS = PAGE.partition("## Spans")[2].partition("\n## ")[0]
USED = {
    "prompt_tokens": 30,
    "completion_tokens": 20,
    "total_tokens": 50,
    "prompt_tokens_details": {"cached_tokens": 12, "cache_write_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 8},
}
PARAMETERS = {
    "max_tokens": 100,
    "temperature": 0.5,
    "top_p": 0.25,
    "top_k": 3,
    "seed": 7,
    "frequency_penalty": 0.125,
    "presence_penalty": 1.5,
    "stop": ["end"],
    "response_format": {"type": "json_object"},
}


def rows(text: str, heading: str) -> dict[str, str]:
    """The names in the first column of the table with this head → what the second column says."""
    table = text.partition(heading)[2].partition("\n\n")[0]
    found = re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE)
    return {name: where for names, where in found for name in re.findall(r"`([^`]+)`", names)}


@pytest.fixture(scope="module")
def found() -> dict[SpanKind, set[str]]:
    """The names of the attributes of spans of each kind, of requests with all that can be set."""
    exporter = InMemorySpanExporter()
    script = Script([chunk(content="{}"), chunk("stop"), frame(choices=[], usage=USED), DONE])
    with (
        pytest.MonkeyPatch.context() as patch,
        ScriptedUpstream({"m": script, "no": refusal(400)}) as upstream,
    ):
        collected(patch, exporter)
        upstream_settings = UpstreamSettings(url=upstream.url, options={"passes": ["top_k"], "takes_n": True})
        app = InProcess(Settings(upstreams=[upstream_settings]))
        try:
            messages = [{"role": "user", "content": "Hi"}]
            headers = [(b"openresponses-conversation", b"mine")]
            for more in ({"stream": True}, {"n": 2}):
                body = {"model": "m", "messages": messages, **PARAMETERS, **more}
                assert app.call("POST", "/v1/chat/completions", body, headers).status == 200
            app.call(
                "POST", "/v1/messages", {"model": "m", "messages": messages, "max_tokens": 16, "top_k": 3}
            )
            app.call("POST", "/v1/responses", {"model": "no", "input": "x"})
        finally:
            app.close()
    kinds: dict[SpanKind, set[str]] = {}
    for span in exporter.get_finished_spans():
        kinds.setdefault(span.kind, set()).update(span.attributes or {})
    return kinds


def test_the_table_of_spans_has_each_attribute_of_the_convention() -> None:
    assert rows(SPANS, "| Attribute | Span |").keys() == REQUEST_SPAN
    assert f"`{tracing.SCHEMA.partition('schemas/')[2]}`" in SPANS


@pytest.mark.parametrize(
    ("kind", "where"),
    [(SpanKind.SERVER, "response"), (SpanKind.CLIENT, "request")],
    ids=["response", "request"],
)
def test_the_table_says_on_which_span_an_attribute_is(
    found: dict[SpanKind, set[str]], kind: SpanKind, where: str
) -> None:
    table = rows(SPANS, "| Attribute | Span |")
    assert set(table.values()) == {"both", "response", "request", "opt-in", "none"}
    assert {name for name in found[kind] if name in REQUEST_SPAN} == {
        name for name, at in table.items() if at in ("both", where)
    }


TOOLS = "| Attribute of a tool | Given |"


def test_the_table_of_tools_has_each_attribute_of_the_conventions() -> None:
    assert rows(SPANS, TOOLS).keys() == TOOL_SPAN


def test_the_table_of_tools_says_what_is_given(tmp_path: Path) -> None:
    """Of a tool of an MCP server, which fails."""
    exporter = InMemorySpanExporter()
    with pytest.MonkeyPatch.context() as patch:
        collected(patch, exporter)
        with served(tmp_path) as weather:
            weather.ask(tools=[NEVER])
            weather.peer.results["tools/call"] = None
            weather.ask(tools=[NEVER])
    tools = [each for each in exporter.get_finished_spans() if each.kind is SpanKind.INTERNAL]
    assert len(tools) == 2
    table = rows(SPANS, TOOLS)
    attributes: set[str] = set().union(*(each.attributes or {} for each in tools))
    assert attributes == {name for name, when in table.items() if when not in ("never", "opt-in")}
    always = {name for name, when in table.items() if when == "always"}
    assert all(always <= (each.attributes or {}).keys() for each in tools)


def test_the_page_has_the_names_that_the_conventions_lack(found: dict[SpanKind, set[str]]) -> None:
    behind = SPANS.partition("| Attribute | Span |")[2].partition("\n\n")[2].partition(TOOLS)[0]
    more: set[Any] = set().union(*found.values()) - REQUEST_SPAN
    more |= {"openresponses.usage.estimated", "openresponses.content_hidden"}
    behind += SPANS.partition("With `span_content = true`")[2].partition("\n\n")[0]
    named = set(re.findall(r"`((?:openresponses|http)\.[\w.]+)`", behind))
    assert named == more
