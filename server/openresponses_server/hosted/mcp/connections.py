"""Connections to MCP servers: opened at their first use, shared, opened again when they end, and closed
together.

The SDK's sessions belong to the task that opened them, so each connection has a task of its own; calls are
tasks too, since the SDK holds a caller that is cancelled until the server has been notified.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

import mcp_types
import msgspec
import structlog
from mcp import Client, MCPError
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, PaginatedRequestParams
from msgspec import Struct
from pydantic import ValidationError

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import with_whole_characters
from openresponses_server.hosted.base import TIMEOUT, TOOL_ERROR
from openresponses_server.hosted.mcp.transports import Traffic, Transport, bounded
from openresponses_server.observation.tracing import OTHER, Attributes, describe_tool, name_of
from openresponses_server.settings import Limits
from openresponses_server.tasks import OWNER, end_tasks, off_loop, retrieve_exception

T = TypeVar("T")
_log = structlog.get_logger(__name__)
# The SDK logs what servers send, with their texts, and prints it if `logging` is not configured.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False

_OWN_ERROR: Final = -32000  # JSON-RPC: an error of the implementation
_CLIENT: Final = mcp_types.Implementation(name="openresponses-bridge", version="1")
_MOST_PAGES: Final = 100  # of a list
_LONGEST_NAME: Final = 128  # characters of a tool's name
_STOPPED: Final = "the server is stopping"
_FAILED_AGAIN: Final = 2.0  # seconds after a session could not be opened without another attempt
_IDLE: Final = 300.0  # seconds after which an unused connection to a server that a request named is closed
_STOP: Final = 10.0  # seconds for closing a connection


class McpFailure(Exception):
    """A failure of a server or a call, in words for the client and the model. `is_said` is True if the words
    are the server's own, which may be content; `is_unsent` if the server did not act on this one request,
    which can then be sent in another session."""

    def __init__(
        self,
        message: str,
        *,
        code: int = _OWN_ERROR,
        is_said: bool = False,
        ran: bool = False,
        is_unsent: bool = False,
        kind: str = OTHER,
    ) -> None:
        """`ran` is True if the tool ran, and its result is this error. `kind` is the `error_type` of a
        failure that the server has not reported."""
        super().__init__(message)
        self.message = message
        self.is_said = is_said or ran
        self.is_unsent = is_unsent
        self._code, self._ran, self._kind = code, ran, kind

    @property
    def rpc_code(self) -> int | None:
        """The code of the JSON-RPC error that the server has answered with; None if it has not."""
        return self._code if self.is_said and not self._ran else None

    @property
    def error_type(self) -> str:
        """The kind of the failure, in OpenTelemetry's names."""
        if self._ran:
            return TOOL_ERROR
        return self._kind if self.rpc_code is None else str(self.rpc_code)

    def error(self, message: str) -> dict[str, Any]:
        """Return the error of an `mcp_call` with this message, which may be a part of its own."""
        if self._ran:
            return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": message}]}
        return {"type": "mcp_protocol_error", "code": self._code, "message": message}


class McpTool(Struct, frozen=True, omit_defaults=True):
    """A tool as its server describes it, and as an `mcp_list_tools` item lists it."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    annotations: dict[str, Any] | None = None

    @property
    def is_read_only(self) -> bool:
        """True if the server says that the tool changes nothing."""
        return bool(self.annotations) and (self.annotations or {}).get("readOnlyHint") is True


class McpServer(Struct, frozen=True):
    """A server: how to connect to it, and its times in seconds."""

    label: str
    """The server's name in messages and in the log."""
    open: Callable[[Traffic], Transport]
    """Makes the transport to the server."""
    clean: Callable[[str], str]
    """Removes the secrets that the server was given from its texts."""
    is_kept: bool = False
    """True if the connection is never closed for being idle, since the operator configured the server."""
    start_seconds: float = 30.0
    call_seconds: float = 60.0
    list_seconds: float = 300.0
    where: tuple[str, int] | None = None
    """The host and port of the server; None for a program."""


