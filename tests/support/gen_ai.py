"""Names of OpenTelemetry's conventions for generative AI, and a collector of spans in memory."""

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

PROVIDERS: Final = frozenset(
    (
        *("anthropic", "aws.bedrock", "azure.ai.inference", "azure.ai.openai", "cohere", "deepseek"),
        *("gcp.gemini", "gcp.gen_ai", "gcp.vertex_ai", "groq", "ibm.watsonx.ai", "mistral_ai"),
        *("moonshot_ai", "openai", "perplexity", "x_ai"),
    )
)
"""The well-known values of `gen_ai.provider.name`."""


def collected(monkeypatch: pytest.MonkeyPatch, exporter: Any, processor: Any = None) -> Any:
    """Give the spans of applications that are made from now on to this exporter, each as it ends, or to
    another `processor`; returns the provider."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(processor or SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("openresponses-bridge", schema_url=tracing.SCHEMA)
    for where in ("observation.spans", "upstreams.spans"):
        monkeypatch.setattr(f"openresponses_server.{where}.tracer", lambda: tracer)
    return provider
