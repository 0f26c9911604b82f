"""Spans: one for each response and, below it, one for each request to an upstream."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from openresponses_server.observation import tracing
from openresponses_server.settings import Retries, Settings, UpstreamSettings
from openresponses_server.upstreams.spans import sent_attributes
from tests.support.gen_ai import collected
from tests.support.in_process import InProcess
from tests.support.serving import Reply
from tests.support.upstream import CUT, DONE, HANG, Script, ScriptedUpstream, chunk, frame, refusal, text
from tests.support.waiting import until

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SAID = "something private"


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as running:
        yield running


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    collected(monkeypatch, exporter)
    return exporter


@pytest.fixture
def app(upstream: ScriptedUpstream, spans: InMemorySpanExporter) -> Iterator[InProcess]:
    upstreams = [
        UpstreamSettings(
            url=upstream.url, name="one", retries=Retries(times=1, first_wait=0.01), failover=["two"]
        ),
        UpstreamSettings(url=upstream.url, name="two", models=["elsewhere"], trace_context=True),
    ]
    running = InProcess(Settings(upstreams=upstreams))
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
    (response,), (request,) = of_kind(spans, SpanKind.SERVER), of_kind(spans, SpanKind.CLIENT)
    assert response.name == request.name == "chat m"
    assert response.instrumentation_scope.schema_url == tracing.SCHEMA
    assert f"{response.context.trace_id:032x}" == PARENT.decode().split("-")[1]
    assert f"{response.parent.span_id:016x}" == PARENT.decode().split("-")[2]
    assert request.parent.span_id == response.context.span_id
    attributes = dict(response.attributes)
    assert attributes["gen_ai.response.id"] == reply.json["id"]
    assert attributes["gen_ai.usage.input_tokens"] == 3
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.provider.name"] == "one"
    assert attributes["openresponses.first_token_seconds"] > 0
    assert request.attributes["server.address"] == "127.0.0.1"
    assert request.attributes["server.port"] == int(upstream.url.split(":")[2].split("/")[0])


PARAMETERS = {
    "max_output_tokens": 100,
    "temperature": 0.5,
    "top_p": 0.25,
    "frequency_penalty": 0.125,
    "presence_penalty": 1.5,
    "text": {"format": {"type": "json_object"}},
}
FOUND = {
    "gen_ai.request.max_tokens": 100,
    "gen_ai.request.temperature": 0.5,
    "gen_ai.request.top_p": 0.25,
    "gen_ai.request.frequency_penalty": 0.125,
    "gen_ai.request.presence_penalty": 1.5,
    "gen_ai.request.stream": True,
    "gen_ai.output.type": "json",
}


def test_what_a_request_has_set_is_in_both_spans(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": Script(text("{}"))}
    ask(app, stream=True, headers=[(b"x-session-id", b"unused")], **PARAMETERS)
    (response,), (request,) = of_kind(spans, SpanKind.SERVER), of_kind(spans, SpanKind.CLIENT)
    for attributes in (response.attributes, request.attributes):
        assert {name: attributes.get(name) for name in FOUND} == FOUND
        assert not [name for name in attributes if name in ("gen_ai.request.seed", "gen_ai.conversation.id")]
    body = {"model": "m", "messages": [{"role": "user", "content": SAID}], "seed": 7, "stop": ["a", "b"]}
    app.call("POST", "/v1/chat/completions", body)
    for each in of_kind(spans, SpanKind.SERVER)[1:] + of_kind(spans, SpanKind.CLIENT)[1:]:
        assert each.attributes["gen_ai.request.seed"] == 7
        assert each.attributes["gen_ai.request.stop_sequences"] == ("a", "b")
        assert "gen_ai.output.type" not in each.attributes
    assert len(spans.get_finished_spans()) == 4


def test_several_choices_are_counted(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": Script(text("Hello"))}
    body = {"model": "m", "messages": [{"role": "user", "content": SAID}]}
    app.call("POST", "/v1/chat/completions", {**body, "n": 2})
    responses = of_kind(spans, SpanKind.SERVER)
    assert [each.attributes["gen_ai.request.choice.count"] for each in responses] == [2, 2]
    app.call("POST", "/v1/chat/completions", body)
    assert "gen_ai.request.choice.count" not in of_kind(spans, SpanKind.SERVER)[2].attributes


def test_a_conversation_is_named(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": Script(text("Hello"))}
    conversation = app.call("POST", "/v1/conversations", {}).json["id"]
    ask(app, conversation=conversation)
    ask(app, headers=[(b"openresponses-conversation", b"mine")])
    conversations = [each.attributes["gen_ai.conversation.id"] for each in of_kind(spans, SpanKind.SERVER)]
    assert conversations == [conversation, "mine"]


def test_the_parts_of_the_tokens(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    used = {
        "prompt_tokens": 30,
        "completion_tokens": 20,
        "total_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 12, "cache_write_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 8},
    }
    upstream.scripts = {
        "m": Script([chunk(content="x"), chunk("stop"), frame(choices=[], usage=used), DONE]),
        "unknown": Script([chunk(content="x"), chunk("stop"), DONE]),
    }
    ask(app)
    ask(app, "unknown")
    counted, estimated = of_kind(spans, SpanKind.SERVER)
    usage = {name: value for name, value in counted.attributes.items() if "usage" in name}
    assert usage == {
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 12,
        "gen_ai.usage.cache_creation.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 8,
    }
    assert estimated.attributes["openresponses.usage.estimated"] is True
    assert not [
        each for each in of_kind(spans, SpanKind.CLIENT) if "gen_ai.usage.input_tokens" in each.attributes
    ]


def test_the_first_chunk_of_a_stream_is_timed(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": [Script(text("Hello")), refusal(400)]}
    ask(app, stream=True)
    ask(app, stream=True)
    answered, refused = of_kind(spans, SpanKind.CLIENT)
    lasted = (answered.end_time - answered.start_time) / 1e9
    assert 0 < answered.attributes["gen_ai.response.time_to_first_chunk"] <= lasted
    assert "gen_ai.response.time_to_first_chunk" not in refused.attributes


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"max_completion_tokens": 5, "n": 3}, {"max_tokens": 5, "choice.count": 3}),
        ({"max_tokens": None, "max_completion_tokens": 5, "n": 1}, {"max_tokens": 5}),
        ({"max_output_tokens": 5, "text": {"format": {"type": "text"}}}, {"max_tokens": 5, "type": "text"}),
        ({"response_format": {"type": "json_schema"}}, {"type": "json"}),
        ({"output_config": {"format": {"type": "json_schema"}}}, {"type": "json"}),
        ({"top_k": 4, "stop_sequences": ["x"]}, {"top_k": 4, "stop_sequences": ["x"]}),
        (
            {"generationConfig": {"maxOutputTokens": 5, "topK": 4, "topP": 0.5, "stopSequences": ["x"]}},
            {"max_tokens": 5, "top_k": 4, "top_p": 0.5, "stop_sequences": ["x"]},
        ),
        (
            {"generationConfig": {"candidateCount": 2, "responseMimeType": "application/json"}},
            {"choice.count": 2, "type": "json"},
        ),
        ({"inferenceConfig": {"maxTokens": 5, "temperature": 1}}, {"max_tokens": 5, "temperature": 1}),
        ({"generation_config": {"seed": 9, "max_output_tokens": 5}}, {"seed": 9, "max_tokens": 5}),
        ({"stream": True, "stop": "x"}, {"stream": True, "stop_sequences": ["x"]}),
        # nothing that an exporter can't send, and nothing long
        ({"seed": 2**63, "n": True, "temperature": "warm", "top_p": [1], "stop": {"a": 1}}, {}),
        (
            {"stop": ["x" * 100, 1, "y"] * 20, "stream": "yes"},
            {"stop_sequences": (["x" * 80, "y"] * 11)[:11]},
        ),
        ({"text": "x", "response_format": ["json_object"], "output_config": {"format": 1}}, {}),
    ],
)
def test_the_parameters_of_each_dialect(body: dict[str, Any], found: dict[str, Any]) -> None:
    attributes = sent_attributes(json.dumps({"model": "m", **body}).encode())
    assert {
        name.removeprefix("gen_ai.").removeprefix("request.").removeprefix("output."): value
        for name, value in attributes.items()
    } == found


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"stop": "\xff"}', b"[" * 100_000])
def test_a_body_that_is_not_json_has_no_parameters(body: bytes) -> None:
    assert sent_attributes(body) == {}


def test_names_of_strangers_are_short_and_whole(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    long = "m" * 200
    upstream.scripts = {long: Script(text("Hello")), "m": refusal(400, code="a sentence " * 50)}
    ask(app, long)
    ask(app, "m", headers=[(b"openresponses-conversation", b"c" * 128)])
    app.call("POST", "/v1/responses", b'{"model":"\\ud83d","input":"x","safety_identifier":"x"}')
    all_spans = spans.get_finished_spans()
    for span in all_spans:
        texts = [span.name, *(each for each in span.attributes.values() if isinstance(each, str))]
        assert max(map(len, texts)) <= 90
        for each in texts:
            each.encode()  # a half of a character could not be sent
    kinds = {span.attributes.get("error.type") for span in all_spans} - {None}
    assert kinds
    assert max(len(each.split()) for each in kinds) == 1


def test_each_attempt_is_a_span_and_failures_say_their_codes(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": [refusal(503), refusal(503), Script([chunk(content="x"), 0.02, CUT])]}
    ask(app, stream=True)
    attempts = of_kind(spans, SpanKind.CLIENT)
    assert [each.attributes["openresponses.upstream"] for each in attempts] == ["one", "one", "two"]
    assert [each.attributes["gen_ai.provider.name"] for each in attempts] == ["one", "one", "two"]
    assert [each.attributes["http.response.status_code"] for each in attempts] == [503, 503, 502]
    (response,) = of_kind(spans, SpanKind.SERVER)
    assert response.status.status_code is StatusCode.ERROR
    assert response.attributes["error.type"] == attempts[2].attributes["error.type"]


def test_the_context_goes_on_only_where_that_is_allowed(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": Script(text("Hello")), "elsewhere": Script(text("Hello"))}
    headers = [(b"traceparent", PARENT), (b"baggage", b"a=b")]
    ask(app, headers=headers)
    assert "traceparent" not in upstream.last("m").headers
    ask(app, "elsewhere", headers=headers)
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
    all_spans = spans.get_finished_spans()
    assert len(all_spans) == 4
    assert SAID not in "".join(span.to_json() for span in all_spans)


def test_what_is_not_a_context_is_passed_over(
    app: InProcess, upstream: ScriptedUpstream, spans: InMemorySpanExporter
) -> None:
    upstream.scripts = {"m": Script(text("Hello"))}
    for wrong in (b"x", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01", b"\xff" * 50):
        assert ask(app, headers=[(b"traceparent", wrong), (b"tracestate", b"," * 2000)]).status == 200
    assert all(span.parent is None for span in of_kind(spans, SpanKind.SERVER))


class _Ends(SpanProcessor):
    """Counts the spans that began, and the ends of each."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: Counter[int] = Counter()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.begun.append(span.context.span_id)

    def on_end(self, span: ReadableSpan) -> None:
        assert span.context is not None
        self.ended[span.context.span_id] += 1


