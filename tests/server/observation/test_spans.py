"""Spans: one for each response and, below it, one for each request to an upstream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

sdk = pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import SpanKind, StatusCode  # noqa: E402

from openresponses_server.observation import tracing  # noqa: E402
from openresponses_server.settings import Retries, Settings, UpstreamSettings  # noqa: E402
from tests.support.in_process import InProcess  # noqa: E402
from tests.support.serving import Reply  # noqa: E402
from tests.support.upstream import CUT, Script, ScriptedUpstream, chunk, refusal, text  # noqa: E402

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SAID = "something private"


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as running:
        yield running


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("openresponses-bridge", schema_url=tracing.SCHEMA)
    for where in ("observation.spans", "upstreams.spans"):
        monkeypatch.setattr(f"openresponses_server.{where}.tracer", lambda: tracer)
    return exporter


@pytest.fixture
def app(upstream: ScriptedUpstream, spans: InMemorySpanExporter) -> Iterator[InProcess]:
    given = [
        UpstreamSettings(
            url=upstream.url, name="one", retries=Retries(times=1, first_wait=0.01), failover=["two"]
        ),
        UpstreamSettings(url=upstream.url, name="two", models=["elsewhere"], trace_context=True),
    ]
    running = InProcess(Settings(upstreams=given))
    yield running
    running.close()


def ask(app: InProcess, model: str = "m", headers: Any = (), **more: Any) -> Reply:
    return app.call("POST", "/v1/responses", {"model": model, "input": SAID, **more}, headers)


def of_kind(spans: InMemorySpanExporter, kind: SpanKind) -> list[Any]:
    return [span for span in spans.get_finished_spans() if span.kind is kind]


@pytest.mark.parametrize("store", [True, False])
def test_a_response_and_its_upstream(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter, store: bool
) -> None:
    upstream.scripts = {"m": Script(text("Hello"))}
    reply = ask(app, headers=[(b"traceparent", PARENT)], store=store)
    (response,), (asked,) = of_kind(spans, SpanKind.SERVER), of_kind(spans, SpanKind.CLIENT)
    assert response.name == asked.name == "chat m"
    assert response.instrumentation_scope.schema_url == tracing.SCHEMA
    assert f"{response.context.trace_id:032x}" == PARENT.decode().split("-")[1]
    assert f"{response.parent.span_id:016x}" == PARENT.decode().split("-")[2]
    assert asked.parent.span_id == response.context.span_id
    found = dict(response.attributes)
    assert found["gen_ai.response.id"] == reply.json["id"]
    assert found["gen_ai.usage.input_tokens"] == 3
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert found["gen_ai.provider.name"] == "one"
    assert found["openresponses.first_token_seconds"] > 0
    assert asked.attributes["server.address"] == "127.0.0.1"
    assert asked.attributes["server.port"] == int(upstream.url.split(":")[2].split("/")[0])


def test_each_attempt_is_a_span_and_failures_say_their_codes(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": [refusal(503), refusal(503), Script([chunk(content="x"), 0.02, CUT])]}
    ask(app, stream=True)
    attempts = of_kind(spans, SpanKind.CLIENT)
    assert [each.attributes["gen_ai.provider.name"] for each in attempts] == ["one", "one", "two"]
    assert [each.attributes["http.response.status_code"] for each in attempts] == [503, 503, 502]
    (response,) = of_kind(spans, SpanKind.SERVER)
    assert response.status.status_code is StatusCode.ERROR
    assert response.attributes["error.type"] == attempts[2].attributes["error.type"]


def test_the_context_goes_on_only_where_that_is_allowed(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": Script(text("Hello")), "elsewhere": Script(text("Hello"))}
    given = [(b"traceparent", PARENT), (b"baggage", b"a=b")]
    ask(app, headers=given)
    assert "traceparent" not in upstream.last("m").headers
    ask(app, "elsewhere", headers=given)
    sent = upstream.last("elsewhere").headers
    last = of_kind(spans, SpanKind.CLIENT)[-1].context
    assert sent["traceparent"] == f"00-{last.trace_id:032x}-{last.span_id:016x}-01"
    assert "baggage" not in sent


def test_nothing_that_was_said_is_in_a_span(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": [refusal(400, message=SAID), Script(text(SAID))]}
    ask(app)
    ask(app)
    found = spans.get_finished_spans()
    assert len(found) == 4
    assert SAID not in "".join(span.to_json() for span in found)


def test_what_is_not_a_context_is_passed_over(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": Script(text("Hello"))}
    for wrong in (b"x", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01", b"\xff" * 50):
        assert ask(app, headers=[(b"traceparent", wrong), (b"tracestate", b"," * 2000)]).status == 200
    assert all(span.parent is None for span in of_kind(spans, SpanKind.SERVER))


def test_without_the_api_nothing_stands_in_between(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.scripts = {"m": Script(text("Hello"))}
    for where in ("requests.composition", "upstreams.routing.models", "upstreams.targets"):
        monkeypatch.setattr(f"openresponses_server.{where}.is_installed", lambda: False)
    running = InProcess(Settings(upstreams=[UpstreamSettings(url=upstream.url, trace_context=True)]))
    try:
        assert ask(running).status == 200
        service = running.app.state.service
        assert service.spans is None
        assert type(service.router.resolve("m").upstream).__name__ == "HttpUpstream"
    finally:
        running.close()
