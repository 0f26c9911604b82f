"""The metrics of OpenTelemetry's conventions for generative AI. A configured SDK sends them.

The values of their attributes are names from the settings and the first hundred names from clients and
upstreams, so that the number of series is limited.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from opentelemetry.metrics import Histogram, Meter

from openresponses_bridge.protocol.usage import Usage
from openresponses_server.errors import UpstreamError
from openresponses_server.observation.metrics import Labels
from openresponses_server.observation.responses import EndedRun
from openresponses_server.observation.tracing import OTHER, Attributes, meter

_DOUBLING: Final = tuple(0.01 * 2**power for power in range(14))  # seconds
_TOKENS: Final = tuple(4**power for power in range(14))
_TO_FIRST_TOKEN: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
_PER_TOKEN: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_ERRORS: Final = (
    *("cancelled", "timeout", "tool_error", "internal_error", "rate_limit_exceeded", "server_is_overloaded"),
    *(UpstreamError.UNREACHABLE, UpstreamError.TIMEOUT, UpstreamError.AUTHENTICATION),
    *(UpstreamError.INVALID_RESPONSE, UpstreamError.DISCONNECTED, UpstreamError.TOO_LONG),
)
"""The kinds of errors that always have their own label, whatever codes an upstream invents."""
_MCP: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class Measurements:
    """The metrics of one application; `models` are those that the settings name."""

    def __init__(self, meter: Meter, models: Collection[str]) -> None:
        self._models = Labels(models)
        self._tools = Labels()
        self._mcp_tools = Labels()  # separate, since requests may name servers with any tools
        self._errors = Labels(_ERRORS, other=OTHER)

        def seconds(name: str, what: str, bounds: Sequence[float] = _DOUBLING) -> Histogram:
            return meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=bounds)

        self._request = seconds("gen_ai.client.operation.duration", "Duration of a request to an upstream.")
        self._first_chunk = seconds(
            "gen_ai.client.operation.time_to_first_chunk", "Time to the first chunk of a stream."
        )
        self._chunk = seconds(
            "gen_ai.client.operation.time_per_output_chunk", "Time between two chunks of a stream."
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of an answer, as its upstream counted them.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._response = seconds("gen_ai.server.request.duration", "Duration of a response.")
        self._first_token = seconds(
            "gen_ai.server.time_to_first_token", "Time to the first output of a response.", _TO_FIRST_TOKEN
        )
        self._token = seconds(
            "gen_ai.server.time_per_output_token", "Time for each output token after the first.", _PER_TOKEN
        )
        self._tool = seconds("gen_ai.execute_tool.duration", "Duration of a run of a tool.")
        self._mcp = seconds("mcp.client.operation.duration", "Duration of a request to an MCP server.", _MCP)

    def of_request(self, upstream: Attributes, operation: str, model: str, *, accepted: bool) -> Attributes:
        """Return the attributes of a request for this model, with those of its `upstream`, which has
        `accepted` the request or not."""
        return {
            **upstream,
            "gen_ai.operation.name": operation,
            "gen_ai.request.model": self._models.label(model, answered=accepted),
        }

    def requested(self, attributes: Attributes, seconds: float, error: str) -> None:
        """Measure a request that has ended; `error` is "" if it has not failed."""
        self._request.record(seconds, self._with_error(attributes, error))

    def first_chunk(self, attributes: Attributes, seconds: float) -> None:
        """Measure the time from a request to the first chunk of its answer."""
        self._first_chunk.record(seconds, attributes)

    def chunk(self, attributes: Attributes, seconds: float) -> None:
        """Measure the time between two chunks."""
        self._chunk.record(seconds, attributes)

    def responded(self, attributes: Attributes, ended: EndedRun, error: str) -> None:
        """Measure a response that has ended; `attributes` are those of a request to its upstream. The
        upstream's address is left out."""
        first, usage = ended.timing.first, ended.response.usage
        own = {name: value for name, value in attributes.items() if not name.startswith("server.")}
        self._response.record(ended.seconds, self._with_error(own, error))
        for each in ended.rounds or ([] if usage is None else [usage]):
            self._count(attributes, each)
        if error or first is None:
            return
        self._first_token.record(first, own)
        # without the time of tools between the answers of one response, which is not the model's
        if usage is not None and usage.estimated is not True and len(ended.rounds) < 2:
            behind = usage.output_tokens - 1
            if behind > 0:
                self._token.record((ended.seconds - first) / behind, own)

    def _count(self, attributes: Attributes, usage: Usage) -> None:
        if usage.estimated is True:
            return
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            self._tokens.record(tokens, {**attributes, "gen_ai.token.type": kind})

    def ran_tool(self, attributes: Attributes, seconds: float, error: str) -> None:
        """Measure a run of a tool; `attributes` are those of its span."""
        own = {
            "gen_ai.tool.name": self._tool_name(attributes, error),
            "gen_ai.tool.type": attributes["gen_ai.tool.type"],
        }
        self._tool.record(seconds, self._with_error(own, error))

    def called_mcp(self, attributes: Attributes, seconds: float, error: str) -> None:
        """Measure a call of a tool of an MCP server; `attributes` are those of its span. The server's address
        is left out, since requests may name servers."""
        names = ("mcp.method.name", "mcp.protocol.version", "network.transport", "gen_ai.operation.name")
        own = {name: attributes[name] for name in names if name in attributes}
        own["gen_ai.tool.name"] = self._tool_name(attributes, error)
        self._mcp.record(seconds, self._with_error(own, error))

    def _tool_name(self, attributes: Attributes, error: str) -> str:
        labels = self._mcp_tools if "mcp.method.name" in attributes else self._tools
        return labels.label(attributes["gen_ai.tool.name"], answered=not error)

    def _with_error(self, attributes: Attributes, error: str) -> Attributes:
        return {**attributes, "error.type": self._errors.label(error, answered=True)} if error else attributes


def measurements(models: Collection[str]) -> Measurements | None:
    """Return the metrics for the configured SDK; None without one: nothing is measured then."""
    configured = meter()
    return None if configured is None else Measurements(configured, models)