@pytest.mark.parametrize(
    ("script", "begun"),
    [
        (Script(before=HANG), 2),
        (Script([HANG]), 2),
        (Script([chunk(content="x"), HANG]), 2),
        ([refusal(503), Script(before=HANG)], 3),
        (Script([*text("x")[:-1], HANG]), 2),
    ],
    ids=["before the head", "before the first byte", "in the answer", "when asked again", "before the end"],
)
def test_a_span_ends_once_wherever_it_is_cancelled(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch, script: Any, begun: int
) -> None:
    ends = _Ends()
    collected(monkeypatch, None, ends)
    upstream.scripts = {"m": script}
    upstream_settings = UpstreamSettings(url=upstream.url, retries=Retries(times=1, first_wait=0.01))
    app = InProcess(Settings(upstreams=[upstream_settings]))
    try:
        started = app.call("POST", "/v1/responses", {"model": "m", "input": "x", "background": True}).json
        app.run(until(lambda: len(ends.begun) == begun))
        app.call("POST", f"/v1/responses/{started['id']}/cancel")
        app.run(until(lambda: ends.ended.total() == begun))
        body = {"model": "m", "input": "x", "stream": True, "store": False}
        app.call("POST", "/v1/responses", body, leaves=True)
    finally:
        app.close()
    assert len(ends.begun) >= begun
    assert ends.ended == Counter(ends.begun)
    assert set(ends.ended.values()) == {1}


class _Hanging(SpanExporter):
    """A collector that does not answer."""

    def __init__(self) -> None:
        self.asked, self.released = threading.Event(), threading.Event()

    def export(self, spans: Any) -> SpanExportResult:
        self.asked.set()
        self.released.wait(60)
        return SpanExportResult.FAILURE


def test_a_collector_that_hangs_or_refuses_delays_no_request(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = _Hanging()
    queue = BatchSpanProcessor(exporter, max_queue_size=4, schedule_delay_millis=1, max_export_batch_size=1)
    collected(monkeypatch, exporter, queue)
    upstream.scripts = {"m": Script(text("Hello"))}
    app = InProcess(Settings(upstreams=[UpstreamSettings(url=upstream.url)]))
    try:
        assert ask(app).status == 200
        assert exporter.asked.wait()
        for _ in range(10):  # more than it has room for
            assert ask(app).status == 200
        assert not exporter.released.is_set()
    finally:
        app.close()
        exporter.released.set()
        queue.shutdown()


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
