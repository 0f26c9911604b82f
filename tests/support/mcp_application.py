"""The application with an MCP server in its settings, over a scripted model that calls its tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openresponses_bridge.conformance import StreamValidator, WireName
from openresponses_bridge.protocol.codec import decode_event
from openresponses_server.settings import McpServerSettings, Settings, UpstreamSettings
from tests.support.in_process import InProcess
from tests.support.mcp_http import HttpPeer
from tests.support.upstream import Received, Script, ScriptedUpstream, call, chunk, text

SECRET = "hidden-authorization-0123456789"


FUNCTION = "mcp__weather__get_forecast"


ASKED = {"type": "function", "function": {"name": FUNCTION}}


NEVER = {"type": "mcp", "server_label": "weather", "require_approval": "never"}


ALWAYS = {"type": "mcp", "server_label": "weather"}


def model(received: Received) -> Script:
    """Call the tool for each city in the question that has no output yet, then repeat what the tools
    returned."""
    messages = received.body["messages"]
    outputs = [each["content"] for each in messages if each["role"] == "tool"]
    offered = [each["function"]["name"] for each in received.body.get("tools", [])]
    last = messages[-1]
    if last["role"] == "user" and FUNCTION in offered and "Oslo" in str(last["content"]):
        arguments = '{"city":"Oslo"}'
        return Script([call(0, arguments, FUNCTION, "call_up_1"), chunk("tool_calls"), b"data: [DONE]\n\n"])
    return Script(text(f"Told: {' | '.join(map(str, outputs))}"))


class Served:
    """An application with the MCP server `weather` in its settings; `asked` has the requests to the model."""

    def __init__(self, app: InProcess, peer: HttpPeer, upstream: ScriptedUpstream) -> None:
        self.app, self.peer, self.upstream = app, peer, upstream

    def ask(self, **fields: Any) -> Any:
        reply = self.app.call("POST", "/v1/responses", {"model": "m", "input": "Rain in Oslo?", **fields})
        return reply.status, json.loads(reply.body)

    def stream(self, wire: WireName = "openai", **fields: Any) -> list[dict[str, Any]]:
        body = {"model": "m", "input": "Rain in Oslo?", "stream": True, **fields}
        reply = self.app.call("POST", "/v1/responses", body, [(b"openresponses-wire", wire.encode())])
        lines = [line[6:] for line in reply.body.split(b"\n") if line.startswith(b"data: {")]
        validator = StreamValidator(wire=wire)
        violations = [each for line in lines for each in validator.feed(decode_event(line))]
        assert [*violations, *validator.close()] == []
        return [json.loads(line) for line in lines]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [each.body["params"]["arguments"] for each in self.peer.asked("tools/call")]


@contextmanager
def served(folder: Path, **more: Any) -> Iterator[Served]:
    with ScriptedUpstream() as upstream, ScriptedUpstream() as behind:
        upstream.answer = model
        peer = HttpPeer(behind)
        peer.results["tools/list"] = {
            "tools": [
                {
                    "name": "get_forecast",
                    "description": "The weather of tomorrow",
                    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
                }
            ]
        }
        peer.results["tools/call"] = {"content": [{"type": "text", "text": "Rain in Oslo"}]}
        settings = Settings(
            upstreams=[UpstreamSettings(url=upstream.url, name="one", models=["m"])],
            mcp_servers=[McpServerSettings(name="weather", url=f"{behind.url}/mcp")],
            mcp_private_hosts=[urlsplit(behind.url).netloc],
            store=f"sqlite:///{folder}/store.db",
            **more,
        )
        app = InProcess(settings)
        try:
            yield Served(app, peer, upstream)
        finally:
            app.close()
