"""A scripted MCP server over streamable HTTP."""

from __future__ import annotations

import json
from typing import Any

from tests.support.upstream import JSON, Received, Script, ScriptedUpstream

INITIALIZED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "http", "version": "1"},
}
LIST = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}


class HttpPeer:
    """A scripted MCP server. `results` has the result of each method, or a whole `Script`."""

    def __init__(self, upstream: ScriptedUpstream) -> None:
        self.upstream = upstream
        self.results: dict[str, Any] = {"initialize": INITIALIZED, "tools/list": LIST}
        self.session = 1
        upstream.answer = self._answer

    def _answer(self, received: Received) -> Script:
        method = received.body.get("method", "")
        if received.method == "DELETE" or "id" not in received.body:
            return Script(status=202, headers={})
        headers = JSON | {"mcp-session-id": f"session-{self.session}"}
        if received.headers.get("mcp-session-id", f"session-{self.session}") != f"session-{self.session}":
            return Script([b"gone"], 404, {})
        result = self.results.get(method)
        if isinstance(result, Script):
            return result
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": received.body["id"]}
        if result is None:
            return Script(
                [
                    json.dumps(
                        body
                        | {
                            "error": {
                                "code": -32601,
                                "message": f"no {received.headers.get('authorization')}",
                            }
                        }
                    ).encode()
                ],
                400,
                headers,
            )
        return Script([json.dumps(body | {"result": result}).encode()], headers=headers)

    def asked(self, method: str) -> list[Received]:
        return [each for each in self.upstream.received if each.body.get("method") == method]
