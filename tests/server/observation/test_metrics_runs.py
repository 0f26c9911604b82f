"""What `/metrics` says of responses, by upstream and model, and how many names can become labels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from openresponses_server.observation.metric_values import BatchHistogram
from openresponses_server.observation.metrics import Labels
from openresponses_server.observation.responses import GAPS
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.in_process import InProcess
from tests.support.upstream import Script, ScriptedUpstream, by_turns, refusal, text

TURNS = [
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "1"},
]


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    scripts = {
        "counted": [Script(text("Hi"))],
        "no": [refusal(404, message="unknown")],
    }
    with ScriptedUpstream(scripts) as running:
        yield running


@pytest.fixture
def app(upstream: ScriptedUpstream) -> Iterator[InProcess]:
    running = InProcess(Settings(upstreams=[UpstreamSettings(url=upstream.url, name="u")]))
    yield running
    running.close()


def values(app: InProcess) -> dict[str, float]:
    """Each series with its labels, and its value."""
    shown = app.call("GET", "/metrics").body.decode()
    return {
        name: float(value)
        for name, value in re.findall(r"^openresponses_bridge_(\S+) (\S+)$", shown, re.MULTILINE)
    }


def ask(app: InProcess, model: str, **more: object) -> int:
    return app.call("POST", "/v1/responses", {"model": model, "input": "x", **more}).status


def test_times_of_tokens_are_counted_by_upstream_and_model(
    app: InProcess, upstream: ScriptedUpstream
) -> None:
    got = app.got = bytearray()
    upstream.scripts["m"] = by_turns(["Hello", " there"], got)  # two that come in one read have no gap
    assert ask(app, "m", stream=True) == 200
    samples = values(app)
    which = 'model="m",upstream="u"'
    assert samples[f"first_token_seconds_count{{{which}}}"] == 1
    assert samples[f'token_gap_seconds_bucket{{le="+Inf",{which}}}'] >= 1
    assert samples[f"token_gap_seconds_sum{{{which}}}"] > 0
    assert samples[f"response_seconds_count{{{which}}}"] == 1
    assert samples['responses_total{model="m",status="completed",upstream="u"}'] == 1


def test_tokens_and_what_was_lost_are_counted(app: InProcess) -> None:
    assert ask(app, "counted", top_logprobs=3, input=TURNS, tools=[{"type": "web_search"}]) == 200
    samples = values(app)
    assert samples['tokens_total{kind="input",model="counted",upstream="u"}'] == 3
    assert samples['diagnostics_total{kind="loss",model="counted",upstream="u"}'] >= 1


def test_a_model_that_no_upstream_has_gets_no_label(app: InProcess) -> None:
    assert ask(app, "no") == 404
    assert not [name for name in values(app) if '"no"' in name]


def test_names_that_clients_make_up_do_not_multiply_series() -> None:
    models = Labels({"mine"}, most=2)
    assert models.label("a", answered=False) == "other"
    assert [models.label(name, answered=True) for name in "abcd"] == ["a", "b", "other", "other"]
    assert models.label("a", answered=False) == "a"
    assert models.label("mine", answered=False) == "mine"
    assert models.label("x" * 81, answered=True) == "other"
    assert models.label("", answered=False) == ""


def test_what_is_gathered_is_as_if_it_had_been_observed() -> None:
    seen = (0.0005, 0.001, 0.0011, 0.3, 99.0)
    observing, adding = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("h", "what", ["a"], buckets=GAPS, registry=observing)
    gathered = BatchHistogram("h", "what", ["a"], buckets=GAPS, registry=adding)
    for value in seen:
        histogram.labels("1").observe(value)
    gathered.labels("1").add([1, 0, *[0] * 8, 0, 1, 0, 0, 0, 0, 0], 0.3005)
    gathered.labels("1").add([1, 1, *[0] * 14, 1], sum(seen) - 0.3005)
    shown = [
        [line for line in generate_latest(registry).decode().splitlines() if "created" not in line]
        for registry in (observing, adding)
    ]
    assert shown[0] == shown[1]


def test_what_is_gathered_is_in_the_files_of_workers_that_count_together(tmp_path: Path) -> None:
    code = (
        "from prometheus_client import CollectorRegistry, generate_latest\n"
        "from prometheus_client.multiprocess import MultiProcessCollector\n"
        "from openresponses_server.observation.metric_values import FOLDER, BatchHistogram\n"
        "gathered = BatchHistogram('h', 'what', ['a'], buckets=[0.1, 1], registry=CollectorRegistry())\n"
        "gathered.labels('x').add([1, 2, 3], 10.5)\n"
        "together = CollectorRegistry()\n"
        "MultiProcessCollector(together, FOLDER)\n"
        "print(generate_latest(together).decode())\n"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for times in (1, 2):
        output = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout
        assert f'h_sum{{a="x"}} {10.5 * times}' in output
        assert f'h_bucket{{a="x",le="1.0"}} {3.0 * times}' in output
        assert f'h_bucket{{a="x",le="+Inf"}} {6.0 * times}' in output
