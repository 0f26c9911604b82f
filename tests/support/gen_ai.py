"""Names of OpenTelemetry's conventions for generative AI, and collectors of spans and metrics in memory."""

from typing import Any, Final

import pytest

from openresponses_server.observation import tracing

REQUEST_SPAN: Final = frozenset(
    (
        *("gen_ai.operation.name", "gen_ai.provider.name", "error.type", "gen_ai.conversation.id"),
        *("gen_ai.output.type", "gen_ai.request.choice.count", "gen_ai.request.model"),
        *("gen_ai.request.seed", "gen_ai.request.stream", "gen_ai.request.top_k", "server.port"),
        *("gen_ai.request.frequency_penalty", "gen_ai.request.max_tokens"),
        *("gen_ai.request.presence_penalty", "gen_ai.request.stop_sequences"),
        *("gen_ai.request.temperature", "gen_ai.request.top_p", "gen_ai.response.finish_reasons"),
        *("gen_ai.response.id", "gen_ai.response.model", "gen_ai.response.time_to_first_chunk"),
        *("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_read.input_tokens"),
        *("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
        *("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.audio.input_tokens"),
        *("gen_ai.usage.audio.output_tokens", "gen_ai.usage.image.input_tokens"),
        *("gen_ai.usage.text.input_tokens", "gen_ai.usage.text.output_tokens"),
        *("gen_ai.usage.video.input_tokens", "server.address", "gen_ai.input.messages"),
        *("gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions"),
    )
)
"""The attributes of a request to a model (`gen_ai.inference.client`)."""

TOOL_SPAN: Final = frozenset(
    (
        *("gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.description"),
        *("gen_ai.tool.type", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "error.type"),
        *("mcp.method.name", "mcp.protocol.version", "mcp.session.id", "mcp.resource.uri"),
        *("gen_ai.prompt.name", "jsonrpc.request.id", "jsonrpc.protocol.version"),
        *("rpc.response.status_code", "network.protocol.name", "network.protocol.version"),
        *("network.transport", "server.address", "server.port"),
    )
)
"""The attributes of a tool that runs (`gen_ai.execute_tool.internal`) and of a request to an MCP server
(`mcp.client`): one span may be both."""

DOUBLING: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TO_FIRST: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
METRICS: Final[dict[str, tuple[str, tuple[float, ...]]]] = {
    "gen_ai.client.token.usage": (
        "{token}",
        (
            *(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216),
            67108864,
        ),
    ),
    "gen_ai.client.operation.duration": ("s", DOUBLING),
    "gen_ai.client.operation.time_to_first_chunk": ("s", DOUBLING),
    "gen_ai.client.operation.time_per_output_chunk": ("s", DOUBLING),
    "gen_ai.server.request.duration": ("s", DOUBLING),
    "gen_ai.server.time_to_first_token": ("s", TO_FIRST),
    "gen_ai.server.time_per_output_token": (
        "s",
        (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    ),
    "gen_ai.execute_tool.duration": ("s", DOUBLING),
    "mcp.client.operation.duration": ("s", (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)),
}
"""The metrics that the server has: the unit and the buckets of each."""
OTHER_METRICS: Final = frozenset(
    (
        *("gen_ai.invoke_agent.duration", "gen_ai.workflow.duration", "mcp.client.session.duration"),
        *("mcp.server.operation.duration", "mcp.server.session.duration"),
    )
)
"""The other metrics of the conventions."""

PROVIDERS: Final = frozenset(
    (
        *("anthropic", "aws.bedrock", "azure.ai.inference", "azure.ai.openai", "cohere", "deepseek"),
        *("gcp.gemini", "gcp.gen_ai", "gcp.vertex_ai", "groq", "ibm.watsonx.ai", "mistral_ai"),
        *("moonshot_ai", "openai", "perplexity", "x_ai"),
    )
)
"""The well-known values of `gen_ai.provider.name`."""


def collected(monkeypatch: pytest.MonkeyPatch, exporter: Any, processor: Any = None) -> Any:
    """Pass the spans of applications that are created from now on to this exporter as each span ends, or to
    another `processor`; returns the provider."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(processor or SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("openresponses-bridge", schema_url=tracing.SCHEMA)
    for where in ("observation.spans", "upstreams.spans"):
        monkeypatch.setattr(f"openresponses_server.{where}.tracer", lambda: tracer)
    return provider


def measured(monkeypatch: pytest.MonkeyPatch, reader: Any) -> Any:
    """Pass the metrics of applications that are created from now on to this reader; returns the provider."""
    from opentelemetry.sdk.metrics import MeterProvider

    provider = MeterProvider([reader])
    meter = provider.get_meter("openresponses-bridge", schema_url=tracing.SCHEMA)
    monkeypatch.setattr("openresponses_server.observation.measurements.meter", lambda: meter)
    return provider


def points(reader: Any) -> dict[str, list[Any]]:
    """The name of each metric in a reader in memory → its data points."""
    data = reader.get_metrics_data()
    points_by_name: dict[str, list[Any]] = {}
    for resource in () if data is None else data.resource_metrics:
        for scope in resource.scope_metrics:
            assert scope.schema_url == tracing.SCHEMA
            for metric in scope.metrics:
                assert metric.unit == METRICS[metric.name][0]
                points_by_name[metric.name] = list(metric.data.data_points)
    return points_by_name