class McpConnection:
    """One session with a server."""

    def __init__(self, server: McpServer, limits: Limits, owner: str) -> None:
        """`owner` is the one in whose turn its work on threads runs; "" for a server of the operator."""
        self._server = server
        self._limits = limits
        self._changes = 0
        self._traffic = Traffic(limits.mcp_message_bytes, self._record_change)
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._calls: set[asyncio.Task[Any]] = set()
        self._listed: tuple[float, int, list[McpTool]] | None = None  # valid until when, after which change
        self._listing: asyncio.Task[list[McpTool]] | None = None
        # in a context of its own: it outlives the request that opens it
        self._context = contextvars.Context()
        self._context.run(OWNER.set, owner)
        self._task = asyncio.create_task(self._run(), context=self._context)

    @property
    def is_usable(self) -> bool:
        """True if the connection is open, or still opening."""
        traffic = self._traffic
        return not (
            self._task.done() or traffic.ended.is_set() or traffic.session_lost or self._closing.is_set()
        )

    @property
    def failed_to_open(self) -> bool:
        """True if there never was a session, and never will be."""
        return self._ready.done() and self._ready.exception() is not None

    def _record_change(self) -> None:
        self._changes += 1

    async def _run(self) -> None:
        """Open the session, keep it until it is closed or has ended, and cancel what still waits for it."""
        starting = asyncio.timeout(self._server.start_seconds)
        try:
            transport = bounded(self._server.open(self._traffic), self._traffic, self._server.clean)
            client = Client(transport, mode="auto", cache=None, client_info=_CLIENT)
            async with starting:
                await client.__aenter__()
        except BaseException as error:
            if starting.expired():
                self._traffic.end(f"it was not ready within {self._server.start_seconds:g} seconds")
            self._fail(_reason_of(error, self._traffic))
            if isinstance(error, asyncio.CancelledError) and not starting.expired():
                raise
            return
        self._ready.set_result(client)
        try:
            ending = asyncio.ensure_future(self._traffic.ended.wait())
            closing = asyncio.ensure_future(self._closing.wait())
            try:
                await asyncio.wait((ending, closing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                ending.cancel()
                closing.cancel()
        finally:
            self._traffic.end(_STOPPED if self._closing.is_set() else None)
            calls = list(self._calls)
            for call in calls:
                call.cancel()
            try:
                await client.__aexit__(None, None, None)
            except (Exception, BaseExceptionGroup) as error:
                _log.info("mcp.closing_failed", server=self._server.label, error=type(error).__name__)
            if calls:
                await asyncio.wait(calls)

    async def _within(self, work: Callable[[Client], Coroutine[Any, Any, T]], seconds: float) -> T:
        """Call `work` with the session, in a task of its own, within `seconds`. Raises McpFailure."""
        client = await asyncio.shield(self._ready)
        if not self.is_usable:
            raise McpFailure(self._traffic.reason, is_unsent=True)
        task = asyncio.create_task(work(client))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(retrieve_exception)
        ended = asyncio.ensure_future(self._traffic.ended.wait())
        try:
            await asyncio.wait((task, ended), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and ended.done():  # an answer may have come with the end
                await asyncio.wait((task,), timeout=0)
        finally:
            ended.cancel()
            task.cancel()
        if not task.done() or task.cancelled():
            if self._traffic.ended.is_set():
                raise McpFailure(self._traffic.reason)
            raise McpFailure(f"it did not answer within {seconds:g} seconds", kind=TIMEOUT)
        error = task.exception()
        if error is None:
            return task.result()
        raise self._failure_of(error) from error

    def _failure_of(self, error: BaseException) -> McpFailure:
        """Return the failure of one request, for this error of its own, even if the connection has ended."""
        if isinstance(error, MCPError) and self._traffic.is_ours(error.error):
            return McpFailure(error.error.message, is_unsent=self._traffic.is_unsent(error.error))
        if isinstance(error, MCPError) and not self._traffic.ended.is_set():
            return McpFailure(error.error.message, code=error.error.code, is_said=True)
        return McpFailure(_reason_of(error, self._traffic))

    async def tools(self) -> list[McpTool]:
        """Return the server's tools, at most as many as the limit and each name once. Raises McpFailure."""
        if self._listed is not None:
            until, change, tools = self._listed
            if asyncio.get_running_loop().time() < until and change == self._changes:
                return tools
        if self._listing is None or self._listing.done():  # requests that come meanwhile get the same list
            self._listing = asyncio.create_task(self._new_list(), context=self._context.copy())
            self._listing.add_done_callback(retrieve_exception)
        return await asyncio.shield(self._listing)

    async def _new_list(self) -> list[McpTool]:
        now, change = asyncio.get_running_loop().time(), self._changes
        tools = await self._within(self._list, self._server.start_seconds)
        self._listed = now + self._server.list_seconds, change, tools
        return tools

    async def _list(self, client: Client) -> list[McpTool]:
        tools: dict[str, McpTool] = {}
        cursor: str | None = None
        size, most = 0, self._limits.mcp_message_bytes
        for _ in range(_MOST_PAGES):
            page = await client.session.list_tools(
                params=None if cursor is None else PaginatedRequestParams(cursor=cursor)
            )
            for entry in page.tools:
                if not self._is_nameable(entry.name) or entry.name in tools:
                    continue
                tool = _tool_of(entry)
                size += len(msgspec.json.encode(tool))
                if size > most:
                    raise McpFailure(f"its list of tools has more than {most} bytes")
                if len(tools) == self._limits.mcp_tools:
                    raise McpFailure(
                        f"it has more than {self._limits.mcp_tools} tools; limits.mcp_tools is the limit"
                    )
                tools[tool.name] = tool
            cursor = page.next_cursor
            if not cursor:
                return await off_loop(size, partial(self._cleaned, list(tools.values())), begun=True)
        raise McpFailure(f"its list of tools has more than {_MOST_PAGES} pages")

    def _is_nameable(self, name: str) -> bool:
        """Return True if a model can be given this name of a tool."""
        return 0 < len(name) <= _LONGEST_NAME and name.isprintable() and self._server.clean(name) == name

    def _cleaned(self, tools: list[McpTool]) -> list[McpTool]:
        """Return the tools without the secrets that their server was given."""
        clean = self._server.clean
        return [
            McpTool(
                each.name,
                _without_secrets(each.input_schema, clean),
                _without_secrets(each.description, clean),
                _without_secrets(each.annotations, clean),
            )
            for each in tools
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Return the text of a call's result. Raises McpFailure, also for a result that is an error."""

        async def work(client: Client) -> CallToolResult:
            # not `call_tool`, which validates results against the server's schema, at any cost, in the event
            # loop
            request = _call_request(name, arguments)
            return await client.session.send_request(request, CallToolResult)

        describe_tool({"gen_ai.tool.name": name_of(name), **self._described})
        result = await self._within(work, self._server.call_seconds)
        text = text_of(result)
        text = await off_loop(len(text), partial(self._server.clean, text), begun=True)
        if result.is_error:
            raise McpFailure(text, ran=True)
        return text

    @property
    def _described(self) -> Attributes:
        """The connection in OpenTelemetry's names. The session's id is left out, since anybody who knows it
        can take part in the session."""
        attributes: Attributes = {"mcp.method.name": "tools/call", "network.transport": "pipe"}
        if self._server.where is not None:
            host, port = self._server.where
            http = {"network.transport": "tcp", "network.protocol.name": "http"}
            attributes |= {**http, "server.address": name_of(host), "server.port": port}
        if self._ready.done() and not self.failed_to_open:
            version = self._ready.result().session.protocol_version
            attributes |= {"mcp.protocol.version": version} if version else {}
        return attributes

    async def retire(self) -> None:
        """End the session after its calls."""
        while self._calls:
            await asyncio.wait(self._calls)
        await self.close()

    async def close(self) -> None:
        """End the session and what waits for it."""
        self._closing.set()
        if not self._ready.done():
            self._task.cancel()
            self._fail(_STOPPED)
        await asyncio.wait((self._task,), timeout=_STOP)
        await end_tasks((self._task,))
        if self._listing is not None:
            await asyncio.wait((self._listing,))

    def _fail(self, reason: str) -> None:
        """Record that the connection can't be opened."""
        self._traffic.end(reason)
        if not self._ready.done():
            self._ready.set_exception(McpFailure(reason))
            retrieve_exception(self._ready)


def _call_request(name: str, arguments: dict[str, Any]) -> CallToolRequest:
    """Return the request of a call. Raises McpFailure if the SDK can't encode it: trying would end the
    session with all other calls."""
    try:
        whole = with_whole_characters(arguments)
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=whole))
        shown = request.model_dump(by_alias=True, mode="json", exclude_unset=True)
        json.dumps(shown, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError, WireError):
        raise McpFailure("its arguments can't be sent") from None
    return request


def _tool_of(tool: mcp_types.Tool) -> McpTool:
    notes = tool.annotations
    shown = None if notes is None else notes.model_dump(by_alias=True, exclude_none=True) or None
    return McpTool(tool.name, tool.input_schema, tool.description, shown)


def _without_secrets(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(name): _without_secrets(each, clean) for name, each in value.items()}
    return [_without_secrets(each, clean) for each in value] if isinstance(value, list) else value


def _reason_of(error: BaseException, traffic: Traffic) -> str:
    """Return the reason in our own words, since those of the SDK and of pydantic quote what was received."""
    if traffic.ended.is_set():
        return traffic.reason
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MCPError):
        return str(error.error.message)
    if isinstance(error, ValidationError):
        return "its answer is not what the protocol defines"
    if isinstance(error, OSError):
        return "its program can't be started"
    if isinstance(error, McpFailure):
        return error.message
    return f"it failed with {type(error).__name__}"


def text_of(result: CallToolResult) -> str:
    """Return the text of a result for a model: texts unchanged, a description of everything else, with blank
    lines between them."""
    parts = [_part_of(part) for part in result.content]
    if not parts and result.structured_content is not None:
        return msgspec.json.encode(result.structured_content).decode()
    return "\n\n".join(filter(None, parts))


def _part_of(part: mcp_types.ContentBlock) -> str:
    if isinstance(part, mcp_types.TextContent):
        return part.text
    if isinstance(part, mcp_types.EmbeddedResource):
        resource = part.resource
        if isinstance(resource, mcp_types.TextResourceContents):
            return resource.text
        return f"[{resource.mime_type or 'data'}: {resource.uri}]"
    if isinstance(part, mcp_types.ResourceLink):
        return f"[{part.name}: {part.uri}]"
    return f"[{part.type}: {part.mime_type}]"


class _Shared:
    """A server's connection, and its users."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.connection: McpConnection | None = None
        self.users = 0
        self.used = 0.0
        self.failed: tuple[float, McpFailure] | None = None


class McpConnections:
    """All connections of this process, by keys: one for each server of the operator; for servers that
    requests name, one for each owner, address and headers. To be made in the event loop that uses it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._shared: dict[Any, _Shared] = {}
        self._calls: dict[str, int] = {}
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._ending: dict[asyncio.Task[None], McpConnection] = {}

    async def tools(self, key: Any, server: McpServer, owner: str) -> list[McpTool]:
        """Return the tools of a server. Raises McpFailure."""
        return await self._with(key, server, owner, lambda connection: connection.tools())

    async def call(
        self, key: Any, server: McpServer, owner: str, name: str, arguments: dict[str, Any]
    ) -> str:
        """Call a tool. Returns the text of its result. The call is sent once, or once more to a server that
        reports that it no longer has the session. Raises McpFailure."""
        if self._calls.get(owner, 0) >= self._limits.mcp_calls_per_key:
            raise McpFailure(f"{self._limits.mcp_calls_per_key} calls are in progress, which is the limit")
        self._calls[owner] = self._calls.get(owner, 0) + 1
        try:
            return await self._with(key, server, owner, lambda connection: connection.call(name, arguments))
        finally:
            self._calls[owner] -= 1
            if not self._calls[owner]:
                del self._calls[owner]

    async def _with(
        self,
        key: Any,
        server: McpServer,
        owner: str,
        work: Callable[[McpConnection], Coroutine[Any, Any, T]],
    ) -> T:
        shared = self._shared_of(key, server, owner)
        shared.users += 1
        try:
            may_send_again = True
            while True:
                connection = self._connection_of(shared, server)
                try:
                    return await work(connection)
                except McpFailure as failure:
                    if failure.is_unsent and may_send_again:
                        may_send_again = False
                        continue
                    if connection is shared.connection and connection.failed_to_open:
                        shared.failed = asyncio.get_running_loop().time() + _FAILED_AGAIN, failure
                    reason = "it answered with an error" if failure.is_said else failure.message
                    _log.warning("mcp.failed", server=server.label, reason=reason)
                    raise
        finally:
            shared.users -= 1
            shared.used = asyncio.get_running_loop().time()

    def _shared_of(self, key: Any, server: McpServer, owner: str) -> _Shared:
        shared = self._shared.get(key)
        if shared is None:
            if self._closed:
                raise McpFailure(_STOPPED)
            if not server.is_kept:
                self._make_room(owner)
            shared = self._shared[key] = _Shared("" if server.is_kept else owner)
        if not server.is_kept and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_IDLE / 4, self._close_idle)
        return shared

    def _connection_of(self, shared: _Shared, server: McpServer) -> McpConnection:
        if self._closed:
            raise McpFailure(_STOPPED)
        connection = shared.connection
        if connection is not None and connection.is_usable:
            return connection
        if shared.failed is not None:
            until, failure = shared.failed
            if asyncio.get_running_loop().time() < until:
                raise McpFailure(failure.message)
            shared.failed = None
        if connection is not None:
            self._end(connection, connection.retire())
        shared.connection = McpConnection(server, self._limits, shared.owner)
        return shared.connection

    def _make_room(self, owner: str) -> None:
        """Close an unused connection if there are as many as the limits allow. Raises McpFailure if all of
        them are in use."""
        named = {key: each for key, each in self._shared.items() if key[0] != "configured"}
        for most, among in (
            (
                self._limits.mcp_connections_per_key,
                [key for key, each in named.items() if each.owner == owner],
            ),
            (self._limits.mcp_connections, list(named)),
        ):
            if len(among) < most:
                continue
            unused = [key for key in among if not named[key].users]
            if not unused:
                raise McpFailure(f"{most} MCP servers are in use, which is the limit")
            self._remove(min(unused, key=lambda key: named[key].used))

    def _remove(self, key: Any) -> None:
        shared = self._shared.pop(key, None)
        if shared is not None and shared.connection is not None:
            self._end(shared.connection, shared.connection.close())

    def _end(self, connection: McpConnection, ending: Coroutine[Any, Any, None]) -> None:
        """Close a connection without waiting for it."""
        task = asyncio.create_task(ending, context=contextvars.Context())
        self._ending[task] = connection
        task.add_done_callback(self._ending.pop)
        task.add_done_callback(retrieve_exception)

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for key, shared in list(self._shared.items()):
            if key[0] != "configured" and not shared.users and now - shared.used >= _IDLE:
                self._remove(key)
        is_empty = all(key[0] == "configured" for key in self._shared)
        self._timer = None if is_empty else loop.call_later(_IDLE / 4, self._close_idle)

    async def close(self) -> None:
        """Close all connections, and end what waits for them."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for key in list(self._shared):
            self._remove(key)
        for connection in list(self._ending.values()):
            self._end(connection, connection.close())
        if self._ending:
            await asyncio.wait(self._ending)
