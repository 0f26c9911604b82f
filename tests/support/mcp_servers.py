"""MCP servers in memory: servers of the SDK, and scripted ones that behave as the SDK's never would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    ToolAnnotations,
)

from openresponses_server.hosted.mcp.connections import McpServer
from openresponses_server.hosted.mcp.transports import Traffic, Transport

READS: Final = ToolAnnotations(read_only_hint=True)


def weather_server() -> MCPServer:
    """A server with a tool that reads, one that writes, and one that fails. `calls` has the calls that
    ran."""
    server = MCPServer("weather")
    calls: list[tuple[str, str]] = []
    server.calls = calls  # type: ignore[attr-defined]

    @server.tool(annotations=READS, description="The weather of tomorrow")
    def get_forecast(city: str) -> str:
        calls.append(("get_forecast", city))
        return f"Rain in {city} tomorrow"

    @server.tool(description="Files a report")
    def file_report(city: str) -> str:
        calls.append(("file_report", city))
        return f"Filed for {city}"

    @server.tool(description="Fails")
    def break_down() -> str:
        raise ToolError("the station is down")

    return server


@asynccontextmanager
async def in_memory(server: MCPServer) -> AsyncIterator[Any]:
    """A transport to one of the SDK's servers."""
    inner = server._lowlevel_server
    async with (
        create_client_server_memory_streams() as (client, (received, sent)),
        anyio.create_task_group() as group,
    ):
        group.start_soon(inner.run, received, sent, inner.create_initialization_options())
        try:
            yield client
        finally:
            group.cancel_scope.cancel()


Answer = dict[str, Any] | None
"""The result of a request; None if it is not answered at all."""


class Peer:
    """A scripted server. `answers` has the result of each method, or a function that makes the result from
    the parameters; `requests` are the received ones; `opened` counts the connections."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "peer", "version": "1"},
            },
            "tools/list": {"tools": [tool("echo")]},
            **{name.replace("_", "/"): answer for name, answer in answers.items()},
        }
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.opened = 0
        self.flood: Callable[[Any], Awaitable[None]] | None = None
        self.closed = asyncio.Event()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        self.opened += 1
        async with (
            create_client_server_memory_streams() as (client, (received, sent)),
            anyio.create_task_group() as group,
        ):
            group.start_soon(self._serve, received, sent)
            try:
                yield client
            finally:
                self.closed.set()
                group.cancel_scope.cancel()

    async def _serve(self, received: Any, sent: Any) -> None:
        async for message in received:
            request = message.message
            if not isinstance(request, JSONRPCRequest):
                continue
            self.requests.append((request.method, request.params or {}))
            if request.method not in self.answers:
                error = ErrorData(code=-32601, message=f"no {request.method}")
                await sent.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request.id, error=error)))
                continue
            answer = self.answers[request.method]
            if answer == "exit":
                await sent.aclose()
                return
            if callable(answer):
                answer = answer(request.params or {})
                if isinstance(answer, Awaitable):
                    answer = await answer
            if request.method == "tools/call" and self.flood is not None:
                await self.flood(sent)
            if answer is not None:
                await sent.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request.id, result=answer)))


def notification(method: str) -> SessionMessage:
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method))


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **fields}


def text_result(text: str, **fields: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **fields}


def reached(connect: Callable[[], Transport], **fields: Any) -> McpServer:
    """Return an `McpServer` whose connections are made by `connect`."""

    def open_transport(_traffic: Traffic) -> Transport:
        return connect()

    return McpServer("peer", open_transport, fields.pop("clean", str), **fields)
